# SPDX-License-Identifier: Apache-2.0
"""Arrays and objects from process to process, without a copy where that is possible."""

from shmnd.ipc.blackboard import Blackboard, BlackboardReader
from shmnd.ipc.client import Client
from shmnd.ipc.discovery import blackboards, events, services, topics, watch
from shmnd.ipc.errors import Closed, LoanLimit, NoPublisher, PeerLost, RemoteError, TypeMismatch
from shmnd.ipc.notifying import Listener, Notifier
from shmnd.ipc.queueing import JoinableQueue, Queue
from shmnd.ipc.server import Server
from shmnd.ipc.waitset import WaitSet

__all__ = [
    "Blackboard",
    "BlackboardReader",
    "Client",
    "Closed",
    "JoinableQueue",
    "Listener",
    "LoanLimit",
    "NoPublisher",
    "Notifier",
    "PeerLost",
    "Queue",
    "RemoteError",
    "Server",
    "TypeMismatch",
    "WaitSet",
    "blackboards",
    "events",
    "services",
    "topics",
    "watch",
]
