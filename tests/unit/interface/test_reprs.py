# SPDX-License-Identifier: Apache-2.0
"""Every object says what it is: depth, length, rights, state and peer."""

import os
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from shmnd import MrFlag, OpFlag, nd1
from shmnd.directory import Directory

AT = r"127\.0\.0\.1:\d+"
HERE = f"{AT} in process {os.getpid()}"
RIGHTS = r"ALLOW_REMOTE_READ\|ALLOW_REMOTE_WRITE"


def has_repr(obj: object, text: str) -> None:
    assert re.fullmatch(text, repr(obj)), repr(obj)


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as adapter:
        yield adapter


def connected() -> tuple[shmnd.Server, shmnd.Connection, shmnd.Connection]:
    server = shmnd.listen(depth=8, nbytes=1 << 16)
    made: list[shmnd.Connection] = []
    asking = threading.Thread(
        target=lambda: made.append(shmnd.connect(server.address, depth=8, nbytes=1 << 16))
    )
    asking.start()
    near = server.accept(10)
    asking.join()
    return server, near, made[0]


def test_adapters_and_providers(adapter: shmnd.Adapter) -> None:
    has_repr(shmnd.Provider(), "<Provider namespace=None group=None>")
    with shmnd.open_adapter(namespace="a.b") as other:
        has_repr(
            other,
            rf"<Adapter 127\.0\.0\.1 open in process {os.getpid()}, namespace 'a\.b', "
            "0 queue pairs connected>",
        )
    has_repr(other, r"<Adapter 127\.0\.0\.1 closed>")
    file = adapter.create_overlapped_file()
    region = adapter.create_memory_region(overlapped_file=file)
    done = region.register(bytearray(8))
    has_repr(file, "<OverlappedFile open, 1 operations to poll>")
    has_repr(done, "<Overlapped MemoryRegion.register SUCCESS>")
    file.close()
    has_repr(file, "<OverlappedFile closed>")


def test_memory(adapter: shmnd.Adapter) -> None:
    region = adapter.create_memory_region()
    has_repr(region, "<MemoryRegion without a buffer>")
    region.register(bytes(8)).result()
    has_repr(region, "<MemoryRegion registered: 8 bytes at 0x.*, token 0x.*, a source only>")
    region.deregister().result()
    region.register(
        adapter.allocate(64), MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
    ).result()
    has_repr(
        region,
        rf"<MemoryRegion registered: 64 bytes at 0x[0-9a-f]+, token {region.local_token:#x}, "
        rf"{RIGHTS}>",
    )
    has_repr(region.sge(0, 4), rf"Sge\({region.address:#x}, 4, {region.local_token:#x}\)")
    region.close()
    has_repr(region, "<MemoryRegion closed>")
    window = adapter.create_memory_window()
    has_repr(window, "<MemoryWindow not bound>")
    window.close()
    has_repr(window, "<MemoryWindow closed>")


def test_queues(adapter: shmnd.Adapter) -> None:
    cq = adapter.create_completion_queue(8)
    srq = adapter.create_shared_receive_queue(4, notify_threshold=2)
    own = adapter.create_queue_pair(cq, cq, context="mine", receive_depth=3, initiator_depth=5)
    shared = adapter.create_queue_pair_with_srq(cq, cq, srq)
    own.receive(None)
    srq.receive(None)
    told = cq.notify()
    has_repr(cq, "<CompletionQueue 0 of 8 results, 0 queue pairs connected, 1 Notify pending>")
    has_repr(told, "<Overlapped CompletionQueue.notify PENDING, waits for a completion>")
    has_repr(srq, "<SharedReceiveQueue 1 of 4 receives, 1 queue pairs, threshold 2>")
    has_repr(
        own,
        "<QueuePair not connected, 1 of 3 receives, 0 of 5 requests outstanding, context='mine'>",
    )
    has_repr(
        shared,
        "<QueuePair not connected, receives of <SharedReceiveQueue .*>, "
        "0 of 64 requests outstanding>",
    )
    own.flush()
    told.result(10)
    has_repr(cq, "<CompletionQueue 1 of 8 results, 0 queue pairs connected>")
    (result,) = cq.get_results()
    has_repr(result, "<Result RECEIVE CANCELED queue pair 'mine' context=None: .*>")
    bare = type(result).__new__(type(result))
    has_repr(bare, "<Result of no request>")
    with pytest.raises(shmnd.NdError, match="no request ended with it"):
        bare.raise_if_failed()
    never = cq.notify()
    cq.close()
    srq.close()
    has_repr(never, "<Overlapped CompletionQueue.notify CANCELED: its object was released>")
    has_repr(cq, "<CompletionQueue closed>")
    has_repr(srq, "<SharedReceiveQueue closed>")


def test_connectors_and_listeners(adapter: shmnd.Adapter) -> None:
    listener, connector = adapter.create_listener(), adapter.create_connector()
    has_repr(listener, "<Listener not bound>")
    has_repr(connector, "<Connector new>")
    listener.bind(("127.0.0.1", 0))
    has_repr(listener, f"<Listener bound to {AT}>")
    connector.bind(("127.0.0.1", 0))
    has_repr(connector, f"<Connector bound to {AT}>")
    listener.listen()
    waits = adapter.create_connector()
    listener.get_connection_request(waits)
    has_repr(listener, f"<Listener listening at {AT}, 1 connectors wait for a request>")
    has_repr(waits, "<Connector waiting for a request>")
    listener.close()
    has_repr(listener, "<Listener closed>")


def test_a_connection_and_its_objects() -> None:
    server, near, far = connected()
    has_repr(server, rf"<Server listening at {AT}, connections of 65536 bytes and depth 8>")
    has_repr(
        near,
        f"<Connection connected {AT} to {AT}, 8 pieces of 8192 bytes a side, 0 messages unread>",
    )
    has_repr(
        near.qp,
        rf"<QueuePair connected to {HERE}, 11 of 19 receives, 0 of 20 requests outstanding>",
    )
    has_repr(near.cq, "<CompletionQueue 0 of 16 results, 1 queue pairs connected>")
    has_repr(near.connector, f"<Connector connected, {AT} to {AT}>")
    has_repr(near.adapter, ".*, 1 queue pairs connected>")
    window = near.adapter.create_memory_window()
    near.qp.bind(near.region, window, near.region.address + 8, 16, flags=OpFlag.ALLOW_READ)
    has_repr(
        window,
        rf"<MemoryWindow bound: 16 bytes at {near.region.address + 8:#x}, "
        rf"token {window.remote_token:#x}, ALLOW_READ, to {re.escape(repr(near.qp))}>",
    )
    has_repr(
        near.region, f"<MemoryRegion registered: 65536 bytes at .*, {RIGHTS}, 1 windows bound>"
    )
    far.close()
    assert near.poll(10)
    has_repr(near, "<Connection disconnected .*>")
    has_repr(near.qp, f"<QueuePair no longer connected, {HERE}, .*>")
    has_repr(near.connector, f"<Connector disconnected by the peer or an error, {AT} to {AT}>")
    has_repr(window, "<MemoryWindow not bound>")
    near.close()
    server.close()
    has_repr(near, "<Connection closed .*>")
    has_repr(near.qp, "<QueuePair closed, .*>")
    has_repr(near.connector, "<Connector closed>")
    has_repr(server, rf"<Server closed, was at {AT}, .*>")


def test_names(adapter: shmnd.Adapter) -> None:
    directory = Directory(adapter)
    has_repr(directory, "<Directory of <Adapter .*>>")
    with directory.announce("kind", "name") as announced, directory.watch("kind", "name") as watch:
        has_repr(announced, "<Announcement kind 'name' announced>")
        assert watch.entries
        has_repr(watch, "<Watch of kind 'name': 1 records, 1 changes to take>")
    has_repr(announced, "<Announcement kind 'name' retracted>")


def test_version_1() -> None:
    has_repr(nd1.Provider(), "<nd1 Provider>")
    with nd1.Provider().open_adapter("127.0.0.1") as adapter:
        has_repr(adapter, "<nd1 <Adapter .* 0 queue pairs connected>>")
        cq = adapter.create_completion_queue(4)
        has_repr(cq, "<CompletionQueue 0 of 4 results, 0 queue pairs connected>")
        connector = adapter.create_connector()
        has_repr(connector, "<Connector new>")
        endpoint = connector.create_endpoint(cq, cq, 2, 3, 1, 1)
        shown = "<Endpoint not connected, 0 of 2 receives, 0 of 3 requests outstanding>"
        has_repr(endpoint, shown)
        has_repr(connector, f"<Connector new> with {shown}")
        has_repr(adapter.listen(), f"<Listen protocol 6: <Listener listening at {AT}>>")
        has_repr(adapter.create_memory_window(), "<MemoryWindow not bound>")
        with adapter.get_file_handle() as handle:
            has_repr(handle, "<FileHandle to <OverlappedFile open, 0 operations to poll>>")
        has_repr(handle, "<FileHandle closed>")
        has_repr(nd1.Result(), "<Result PENDING 0 bytes>")
        has_repr(nd1.Result.__new__(nd1.Result), "<Result PENDING 0 bytes>")
        has_repr(nd1.Sge(b"abc", 3, None), r"Sge\(0x[0-9a-f]+, 3, inline\)")
        has_repr(nd1.MwDescriptor(4096, 8, 5), r"MwDescriptor\(0x1000, 8, 0x5\)")


def test_every_public_object_has_one_of_its_own() -> None:
    def plain(kind: Any) -> bool:
        return kind.__repr__ is object.__repr__

    kinds = [
        getattr(module, name)
        for module in (shmnd, nd1)
        for name in module.__all__
        if isinstance(getattr(module, name), type)
    ]
    assert len(kinds) > 30
    assert [kind for kind in kinds if plain(kind)] == []


def test_after_a_fork_the_objects_of_the_parent_still_have_a_repr() -> None:
    server, near, far = connected()
    objects = [server, near, far, near.adapter, near.qp, near.cq, near.region, near.connector]
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if all(map(repr, objects)) else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    for each in (near, far, server):
        each.close()
