# SPDX-License-Identifier: Apache-2.0
"""Arrays and objects from process to process, without a copy where that is possible.

- Topics: a `Publisher` sends samples to every `Subscriber` of its name.
- Queues: `Queue` and `JoinableQueue` replace those of `multiprocessing`.
- Services: a `Client` calls a `Server`, and gets one answer or a stream of them.
- Events: a `Notifier` signals numbers to every `Listener` of its name.
- Blackboards: a `BlackboardReader` reads the newest value of each key of a `Blackboard`.
- A `WaitSet` waits for several of them; `topics`, `services`, `events`, `blackboards`, `queues` and
  `watch` find what there is.

Both ends name the same name; neither has to be there first. Every object has `close()` and works in
a `with` statement.
"""

from shmnd.ipc.blackboard.reader import BlackboardReader
from shmnd.ipc.blackboard.writer import Blackboard
from shmnd.ipc.discovery import blackboards, events, queues, services, topics, watch
from shmnd.ipc.errors import Closed, LoanLimit, NoPublisher, PeerLost, RemoteError, TypeMismatch
from shmnd.ipc.event.notifying import Listener, Notifier
from shmnd.ipc.queue.queueing import JoinableQueue, Queue
from shmnd.ipc.service.client import Client
from shmnd.ipc.service.pending import Pending
from shmnd.ipc.service.request import Request
from shmnd.ipc.service.server import Server
from shmnd.ipc.topic.loan import Loan
from shmnd.ipc.topic.publisher import Publisher, SlowSubscriber
from shmnd.ipc.topic.sample import Sample
from shmnd.ipc.topic.subscriber import Subscriber
from shmnd.ipc.types.forms import TopicType
from shmnd.ipc.types.layouts import Array, Arrays
from shmnd.ipc.types.objects import PackedObject
from shmnd.ipc.waitset import WaitSet

__all__ = [
    "Array",
    "Arrays",
    "Blackboard",
    "BlackboardReader",
    "Client",
    "Closed",
    "JoinableQueue",
    "Listener",
    "Loan",
    "LoanLimit",
    "NoPublisher",
    "Notifier",
    "PackedObject",
    "PeerLost",
    "Pending",
    "Publisher",
    "Queue",
    "RemoteError",
    "Request",
    "Sample",
    "Server",
    "SlowSubscriber",
    "Subscriber",
    "TopicType",
    "TypeMismatch",
    "WaitSet",
    "blackboards",
    "events",
    "queues",
    "services",
    "topics",
    "watch",
]
