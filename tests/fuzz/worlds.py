# SPDX-License-Identifier: Apache-2.0
"""Objects of every public class in a given state, for every_call.py."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import shmnd
import shmnd.nd1 as nd
from shmnd import MrFlag
from shmnd.directory import Directory
from shmnd.messaging import messages as connection_messages
from shmnd.neighbours import Neighbour
from shmnd.waiter import Waiter

WAIT = 10.0
HERE = ("127.0.0.1", 0)
STATES = (
    "fresh",
    "connecting",
    "connected",
    "busy",
    "disconnected",
    "closed",
    "adapter",
    "forked",
    "dead",
)
"""`adapter`: the adapters are closed; `forked`: in a child process; `dead`: the peer was killed."""
COMPILED = ("shmnd.ring", "shmnd.nd1.messages", "shmnd.messaging.messages")
EXTENSIONS = ("Announcement", "Directory", "Entry", "Neighbour", "Waiter", "Watch")
"""Public classes that `shmnd.__all__` does not name."""

PEER = """
import sys, shmnd
from shmnd.directory import Directory
server = shmnd.listen(("127.0.0.1", 0))
adapter = shmnd.open_adapter("127.0.0.1")
memory = adapter.allocate(4096)
record = Directory(adapter).announce("fuzz", "peer-" + str(server.address[1]))
print(server.address[1], *adapter.locate(memory), flush=True)
connection = server.accept(20)
sealed = connection.adapter.allocate(64, peers="read")
region = connection.adapter.create_memory_region()
region.register(sealed, shmnd.MrFlag.ALLOW_REMOTE_READ).result(9)
connection.send_bytes(b"%d %d" % (region.address, region.remote_token))
connection.send_bytes(b"unread")
sys.stdin.read()
"""
"""A peer in a process of its own, which is killed before the calls begin."""


class End:
    """One end of a connection, and everything else that an adapter makes."""

    def __init__(self, host: str) -> None:
        self.adapter = shmnd.open_adapter(host)
        self.file = self.adapter.create_overlapped_file()
        self.cq = self.adapter.create_completion_queue(64, overlapped_file=self.file)
        self.srq = self.adapter.create_shared_receive_queue(16, 4, 2)
        self.qp = self.adapter.create_queue_pair(self.cq, self.cq, inline_size=64)
        self.sharing = self.adapter.create_queue_pair_with_srq(self.cq, self.cq, self.srq)
        self.region = self.adapter.create_memory_region()
        self.array = self.adapter.allocate(4096)
        self.flags = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
        self.region.register(self.array, self.flags)
        self.private = self.adapter.create_memory_region()
        self.private.register(bytearray(1 << 20), self.flags)
        self.window = self.adapter.create_memory_window()
        self.connector = self.adapter.create_connector(overlapped_file=self.file)
        self.listener = self.adapter.create_listener()
        self.sge = self.region.sge(0, 64)
        self.notified = self.cq.notify()


class Talk:
    """Two ends of a connection for messages, with its server, in this process."""

    def __init__(self) -> None:
        self.server = shmnd.listen(HERE)
        self.accepted: list[shmnd.Connection] = []
        accepting = threading.Thread(target=lambda: self.accepted.append(self.server.accept(WAIT)))
        accepting.start()
        self.connection = shmnd.connect(self.server.address, timeout=WAIT)
        accepting.join()
        self.connection.send_bytes(b"unread")

    def objects(self) -> list[Any]:
        there = self.connection
        owner = self.accepted[0].adapter
        sealed = owner.allocate(64, peers="read")
        region = owner.create_memory_region()
        region.register(sealed, MrFlag.ALLOW_REMOTE_READ).result(WAIT)
        view = there.qp.view(region.address, region.remote_token, 64)
        there.qp.write(there.region.sge(0, 8), there.remote_address, there.remote_token)
        objects = [self.server, there, *self.accepted, there.memory, view, region, iter(there)]
        return [*objects, *there.cq.wait(1, WAIT)]

    def enter(self, state: str) -> None:
        if state == "disconnected":
            self.accepted[0].close()
        if state == "closed":
            self.connection.close()
            self.server.close()
        if state == "adapter":
            self.connection.adapter.close()
            self.server.adapter.close()


class First:
    """Two ends of a connection of version 1."""

    def __init__(self) -> None:
        self.adapters = [nd.Provider().open_adapter("127.0.0.1") for _ in range(2)]
        self.queues = [adapter.create_completion_queue(16) for adapter in self.adapters]
        self.connectors = [adapter.create_connector() for adapter in self.adapters]
        self.endpoints = [
            connector.create_endpoint(queue, queue, 4, 4, 1, 1)
            for connector, queue in zip(self.connectors, self.queues, strict=True)
        ]
        self.listen = self.adapters[1].listen()
        self.windows = [adapter.create_memory_window() for adapter in self.adapters]
        self.array = self.adapters[0].allocate(4096)
        self.handle, registering = self.adapters[0].register_memory(self.array)
        self.registering = registering
        self.kept: list[Any] = [self.adapters[0].get_file_handle(), self.adapters[0].query()]

    def objects(self) -> list[Any]:
        made = [*self.adapters, *self.queues, *self.connectors, *self.endpoints, *self.windows]
        made += [self.listen, nd.Sge(self.array, 64, self.handle), nd.MwDescriptor(1, 2, 3)]
        made += [nd.Result(), self.registering, self.endpoints[0]._pair, self.array]
        return [*made, *self.kept, nd.Provider()]

    def enter(self, state: str) -> None:
        if state == "fresh":
            return
        active, passive = self.connectors
        asked = self.listen.get_connection_request(passive)
        address = ("127.0.0.1", self.listen.assigned_port)
        connecting = active.connect(self.endpoints[0], address)
        asked.result(WAIT)
        self.kept += [asked, connecting]
        if state == "connecting":
            return
        accepted = passive.accept(self.endpoints[1])
        connecting.result(WAIT)
        active.complete_connect().result(WAIT)
        accepted.result(WAIT)
        for endpoint in self.endpoints:
            endpoint.receive(nd.Result(), [])
            endpoint.send(nd.Result(), [])
        if state == "disconnected":
            active.disconnect()
        if state == "closed":
            for closing in (*self.endpoints, *self.queues, self.listen, *self.windows):
                closing.close()
        if state == "adapter":
            for adapter in self.adapters:
                adapter.close()


class Met:
    """Adapters that found each other by a name, and what waits for them."""

    def __init__(self, adapter: shmnd.Adapter, owner: shmnd.Adapter, array: Any) -> None:
        self.directory = Directory(adapter)
        self.announced = Directory(owner).announce("fuzz", owner.uid)
        self.watch = self.directory.watch("fuzz", owner.uid)
        (self.entry,) = self.directory.find("fuzz", owner.uid)
        self.neighbour = Neighbour(adapter, self.entry)
        self.waiter = Waiter(adapter, lambda: False)
        self.view = self.neighbour.view(*owner.locate(array), 64)

    def enter(self, state: str) -> None:
        if state == "closed":
            self.neighbour.close()
            self.waiter.close()


class Killed:
    """This side of a connection and of a meeting whose peer was killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", PEER]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            assert peer.stdout is not None
            port, segment, offset = map(int, peer.stdout.readline().split())
            self.connection = shmnd.connect(("127.0.0.1", port), timeout=WAIT)
            there = self.connection
            self.adapter = there.adapter
            address, token = map(int, there.recv_bytes(WAIT).split())
            self.mapped = there.qp.view(address, token, 64)
            (entry,) = Directory(self.adapter).find("fuzz", f"peer-{port}")
            self.neighbour = Neighbour(self.adapter, entry)
            self.view = self.neighbour.view(segment, offset, 64, writable=True)
            self.waiter = Waiter(self.adapter, lambda: self.neighbour.dead)
            there.poll(WAIT)
            peer.send_signal(signal.SIGKILL)
        self.waiter.wait(WAIT)
        self.parts = [there.qp, there.cq, there.receive_cq, there.connector, there.region]


def world(state: str) -> list[Any]:
    """Make the objects, and bring them into a state. The first two hold all others."""
    here, there = End("127.0.0.1"), End("127.0.0.1")
    _connect(here, there, state)
    if state in ("busy", "disconnected", "closed", "adapter", "forked", "dead"):
        for end in (here, there):
            end.qp.receive(end.region.sge(64, 64), end)
            end.qp.bind(end.region, end.window, end.region.address, 64, flags=3)
            end.qp.send(end.sge, end)
            end.qp.send(end.private.sge(), "long")
            end.qp.write(end.sge, 4096, 4711)
    met, talk, first = Met(here.adapter, there.adapter, there.array), Talk(), First()
    more: list[Any] = [*talk.objects(), shmnd.Provider(), here.adapter.query()]
    if state == "dead":
        killed = Killed()
        more += [*vars(killed).values(), *killed.parts]
    if state == "disconnected":
        here.connector.disconnect()
    taken = [result for end in (here, there) for result in end.cq.get_results(2)]
    carried = None
    if state != "adapter":
        carried = connection_messages.Messages(here.adapter, 4096, 2)
        if state == "fresh":
            carried.post(here.sharing if here.sharing.context else here.qp, here.cq)
            carried.agree(2, 4096)
    for group in (met, talk, first):
        group.enter(state)
    if state == "closed":
        for closing in (here.qp, here.cq, here.srq, here.region, here.private, here.window):
            closing.close()
    if state == "adapter":
        here.adapter.close()
    found = [
        thing
        for end in (here, there)
        for thing in (*vars(end).values(), *reached(end))
        if type(thing).__module__.startswith("shmnd")
    ]
    found += [*taken, carried, *more, *vars(met).values(), *first.objects()]
    here.others = [found, met, talk, first]  # kept
    return found


def _connect(here: End, there: End, state: str) -> None:
    there.listener.bind(HERE)
    there.listener.listen()
    if state == "fresh":
        return
    asked = there.listener.get_connection_request(there.connector)
    connecting = here.connector.connect(here.qp, there.listener.get_local_address())
    asked.result(WAIT)
    if state != "connecting":
        accepted = there.connector.accept(there.qp)
        connecting.result(WAIT)
        here.connector.complete_connect().result(WAIT)
        accepted.result(WAIT)


def missing(objects: list[Any]) -> set[str]:
    """The public classes of which there is no object."""
    made = {type(thing) for thing in objects}
    public = {
        f"{module.__name__}.{name}": kind
        for module in (shmnd, nd)
        for name in module.__all__
        if isinstance(kind := getattr(module, name), type)
        and not issubclass(kind, BaseException | int)
    }
    named = {kind.__name__ for kind in made}
    return {name for name, kind in public.items() if kind not in made} | {*EXTENSIONS} - named


def reached(end: End) -> Iterator[Any]:
    """Compiled objects behind those of the interface."""
    seen: set[int] = set()
    todo: list[tuple[Any, int]] = [(thing, 0) for thing in vars(end).values()]
    while todo:
        thing, depth = todo.pop()
        if id(thing) in seen or depth > 5:
            continue
        seen.add(id(thing))
        if type(thing).__module__.startswith(COMPILED):
            yield thing
        if isinstance(thing, list | tuple | dict):
            items = thing.values() if isinstance(thing, dict) else thing
            todo += [(item, depth + 1) for item in items]
        elif type(thing).__module__.startswith("shmnd."):
            for name in dir(thing):
                if not name.startswith("__"):
                    with contextlib.suppress(Exception):
                        todo.append((getattr(thing, name), depth + 1))
