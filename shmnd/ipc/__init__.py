# SPDX-License-Identifier: Apache-2.0
"""Arrays and objects from process to process, without a copy where that is possible."""

from shmnd.ipc.blackboard import Blackboard, BlackboardReader
from shmnd.ipc.client import Client
from shmnd.ipc.discovery import blackboards, events, services, topics, watch
from shmnd.ipc.errors import Closed, LoanLimit, NoPublisher, PeerLost, RemoteError, TypeMismatch
from shmnd.ipc.forms import Array, Arrays
from shmnd.ipc.loan import Loan
from shmnd.ipc.notifying import Listener, Notifier
from shmnd.ipc.publisher import Publisher, SlowSubscriber
from shmnd.ipc.queueing import JoinableQueue, Queue
from shmnd.ipc.reader import Sample
from shmnd.ipc.server import Server
from shmnd.ipc.subscriber import Subscriber
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
    "PeerLost",
    "Publisher",
    "Queue",
    "RemoteError",
    "Sample",
    "Server",
    "SlowSubscriber",
    "Subscriber",
    "TypeMismatch",
    "WaitSet",
    "blackboards",
    "events",
    "services",
    "topics",
    "watch",
]
