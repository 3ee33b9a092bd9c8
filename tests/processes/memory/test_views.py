# SPDX-License-Identifier: Apache-2.0
"""Memory that peers may only read, and views of it: checks, lifetimes, deaths, hostile words."""

import contextlib
import gc
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmnd
from processes.kit import PATIENCE, Child, Talk, listening, refused
from shmnd import MrFlag, NdError, OpFlag, Status
from shmnd.ring import Segment

READ = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ


class Ends:
    """Two adapters of this process, connected, and memory of the second that the first views."""

    def __init__(self, stack: contextlib.ExitStack, nbytes: int = 4096, **options: Any) -> None:
        self.mine, self.theirs = (stack.enter_context(shmnd.open_adapter()) for _ in range(2))
        self.memory = self.theirs.allocate(nbytes, **{"peers": "read"} | options)
        self.memory[:] = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
        self.region = self.theirs.create_memory_region()
        self.region.register(self.memory, READ).result(PATIENCE)
        self.here, self.there = self.pair((8, 8))

    def pair(self, limits: tuple[int, int]) -> tuple[Talk, Talk]:
        here, there = Talk(self.mine), Talk(self.theirs)
        with listening(self.theirs) as listener:
            request = listener.get_connection_request(there.connector)
            asked = here.connector.connect(here.qp, listener.get_local_address(), *limits)
            request.result(PATIENCE)
            accepted = there.connector.accept(there.qp, *limits)
            asked.result(PATIENCE)
            here.connector.complete_connect().result(PATIENCE)
            accepted.result(PATIENCE)
        return here, there

    def view(self, offset: int = 0, nbytes: int | None = None) -> memoryview:
        length = self.region.length - offset if nbytes is None else nbytes
        return self.here.qp.view(self.region.address + offset, self.region.remote_token, length)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with contextlib.ExitStack() as stack:
        made = Ends(stack)
        yield made
        vars(made).clear()  # pytest keeps the object itself for a while


def mappings() -> int:
    text = Path("/proc/self/maps").read_text()
    return sum("/memfd:shmnd-data" in line for line in text.splitlines())


def writable_mappings() -> int:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("/memfd:shmnd-data" in line and line.split()[1][1] == "w" for line in lines)


# -- what it shows, and to which processes --


@pytest.mark.parametrize("nbytes", [1, 64, 4096, 1 << 20, (1 << 20) + 5, 24 << 20])
def test_a_view_shows_the_memory_itself(nbytes: int) -> None:
    with contextlib.ExitStack() as stack:
        ends = Ends(stack, nbytes)
        view = ends.view()
        assert (view.readonly, view.nbytes, view.format, view.ndim) == (True, nbytes, "B", 1)
        assert view == ends.memory
        ends.memory[-1] = 99
        assert view[-1] == 99, "no copy"
        with pytest.raises(TypeError):
            view[0] = 1
        array = np.frombuffer(view, np.uint8)
        assert not array.flags.writeable
        assert (array == ends.memory).all()
        part = ends.view(nbytes // 2, 1)
        assert part.tobytes() == ends.memory[nbytes // 2 : nbytes // 2 + 1].tobytes()


def test_a_peer_maps_it_for_reading_only(ends: Ends) -> None:
    before = writable_mappings()
    big = ends.theirs.allocate(2 << 20, peers="read")
    region = ends.theirs.create_memory_region()
    region.register(big, READ).result(PATIENCE)
    ends.region.deregister().result(PATIENCE)
    ends.region = region
    view = ends.view()
    assert writable_mappings() == before + 1, "that of its owner"
    base = np.frombuffer(view, np.uint8).ctypes.data
    flags = [
        line.split()[1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if int(line.split("-")[0], 16) <= base < int(line.split()[0].split("-")[1], 16)
    ]
    assert flags == ["r--s"]


def test_a_view_is_checked_as_a_read_is(ends: Ends) -> None:
    address, token = ends.region.address, ends.region.remote_token
    qp = ends.here.qp
    for where, name, nbytes in (
        (address, token, 4097),
        (address - 1, token, 10),
        (address + 4096, token, 1),
        (address, token ^ 1 << 20, 10),
        (address, 0, 10),
        (address, 0xFFFFFFFF, 10),
        ((1 << 64) - 1, token, 2),
    ):
        refused(Status.ACCESS_VIOLATION, "QueuePair.view: ", lambda: qp.view(where, name, nbytes))  # noqa: B023
    ends.there.say(b"still connected")
    assert ends.here.hear() == b"still connected"
    for number, arguments in enumerate(((-1, token, 1), (address, -1, 1), (address, token, 0))):
        status = Status[f"INVALID_PARAMETER_{number + 1}"]
        refused(status, "QueuePair.view: ", lambda: qp.view(*arguments))  # noqa: B023
    refused(
        Status.INVALID_PARAMETER_1,
        "remote_address",
        lambda: qp.view("here", token, 1),  # type: ignore[arg-type]
    )


def test_a_view_takes_the_right_to_read(ends: Ends) -> None:
    ends.region.deregister().result(PATIENCE)
    ends.region.register(ends.memory, MrFlag.ALLOW_LOCAL_WRITE).result(PATIENCE)
    refused(Status.ACCESS_VIOLATION, "grants no Read", ends.view)


def test_a_window_opens_a_part_to_one_connection(ends: Ends) -> None:
    window = ends.theirs.create_memory_window()
    address = ends.region.address
    ends.there.qp.bind(ends.region, window, address + 100, 50, flags=OpFlag.ALLOW_READ)
    assert ends.here.qp.view(address + 100, window.remote_token, 50) == ends.memory[100:150]
    refused(
        Status.ACCESS_VIOLATION,
        "grants no Read",
        lambda: ends.here.qp.view(address + 100, window.remote_token, 51),
    )
    other, _ = ends.pair((8, 8))
    refused(
        Status.ACCESS_VIOLATION,
        "grants no Read",
        lambda: other.qp.view(address + 100, window.remote_token, 50),
    )
    ends.there.qp.invalidate(window)
    refused(
        Status.ACCESS_VIOLATION,
        "grants no Read",
        lambda: ends.here.qp.view(address + 100, window.remote_token, 50),
    )


def test_a_view_takes_a_connection_that_may_read(ends: Ends) -> None:
    address, token = ends.region.address, ends.region.remote_token
    silent, _ = ends.pair((0, 0))
    refused(Status.INVALID_DEVICE_REQUEST, "read limit", lambda: silent.qp.view(address, token, 10))
    fresh = Talk(ends.mine)
    refused(Status.CONNECTION_INVALID, "not connected", lambda: fresh.qp.view(address, token, 10))
    ends.here.connector.disconnect().result(PATIENCE)
    refused(Status.CONNECTION_INVALID, "QueuePair.view", ends.view)
    ends.here.qp.close()
    refused(Status.CONNECTION_INVALID, "closed", lambda: ends.here.qp.view(address, token, 10))


@pytest.mark.parametrize("kind", ["private", "write"])
def test_other_memory_can_be_read_and_not_viewed(kind: str, ends: Ends) -> None:
    memory: Any = bytearray(100) if kind == "private" else ends.theirs.allocate(100)
    region = ends.theirs.create_memory_region()
    region.register(memory, READ).result(PATIENCE)
    refused(
        Status.NOT_SUPPORTED,
        r'allocate\(nbytes, peers="read"\)',
        lambda: ends.here.qp.view(region.address, region.remote_token, 100),
    )


# -- what its owner can do with it --


def test_no_grant_to_write_is_given(ends: Ends) -> None:
    region = ends.theirs.create_memory_region()
    for flags in (MrFlag.ALLOW_REMOTE_WRITE, MrFlag.ALLOW_REMOTE_WRITE | READ):
        with pytest.raises(PermissionError, match=r"peers='read'") as caught:
            region.register(ends.memory, flags)
        assert caught.value.status is Status.ACCESS_VIOLATION
    window = ends.theirs.create_memory_window()
    refused(
        Status.ACCESS_VIOLATION,
        "ALLOW_WRITE on memory",
        lambda: ends.there.qp.bind(
            ends.region, window, ends.region.address, 10, flags=OpFlag.ALLOW_WRITE
        ),
    )


def test_peers_is_one_of_two_words(ends: Ends) -> None:
    for wrong in ("none", "", None, 1):
        refused(
            Status.INVALID_PARAMETER_2,
            "neither 'write' nor 'read'",
            lambda: ends.theirs.allocate(10, peers=wrong),  # type: ignore[arg-type]  # noqa: B023
        )


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("nbytes", [1, 511, 513, 4000, 65_536, 1_000_000])
def test_receives_into_it_are_carried_out_by_its_owner(nbytes: int, private: bool) -> None:
    """No peer can place a message there: the owner takes it out of the ring, or pulls it."""
    with contextlib.ExitStack() as stack:
        ends = Ends(stack, 1_000_000)
        data: Any = bytearray(nbytes) if private else ends.mine.allocate(nbytes)
        memoryview(data)[:] = random.Random(nbytes).randbytes(nbytes)
        source = ends.mine.create_memory_region()
        source.register(data, READ).result(PATIENCE)
        queue = ends.theirs.create_completion_queue(8), ends.mine.create_completion_queue(8)
        into = ends.theirs.create_queue_pair(queue[0], queue[0])
        out = ends.mine.create_queue_pair(queue[1], queue[1])
        with listening(ends.theirs) as listener:
            to, of = ends.mine.create_connector(), ends.theirs.create_connector()
            request = listener.get_connection_request(of)
            asked = to.connect(out, listener.get_local_address(), 8, 8)
            request.result(PATIENCE)
            accepted = of.accept(into, 8, 8)
            asked.result(PATIENCE)
            to.complete_connect().result(PATIENCE)
            accepted.result(PATIENCE)
        into.receive(ends.region.sge(), "in")
        out.send(source.sge(), "out")
        done: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(done) < 2:
            done += queue[0].get_results() + queue[1].get_results()
            assert time.monotonic() < deadline
        assert {result.status for result in done} == {Status.SUCCESS}
        assert ends.memory[:nbytes].tobytes() == bytes(data)
        into.read(ends.region.sge(0, nbytes), source.address, source.remote_token, "read")
        (read,) = queue[0].wait(1, PATIENCE)
        assert read.status is Status.SUCCESS


def test_pieces_of_both_kinds_keep_apart() -> None:
    with shmnd.open_adapter() as adapter:
        found = {}
        for peers in ("write", "read", "write", "read"):
            pieces = [adapter.allocate(100, peers=peers) for _ in range(20)]  # type: ignore[arg-type]
            for piece in pieces:
                assert not piece.any(), "zeros, also when it was used before"
                piece[:] = 7
                place = adapter._arena.locate(piece.ctypes.data, 100)
                assert place is not None
                assert place[2] == (peers == "read")
                found.setdefault(peers, set()).add(place[0])
        assert not found["read"] & found["write"]


# -- lifetimes --


def test_a_view_outlives_everything_else() -> None:
    with contextlib.ExitStack() as stack:
        ends = Ends(stack, 3 << 20)
        view = ends.view()
        kept = [view[5:10], np.frombuffer(view, np.uint8)[100:200], memoryview(view)]
        expected = ends.memory.tobytes()
        ends.region.deregister().result(PATIENCE)
        refused(Status.INVALID_DEVICE_STATE, "no buffer", ends.view)
        assert view == expected
        ends.memory[0] = 42
        assert view[0] == 42, "its contents are its owner's business"
        ends.here.qp.close()
        ends.mine.close()
        ends.theirs.close()
        del ends
    gc.collect()
    assert view[1:] == expected[1:]
    del view
    gc.collect()
    assert bytes(kept[0]) == expected[5:10]
    assert kept[1].tobytes() == expected[100:200]


def test_memory_is_unmapped_with_the_last_view() -> None:
    gc.collect()
    before = mappings()
    with contextlib.ExitStack() as stack:
        ends = Ends(stack, 3 << 20)
        views = [ends.view(n, 100) for n in range(10)]
        random.Random(7).shuffle(views)
        ends.region.deregister().result(PATIENCE)
        del ends.memory
        ends.region.close()
        ends.mine._engine.sync()
        ends.theirs.close()
        ends.mine.close()
        del ends
    gc.collect()
    assert mappings() == before + 1, "the viewer's"
    while views:
        assert len(bytes(views.pop())) == 100
        gc.collect()
    assert mappings() == before


OWNER = """
import numpy as np
from shmnd import MrFlag
adapter = shmnd.open_adapter()
memory = adapter.allocate(3 << 20, peers="read")
memory[:] = 5
region = adapter.create_memory_region()
region.register(memory, MrFlag.ALLOW_REMOTE_READ).result(20)
listener = listening(adapter)
say(listener.get_local_address()[1])
talk = Talk(adapter)
listener.get_connection_request(talk.connector).result(20)
talk.connector.accept(talk.qp, 8, 8).result(20)
talk.say(repr([region.address, region.remote_token]).encode())
hear()
"""

VIEWER = """
import atexit, numpy as np
from ast import literal_eval
talk = Talk(shmnd.open_adapter())
talk.connector.connect(talk.qp, ("127.0.0.1", hear()), 8, 8).result(20)
talk.connector.complete_connect().result(20)
address, token = literal_eval(talk.hear().decode())
view = talk.qp.view(address, token, 3 << 20)
"""


LOOKING = """
say(sum(view[:100]))
hear()
say(sum(view[-100:]))
try:
    talk.hear()
except ConnectionError:
    say("ended")
say(sum(view[-100:]))
"""


def test_the_death_of_its_owner_leaves_a_view_whole() -> None:
    with Child(OWNER) as owner, Child(VIEWER + LOOKING) as viewer:
        viewer.say(owner.hear())
        assert viewer.hear() == 500
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait(PATIENCE)
        viewer.say("look")
        assert viewer.hear() == 500
        assert viewer.hear() == "ended"
        assert viewer.hear() == 500
        assert viewer.end() == 0


@pytest.mark.parametrize(
    "ending",
    {
        "views in globals": "kept = [view[1:], np.frombuffer(view, np.uint8)]",
        "read at exit": "atexit.register(lambda: view[-1])",
        "in a cycle": "kept = [view]; kept.append(kept)",
        "adapter closed first": "talk.adapter.close(); kept = view[5:]; del view",
        "after exec of del": "array = np.frombuffer(view, np.uint8); del view, talk",
        "read by a thread": "import threading\n"
        "threading.Thread(target=lambda: [view[n] for n in range(99999)], daemon=True).start()",
    }.values(),
)
def test_an_interpreter_ends_silently_with_views(ending: str) -> None:
    with Child(OWNER) as owner, Child(VIEWER + ending + "\nsay('so far')") as viewer:
        viewer.say(owner.hear())
        assert viewer.hear() == "so far"
        assert viewer.end() == 0
        owner.say("end")
        assert owner.end() == 0


def test_a_forked_child_refuses(ends: Ends) -> None:
    view = ends.view()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"none"
        try:
            ends.view()
        except NdError as err:
            told = err.status.name.encode() + bytes([view[9]])
        os.write(write, told)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 100) == b"DEVICE_REMOVED" + bytes([9])
    os.close(read)


# -- shared with compiled code, and with many processes --


def test_a_segment_goes_by_its_descriptor_to_any_process() -> None:
    """What compiled rooms build on: one sealed segment, mapped by all that receive it."""
    made = Segment.create(1 << 16, label="test", writable=False)
    memoryview(made)[:4] = b"here"
    others = [Segment.attach(os.dup(made.fd), 1 << 16, writable=False) for _ in range(20)]
    view = memoryview(others[0])
    assert view.readonly
    assert bytes(view[:4]) == b"here"
    with pytest.raises(NdError, match="cannot map"):
        Segment.attach(os.dup(made.fd), 1 << 16, writable=True)
    part = view[:4]
    del view
    others[0].close_fd()
    assert bytes(part) == b"here", "closed under a view"
    made.close_fd()
    assert bytes(memoryview(others[1])[:4]) == b"here"
    with pytest.raises(BufferError, match=r"Segment\.create or Segment\.attach"):
        memoryview(Segment.__new__(Segment))
