# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour: each a call that cannot work. What they say is in `mistakes.txt`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import shmnd
from shmnd import AdapterFlag, CqNotify, MrFlag, OpFlag, Overlapped, Sge

untyped: Any = shmnd
"""For calls whose arguments a type checker refuses."""

Ends = SimpleNamespace
HERE = ("127.0.0.1", 0)


def ends_of(adapter: shmnd.Adapter) -> Ends:
    """An object of each kind, and some of another adapter's."""
    e = Ends(adapter=adapter)
    e.cq, e.small_cq = adapter.create_completion_queue(16), adapter.create_completion_queue(1)
    e.srq = adapter.create_shared_receive_queue(2)
    e.qp = adapter.create_queue_pair(e.cq, e.cq, receive_depth=2, inline_size=16)
    e.srq_qp = adapter.create_queue_pair_with_srq(e.cq, e.cq, e.srq)
    e.region, e.empty = adapter.create_memory_region(), adapter.create_memory_region()
    e.memory = adapter.allocate(64)
    e.region.register(e.memory, MrFlag.ALLOW_LOCAL_WRITE).result(5)
    e.window = adapter.create_memory_window()
    e.connector, e.listener = adapter.create_connector(), adapter.create_listener()
    e.listening = adapter.create_listener()
    e.listening.bind(HERE)
    e.listening.listen()
    e.file = adapter.create_overlapped_file()
    e.closed_cq, e.closed_file = (
        adapter.create_completion_queue(4),
        adapter.create_overlapped_file(),
    )
    e.closed_listener = adapter.create_listener()
    e.closed_region = adapter.create_memory_region()
    e.closed_region.register(e.memory).result(5)
    e.closed_qp = adapter.create_queue_pair(e.cq, e.cq)
    e.closed_srq = adapter.create_shared_receive_queue(2)
    e.closed_window, e.closed_connector = (
        adapter.create_memory_window(),
        adapter.create_connector(),
    )
    e.closed_adapter = shmnd.open_adapter()
    e.orphan = e.closed_adapter.create_connector()
    e.gone = _of_an_adapter(e.closed_adapter)
    for each in [value for name, value in vars(e).items() if name.startswith("closed_")]:
        each.close()
    e.sge = e.region.sge()
    return e


def _of_an_adapter(adapter: shmnd.Adapter) -> Ends:
    """Objects that their adapter closes."""
    gone = Ends(cq=adapter.create_completion_queue(4), srq=adapter.create_shared_receive_queue(2))
    gone.qp = adapter.create_queue_pair(gone.cq, gone.cq)
    gone.region, gone.window = adapter.create_memory_region(), adapter.create_memory_window()
    gone.region.register(bytearray(8)).result(5)
    gone.file = adapter.create_overlapped_file()
    return gone


def _full(e: Ends) -> None:
    for _ in range(3):
        e.qp.receive(None)


def _bound_twice(e: Ends) -> None:
    e.listener.bind(HERE)
    e.listener.bind(HERE)


def _connector_bound_twice(e: Ends) -> None:
    e.connector.bind(HERE)
    e.connector.bind(HERE)


def _registered_twice(e: Ends) -> None:
    e.region.register(bytearray(8))


Call = Callable[[Ends], Any]
MISTAKES: dict[str, Call] = {
    # adapters
    "host by name": lambda e: shmnd.open_adapter("myhost"),
    "host of others": lambda e: shmnd.open_adapter("8.8.8.8"),
    "host as a tuple": lambda e: shmnd.open_adapter(("127.0.0.1", 5)),
    "host as bytes": lambda e: shmnd.open_adapter(b"127.0.0.1"),
    "host as a number": lambda e: shmnd.open_adapter(127),
    "namespace with a slash": lambda e: shmnd.open_adapter(namespace="a/b"),
    "namespace as a number": lambda e: shmnd.open_adapter(namespace=1),
    "empty namespace": lambda e: shmnd.open_adapter(namespace=""),
    "no time to wait": lambda e: shmnd.open_adapter(rnr_timeout=0),
    "negative time to wait": lambda e: shmnd.open_adapter(rnr_timeout=-1),
    "time to wait as a text": lambda e: shmnd.open_adapter(rnr_timeout="2"),
    "group of a float": lambda e: shmnd.open_adapter(group=1.5),
    "no group": lambda e: shmnd.open_adapter(group="no such group"),
    "information for a text": lambda e: e.adapter.query_into("buffer"),
    "information for bytes": lambda e: e.adapter.query_into(bytes(96)),
    "unknown adapter": lambda e: shmnd.Provider().open_adapter(7),
    "address to resolve": lambda e: shmnd.Provider().resolve_address("8.8.8.8"),
    # memory
    "allocate nothing": lambda e: e.adapter.allocate(0),
    "allocate less": lambda e: e.adapter.allocate(-1),
    "allocate a float": lambda e: e.adapter.allocate(1e6),
    "allocate a text": lambda e: e.adapter.allocate("4096"),
    "allocate beyond all": lambda e: e.adapter.allocate(1 << 60),
    "too few bytes for a slice": lambda e: e.memory.__setitem__(slice(5), b"hell"),
    "too many bytes for a slice": lambda e: e.memory.__setitem__(slice(5), b"hello you"),
    "one byte for a slice": lambda e: e.memory.__setitem__(slice(5), b"7"),
    "two bytes for one": lambda e: e.memory.__setitem__(3, b"ab"),
    "a text for a slice": lambda e: e.memory.__setitem__(slice(5), "hello"),
    "register nothing": lambda e: e.empty.register(None),
    "register a number": lambda e: e.empty.register(4096),
    "register a text": lambda e: e.empty.register("text"),
    "register a list": lambda e: e.empty.register([1, 2, 3]),
    "register no bytes": lambda e: e.empty.register(b""),
    "register bytes for writing": lambda e: e.empty.register(b"12345678", MrFlag.ALLOW_LOCAL_WRITE),
    "register every second element": lambda e: e.empty.register(np.zeros(8)[::2]),
    "register a bad address": lambda e: e.empty.register((4096, 64)),
    "register a triple": lambda e: e.empty.register((1, 2, 3)),
    "register twice": _registered_twice,
    "register with flags of requests": lambda e: e.empty.register(bytearray(8), OpFlag.INLINE),
    "register with a text for flags": lambda e: e.empty.register(bytearray(8), "write"),
    "register with unknown flags": lambda e: e.empty.register(bytearray(8), 0x100),
    "token before registering": lambda e: e.empty.local_token,
    "remote token before registering": lambda e: e.empty.remote_token,
    "address before registering": lambda e: e.empty.address,
    "length before registering": lambda e: e.empty.length,
    "sge before registering": lambda e: e.empty.sge(),
    "deregister before registering": lambda e: e.empty.deregister(),
    "token of a closed region": lambda e: e.closed_region.local_token,
    "sge of a closed region": lambda e: e.closed_region.sge(),
    "deregister a closed region": lambda e: e.closed_region.deregister(),
    "sge beyond the end": lambda e: e.region.sge(65),
    "sge too long": lambda e: e.region.sge(0, 65),
    "sge too long from an offset": lambda e: e.region.sge(60, 5),
    "sge before the beginning": lambda e: e.region.sge(-1),
    "sge of negative length": lambda e: e.region.sge(0, -1),
    "sge at a float": lambda e: e.region.sge(1.5),
    "sge at a text": lambda e: e.region.sge("0"),
    "sge of a text's length": lambda e: e.region.sge(0, "5"),
    "sge by hand of a text": lambda e: Sge("text", 4, 1),
    "sge by hand without a token": lambda e: Sge(bytearray(8), 8, None),
    "sge by hand of negative length": lambda e: Sge(4096, -1, 1),
    "sge by hand at a negative address": lambda e: Sge(-1, 8, 1),
    "sge by hand of a huge token": lambda e: Sge(4096, 8, 1 << 32),
    # queues
    "queue of no depth": lambda e: e.adapter.create_completion_queue(0),
    "queue of a float's depth": lambda e: e.adapter.create_completion_queue(16.0),
    "queue of a text's depth": lambda e: e.adapter.create_completion_queue("16"),
    "queue too deep": lambda e: e.adapter.create_completion_queue(1 << 20),
    "queue with a path for a file": lambda e: e.adapter.create_completion_queue(
        4, overlapped_file="f"
    ),
    "queue with a closed file": lambda e: e.adapter.create_completion_queue(
        4, overlapped_file=e.closed_file
    ),
    "shared queue of a negative depth": lambda e: e.adapter.create_shared_receive_queue(-1),
    "shared queue of many elements": lambda e: e.adapter.create_shared_receive_queue(4, 17),
    "results of a text": lambda e: e.cq.get_results("all"),
    "fewer than no results": lambda e: e.cq.get_results(-1),
    "results of a float": lambda e: e.cq.get_results(1.5),
    "wait for a text": lambda e: e.cq.wait(64, "1"),
    "wait less than nothing": lambda e: e.cq.wait(64, -1),
    "wait for one, less than nothing": lambda e: e.cq.wait_one(-0.5),
    "wait for one in vain": lambda e: e.cq.wait_one(0),
    "results of a closed queue": lambda e: e.closed_cq.get_results(),
    "wait at a closed queue": lambda e: e.closed_cq.wait(),
    "wait for one at a closed queue": lambda e: e.closed_cq.wait_one(),
    "notify of a closed queue": lambda e: e.closed_cq.notify(),
    "descriptor of a closed queue": lambda e: e.closed_cq.fileno(),
    "resize a closed queue": lambda e: e.closed_cq.resize(8),
    "spin for less than nothing": lambda e: setattr(e.cq, "spin", -1),
    "spin for a text": lambda e: setattr(e.cq, "spin", "50e-6"),
    "spin for no number": lambda e: setattr(e.cq, "spin", float("nan")),
    "queue with a group of a text": lambda e: e.adapter.create_completion_queue(4, group="0"),
    "queue with a negative mask": lambda e: e.adapter.create_completion_queue(4, affinity=-1),
    "shared queue with a large group": lambda e: e.adapter.create_shared_receive_queue(
        4, group=1 << 16
    ),
    "shared queue with a large mask": lambda e: e.adapter.create_shared_receive_queue(
        4, affinity=1 << 64
    ),
    "receive by a closed shared queue": lambda e: e.closed_srq.receive(None),
    "modify a closed shared queue": lambda e: e.closed_srq.modify(4),
    "notify of an unknown type": lambda e: e.cq.notify(7),
    "notify of a text": lambda e: e.cq.notify("any"),
    "resize to nothing": lambda e: e.cq.resize(0),
    "poll a closed file": lambda e: e.closed_file.poll(),
    "poll fewer than none": lambda e: e.file.poll(-1),
    # queue pairs
    "pair without queues": lambda e: e.adapter.create_queue_pair(None, None),
    "pair with an adapter for a queue": lambda e: e.adapter.create_queue_pair(e.adapter, e.cq),
    "pair with a shared queue for a queue": lambda e: e.adapter.create_queue_pair(e.cq, e.srq),
    "pair with a closed queue": lambda e: e.adapter.create_queue_pair(e.closed_cq, e.cq),
    "pair with a queue of others": lambda e: e.adapter.create_queue_pair(e.other.cq, e.cq),
    "pair too deep": lambda e: e.adapter.create_queue_pair(e.cq, e.cq, receive_depth=1 << 20),
    "pair of negative depth": lambda e: e.adapter.create_queue_pair(e.cq, e.cq, initiator_depth=-1),
    "pair with much inline": lambda e: e.adapter.create_queue_pair(e.cq, e.cq, inline_size=4096),
    "pair with many elements": lambda e: e.adapter.create_queue_pair(
        e.cq, e.cq, max_receive_sge=17
    ),
    "pair with no shared queue": lambda e: e.adapter.create_queue_pair_with_srq(e.cq, e.cq, None),
    "send bytes": lambda e: e.qp.send(b"hello"),
    "send a text": lambda e: e.qp.send("hello"),
    "send an array": lambda e: e.qp.send(e.memory),
    "send a region": lambda e: e.qp.send(e.region),
    "send bytes inline": lambda e: e.qp.send(b"hello", flags=shmnd.OpFlag.INLINE),
    "send a list of bytes": lambda e: e.qp.send([b"hello"]),
    "send before connecting": lambda e: e.qp.send(e.sge),
    "read before connecting": lambda e: e.qp.read(e.sge, 4096, 1),
    "write before connecting": lambda e: e.qp.write(e.sge, 4096, 1),
    "send by a closed pair": lambda e: e.closed_qp.send(e.sge),
    "receive by a closed pair": lambda e: e.closed_qp.receive(e.sge),
    "read by a closed pair": lambda e: e.closed_qp.read(e.sge, 4096, 1),
    "view before connecting": lambda e: e.qp.view(4096, 1, 8),
    "bind a closed window": lambda e: e.qp.bind(e.region, e.closed_window, e.region.address, 8),
    "view by a closed pair": lambda e: e.closed_qp.view(4096, 1, 8),
    "connect a closed pair": lambda e: e.connector.connect(e.closed_qp, ("127.0.0.1", 5)),
    "send flags as a context": lambda e: e.qp.send(e.sge, OpFlag.INLINE),
    "send flags of memory as a context": lambda e: e.qp.send(e.sge, MrFlag.ALLOW_LOCAL_WRITE),
    "send with flags of memory": lambda e: e.qp.send(e.sge, flags=MrFlag.ALLOW_LOCAL_WRITE),
    "send with flags of adapters": lambda e: e.qp.send(
        e.sge, flags=AdapterFlag.CQ_RESIZE_SUPPORTED
    ),
    "send with a kind of notify": lambda e: e.qp.send(e.sge, flags=CqNotify.ANY),
    "send with a text for flags": lambda e: e.qp.send(e.sge, flags="INLINE"),
    "send with a truth for flags": lambda e: e.qp.send(e.sge, flags=True),
    "send with no flags": lambda e: e.qp.send(e.sge, flags=None),
    "send with flags of a bind": lambda e: e.qp.send(e.sge, flags=OpFlag.ALLOW_READ),
    "send with unknown flags": lambda e: e.qp.send(e.sge, flags=0x40),
    "read with inline": lambda e: e.qp.read(e.sge, 4096, 1, flags=OpFlag.INLINE),
    "write with solicit": lambda e: e.qp.write(e.sge, 4096, 1, flags=OpFlag.SEND_AND_SOLICIT_EVENT),
    "read flags as a context": lambda e: e.qp.read(e.sge, 4096, 1, OpFlag.READ_FENCE),
    "write flags as a context": lambda e: e.qp.write(e.sge, 4096, 1, OpFlag.INLINE),
    "send many elements": lambda e: e.qp.send([e.sge] * 5),
    "send more elements": lambda e: e.qp.send([e.sge] * 17),
    "receive many elements": lambda e: e.qp.receive([e.sge] * 5),
    "send much inline": lambda e: e.qp.send(Sge(bytes(17), 17, 0), flags=OpFlag.INLINE),
    "receive bytes": lambda e: e.qp.receive(bytearray(8)),
    "receive a number": lambda e: e.qp.receive(64),
    "receive too often": _full,
    "receive with a shared queue": lambda e: e.srq_qp.receive(None),
    "receive flags": lambda e: e.qp.receive(e.sge, flags=OpFlag.INLINE),
    "receive too often at a shared queue": lambda e: [e.srq.receive(None) for _ in range(3)],
    "receive bytes at a shared queue": lambda e: e.srq.receive(b"x"),
    "read at a text": lambda e: e.qp.read(e.sge, "4096", 1),
    "read with a text for a token": lambda e: e.qp.read(e.sge, 4096, "1"),
    "bind without a window": lambda e: e.qp.bind(e.region, None, e.region.address, 8),
    "bind without a region": lambda e: e.qp.bind(None, e.window, 4096, 8),
    "bind a buffer": lambda e: e.qp.bind(e.memory, e.window, 4096, 8),
    "bind beyond the region": lambda e: e.qp.bind(e.region, e.window, e.region.address, 65),
    "bind an unregistered region": lambda e: e.qp.bind(e.empty, e.window, 4096, 8),
    "bind before connecting": lambda e: e.qp.bind(e.region, e.window, e.region.address, 8),
    "bind with unknown flags": lambda e: e.qp.bind(
        e.region, e.window, e.region.address, 8, flags=0x40
    ),
    "invalidate nothing": lambda e: e.qp.invalidate(None),
    "invalidate a region": lambda e: e.qp.invalidate(e.region),
    # connections
    "connect without a pair": lambda e: e.connector.connect(None, ("127.0.0.1", 5)),
    "connect with a queue": lambda e: e.connector.connect(e.cq, ("127.0.0.1", 5)),
    "connect with a pair of others": lambda e: e.connector.connect(e.other.qp, ("127.0.0.1", 5)),
    "connect to a text": lambda e: e.connector.connect(e.qp, "127.0.0.1:5"),
    "connect to a host": lambda e: e.connector.connect(e.qp, ("127.0.0.1",)),
    "connect to a port's text": lambda e: e.connector.connect(e.qp, ("127.0.0.1", "5")),
    "connect to a large port": lambda e: e.connector.connect(e.qp, ("127.0.0.1", 70000)),
    "connect to a name": lambda e: e.connector.connect(e.qp, ("example.org", 5)),
    "connect to another host": lambda e: e.connector.connect(e.qp, ("8.8.8.8", 5)),
    "connect to all": lambda e: e.connector.connect(e.qp, ("0.0.0.0", 5)),
    "connect to nothing": lambda e: e.connector.connect(e.qp, ("127.0.0.1", 1)).result(5),
    "connect with much private data": lambda e: e.connector.connect(
        e.qp, ("127.0.0.1", 5), private_data=bytes(600)
    ),
    "connect with a text": lambda e: e.connector.connect(
        e.qp, ("127.0.0.1", 5), private_data="text"
    ),
    "connect with negative limits": lambda e: e.connector.connect(e.qp, ("127.0.0.1", 5), -1),
    "complete by a closed connector": lambda e: e.closed_connector.complete_connect(),
    "complete without connecting": lambda e: e.connector.complete_connect(),
    "accept without a request": lambda e: e.connector.accept(e.qp),
    "reject without a request": lambda e: e.connector.reject(),
    "disconnect without a connection": lambda e: e.connector.disconnect(),
    "watch for the end of nothing": lambda e: e.connector.notify_disconnect(),
    "private data without a peer": lambda e: e.connector.get_private_data(),
    "address without a peer": lambda e: e.connector.get_peer_address(),
    "limits without a peer": lambda e: e.connector.get_read_limits(),
    "bind a connector twice": _connector_bound_twice,
    "listen before binding": lambda e: e.listener.listen(),
    "listen twice": lambda e: e.listening.listen(),
    "bind a listener twice": _bound_twice,
    "bind to another host": lambda e: e.listener.bind(("8.8.8.8", 0)),
    "bind to a port alone": lambda e: e.listener.bind(54321),
    "bind to a port in use": lambda e: e.listener.bind(e.listening.get_local_address()),
    "address before listening": lambda e: e.listener.get_local_address(),
    "request before listening": lambda e: e.listener.get_connection_request(e.connector),
    "request without a connector": lambda e: e.listening.get_connection_request(None),
    "request of a closed listener": lambda e: e.closed_listener.get_connection_request(e.connector),
    "result of a number": lambda e: e.connector.get_overlapped_result(3),
    "result in vain": lambda e: e.cq.notify().result(0),
    "result less than nothing": lambda e: e.cq.notify().result(-1),
    # messages
    "shortcut to nothing": lambda e: shmnd.connect(("127.0.0.1", 1)),
    "shortcut to a text": lambda e: shmnd.connect("127.0.0.1:1"),
    "shortcut without memory": lambda e: shmnd.connect(("127.0.0.1", 1), nbytes=0),
    "shortcut without depth": lambda e: shmnd.listen(depth=0),
    "shortcut with a negative time": lambda e: shmnd.connect(("127.0.0.1", 1), timeout=-1),
    "shortcut to a port's text": lambda e: shmnd.connect(("127.0.0.1", "1")),
    "shortcut to another host": lambda e: shmnd.connect(("8.8.8.8", 5)),
    "shortcut in a bad namespace": lambda e: shmnd.connect(("127.0.0.1", 1), namespace="a/b"),
    "shortcut in no group": lambda e: shmnd.connect(("127.0.0.1", 1), group=1.5),
    "listen in a bad namespace": lambda e: shmnd.listen(namespace="a/b"),
    "listen at a port in use": lambda e: shmnd.listen(e.listening.get_local_address()),
    "open in a bad namespace": lambda e: shmnd.Provider(namespace="a/b").open_adapter(
        shmnd.Provider().resolve_address("127.0.0.1")
    ),
    "use a closed adapter": lambda e: e.closed_adapter.query(),
    "bind with a closed adapter": lambda e: e.orphan.bind(HERE),
    "listen at a port": lambda e: shmnd.listen(54321),
    "listen at another host": lambda e: shmnd.listen(("8.8.8.8", 0)),
    "send a text as a message": lambda e: e.near.send_bytes("hello"),
    "send a number as a message": lambda e: e.near.send_bytes(5),
    "send every second byte": lambda e: e.near.send_bytes(memoryview(b"12345678")[::2]),
    "receive in vain": lambda e: e.near.recv_bytes(0),
    "receive in a negative time": lambda e: e.near.recv_bytes(-1),
    "receive into bytes": lambda e: e.near.recv_into(b"12345678"),
    "receive into a list": lambda e: e.near.recv_into([1, 2]),
    "copy a pair": lambda e: __import__("copy").copy(e.qp),
    "pickle an adapter": lambda e: __import__("pickle").dumps(e.adapter),
    # objects that end with their adapter, and objects without one
    "send after the end of the adapter": lambda e: e.gone.qp.send(None),
    "receive after the end of the adapter": lambda e: e.gone.qp.receive(None),
    "view after the end of the adapter": lambda e: e.gone.qp.view(0, 0, 1),
    "bind after the end of the adapter": lambda e: e.gone.qp.bind(
        e.gone.region, e.gone.window, 0, 1
    ),
    "shared receive after the end of the adapter": lambda e: e.gone.srq.receive(None),
    "element after the end of the adapter": lambda e: e.gone.region.sge(),
    "descriptor after the end of the adapter": lambda e: e.gone.cq.fileno(),
    "file after the end of the adapter": lambda e: e.gone.file.fileno(),
    "operations after the end of the adapter": lambda e: e.gone.file.poll(),
    "region without an adapter": lambda e: untyped.MemoryRegion(),
    "connection without a peer": lambda e: untyped.Connection(),
    "operation that no call began": lambda e: Overlapped.__new__(Overlapped).result(),
}
