# SPDX-License-Identifier: Apache-2.0
"""Processes that meet by a name, share memory and wake each other, without a connection."""

import asyncio
import gc
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from processes.kit import PATIENCE, Child, broker_pid, end_process, until
from shmnd import NdError, Status
from shmnd.directory import Directory
from shmnd.neighbours import Neighbour
from shmnd.waiter import Waiter

pytestmark = pytest.mark.slow

OWNER = """
from shmnd.directory import Directory
from shmnd.neighbours import Neighbour
adapter = shmnd.open_adapter()
directory = Directory(adapter)
read = adapter.allocate_segment(4096, peers="read")
write = adapter.allocate_segment(4096)
read[:] = 7
names = directory.announce("part", "memory", {
    "read": adapter.locate(read), "write": adapter.locate(write)})
met = []
say(os.getpid())
while True:
    what, value = hear()
    if what == "fill":
        read[:] = value
    elif what == "tell":
        value = int(write[0])
    elif what == "more":
        more = adapter.allocate_segment(value, peers="read")
        more[:] = 9
        value = adapter.locate(more)
    elif what == "less":
        del more
    elif what == "meet":
        (entry,) = directory.find("part", value)
        met.append(Neighbour(adapter, entry))
    elif what == "ring":
        met[-1].ring()
    elif what == "progress":
        directory.find("part")
    elif what == "close":
        adapter.close()
    say(value)
"""


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as opened:
        yield opened


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child(OWNER) as child:
        assert child.hear() == child.pid
        yield child


def ask(owner: Child, what: str, value: object = 0) -> Any:
    owner.say([what, value])
    return owner.hear()


def met(adapter: shmnd.Adapter) -> tuple[Neighbour, Any]:
    (entry,) = Directory(adapter).find("part", "memory")
    return Neighbour(adapter, entry), entry.data


def fails(call: Callable[[], object]) -> Status:
    with pytest.raises(NdError) as failed:
        call()
    return failed.value.status


# -- memory --


def test_memory_of_a_neighbour_is_seen_in_place(adapter: shmnd.Adapter, owner: Child) -> None:
    neighbour, data = met(adapter)
    with neighbour:
        assert (neighbour.pid, neighbour.name) == (owner.pid, "memory")
        assert neighbour.same_user
        assert not neighbour.dead
        view = neighbour.view(*data["read"], 4096)
        assert view.readonly
        assert bytes(view) == b"\x07" * 4096
        ask(owner, "fill", 8)
        assert view[4095] == 8
        assert bytes(neighbour.view(data["read"][0], 4000, 96)) == b"\x08" * 96


def test_memory_for_writing_is_written_and_sealed_memory_is_not(
    adapter: shmnd.Adapter, owner: Child
) -> None:
    neighbour, data = met(adapter)
    with neighbour:
        neighbour.view(*data["write"], 1, writable=True)[0] = 5
        assert ask(owner, "tell") == 5
        assert neighbour.view(*data["write"], 1).readonly
        refused = fails(lambda: neighbour.view(*data["read"], 1, writable=True))
        assert refused is Status.ACCESS_VIOLATION


def test_bounds_and_segments_are_checked(adapter: shmnd.Adapter, owner: Child) -> None:
    neighbour, data = met(adapter)
    segment, _ = data["read"]
    for number, offset, nbytes, status in (
        (segment, 0, 4097, Status.ACCESS_VIOLATION),
        (segment, 4096, 1, Status.ACCESS_VIOLATION),
        (segment, 1 << 70, 1, Status.ACCESS_VIOLATION),
        (segment + 77, 0, 1, Status.ACCESS_VIOLATION),
        (1 << 29, 0, 1, Status.INVALID_PARAMETER_1),
        (-1, 0, 1, Status.INVALID_PARAMETER_1),
        (segment, -1, 1, Status.INVALID_PARAMETER_2),
        (segment, 0, 0, Status.INVALID_PARAMETER_3),
    ):
        found = fails(lambda at=(number, offset, nbytes): neighbour.view(*at))  # type: ignore[misc]
        assert found is status, (number, offset, nbytes)
    neighbour.close()
    assert fails(lambda: neighbour.view(segment, 0, 1)) is Status.INVALID_HANDLE
    neighbour.close()
    neighbour.ring()


def test_memory_that_is_announced_later_is_seen_and_goes(
    adapter: shmnd.Adapter, owner: Child
) -> None:
    neighbour, _ = met(adapter)
    with neighbour:
        segment, offset = ask(owner, "more", 100_000)
        view = neighbour.view(segment, offset, 100_000)
        assert bytes(view) == b"\x09" * 100_000
        ask(owner, "less")
        until(lambda: _gone(adapter, neighbour, segment))
        assert view[99_999] == 9, "it stays mapped for its views"


def _gone(adapter: shmnd.Adapter, neighbour: Neighbour, segment: int) -> bool:
    Waiter(adapter, lambda: False).wait(0)  # takes what the broker has said
    try:
        neighbour.view(segment, 0, 1)
    except NdError as err:
        return err.status is Status.ACCESS_VIOLATION
    return False


def test_a_segment_that_is_repeated_behind_the_first_round_is_mapped(
    adapter: shmnd.Adapter, owner: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its descriptor was lost, and the adapter alone was heard of again by then."""
    neighbour, _ = met(adapter)
    with neighbour:
        segment, offset = ask(owner, "more", 4096)
        rounds = iter([lambda: None] + [adapter._engine.sync] * 9)
        monkeypatch.setattr(adapter._engine, "sync", lambda: next(rounds)())
        assert neighbour.view(segment, offset)[0] == 9


def test_views_outlive_the_neighbour_and_its_process(adapter: shmnd.Adapter, owner: Child) -> None:
    neighbour, data = met(adapter)
    view = neighbour.view(*data["read"], 4096)
    neighbour.close()
    del neighbour
    gc.collect()
    assert view[0] == 7
    owner.kill()
    adapter.close()
    assert bytes(view) == b"\x07" * 4096


def test_small_memory_that_is_alone_is_given_back_by_itself(adapter: shmnd.Adapter) -> None:
    first, second = (adapter.allocate_segment(64, peers="read") for _ in range(2))
    assert adapter.locate(first)[0] != adapter.locate(second)[0]
    assert adapter.locate(first[10:20]) == (adapter.locate(first)[0], 10)
    small = [adapter.allocate(64, peers="read") for _ in range(2)]
    assert adapter.locate(small[0])[0] == adapter.locate(small[1])[0]
    before = len(list(adapter._segments()))
    del first
    assert len(list(adapter._segments())) == before - 1


def test_memory_of_others_is_not_located(adapter: shmnd.Adapter) -> None:
    for buffer in (bytearray(10), b"x"):
        assert fails(lambda it=buffer: adapter.locate(it)) is Status.INVALID_PARAMETER_1
    adapter.close()
    assert fails(lambda: adapter.locate(bytearray(1))) is Status.DEVICE_REMOVED


# -- life and death --


def test_the_death_of_a_neighbour_is_seen_and_ends_a_wait(
    adapter: shmnd.Adapter, owner: Child
) -> None:
    neighbour, _ = met(adapter)
    with Waiter(adapter, lambda: neighbour.dead) as waiter:
        killing = threading.Timer(0.05, owner.kill)
        killing.start()
        assert waiter.wait(PATIENCE)
        killing.join()
    assert neighbour.dead
    assert "dead" in repr(neighbour)
    neighbour.ring()


def test_an_adapter_that_is_gone_is_not_met(adapter: shmnd.Adapter, owner: Child) -> None:
    (entry,) = Directory(adapter).find("part", "memory")
    ask(owner, "close")
    assert fails(lambda: Neighbour(adapter, entry)) is Status.CONNECTION_INVALID
    with shmnd.open_adapter() as closed:
        pass
    assert fails(lambda: Neighbour(closed, entry)) is Status.DEVICE_REMOVED


def test_neighbours_do_not_notice_that_the_broker_dies(
    adapter: shmnd.Adapter, owner: Child
) -> None:
    neighbour, data = met(adapter)
    directory = Directory(adapter)
    with neighbour, directory.announce("part", "here"):
        ask(owner, "meet", "here")
        end_process(broker_pid())
        ask(owner, "fill", 11)
        assert neighbour.view(*data["read"], 1)[0] == 11
        rung: list[int] = []
        with Waiter(adapter, lambda: bool(rung)) as waiter:
            thread = threading.Timer(0.05, lambda: (rung.append(1), ask(owner, "ring")))
            thread.start()
            assert waiter.wait(PATIENCE)
            thread.join()


def test_a_new_broker_introduces_processes_that_have_met(
    adapter: shmnd.Adapter, owner: Child
) -> None:
    neighbour, _ = met(adapter)
    with neighbour:
        end_process(broker_pid())
        Directory(adapter).find("part")  # starts a broker
        segment, offset = ask(owner, "more", 5000)

        def seen() -> bool:
            ask(owner, "progress")
            try:
                return neighbour.view(segment, offset, 5000)[4999] == 9
            except NdError:
                return False

        until(seen)


def test_a_new_broker_does_not_receive_the_meetings_of_a_closed_adapter(owner: Child) -> None:
    with shmnd.open_adapter() as other:
        adapter = shmnd.open_adapter()
        neighbour, _ = met(adapter)
        announced = Directory(adapter).announce("part", "closed")
        adapter.close()
        end_process(broker_pid())
        assert Directory(other).find("part", "closed") == ()
        neighbour.close()
        announced.close()


def test_a_neighbour_in_the_same_process(adapter: shmnd.Adapter) -> None:
    with shmnd.open_adapter() as other:
        memory = other.allocate_segment(64, peers="read")
        memory[:] = 3
        with Directory(other).announce("part", "same", {"at": other.locate(memory)}):
            (entry,) = Directory(adapter).find("part", "same")
            with Neighbour(adapter, entry) as one, Neighbour(adapter, entry) as two:
                one.close()
                assert two.view(*entry.data["at"], 64)[63] == 3
                assert two.pid == os.getpid()


@pytest.mark.usefixtures("owner")
def test_a_handler_that_raises_behind_a_meeting_leaves_none(
    adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker, which counts the meetings of a process, then hears of each end."""
    meetings = adapter._engine.meetings
    meet = meetings.meet

    def meet_and_raise(*args: Any) -> Any:
        meet(*args)
        raise KeyboardInterrupt

    with met(adapter)[0] as kept:
        monkeypatch.setattr(meetings, "meet", meet_and_raise)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                met(adapter)
            gc.collect()
        monkeypatch.undo()
        with met(adapter)[0]:
            pass
        assert kept.pid
        (mine,) = meetings._tokens.values()
        assert mine == {id(kept)}
    assert not meetings._tokens


# -- waiting --


class Flag:
    """A condition to wait for, and how often the ring was asked for."""

    def __init__(self, adapter: shmnd.Adapter) -> None:
        self.up = False
        self.armed: list[bool] = []
        self.waiter = Waiter(adapter, self.ready, self.armed.append)

    def ready(self) -> bool:
        return self.up


@pytest.fixture
def flag(adapter: shmnd.Adapter, owner: Child) -> Iterator[Flag]:
    with Directory(adapter).announce("part", "here"):
        ask(owner, "meet", "here")
        flag = Flag(adapter)
        yield flag
        flag.waiter.close()


def rise(flag: Flag, owner: Child) -> threading.Thread:
    def later() -> None:
        flag.up = True
        ask(owner, "ring")

    thread = threading.Timer(0.05, later)
    thread.start()
    return thread


def test_a_ring_ends_a_wait(flag: Flag, owner: Child) -> None:
    assert not flag.waiter.wait(0)
    assert not flag.waiter.wait(0.01)
    assert flag.armed[0] is True
    assert flag.armed[-1] is False
    thread = rise(flag, owner)
    assert flag.waiter.wait(PATIENCE)
    thread.join()
    assert flag.waiter.wait(0)
    with pytest.raises(ValueError, match="negative"):
        flag.waiter.wait(-1)


def test_a_ring_resumes_tasks(flag: Flag, owner: Child) -> None:
    async def both() -> list[bool]:
        waiting = [asyncio.create_task(flag.waiter.wait_in_loop(PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0)
        assert flag.waiter.waited_for
        return list(await asyncio.gather(*waiting))

    async def late() -> bool:
        return await flag.waiter.wait_in_loop(0.01)

    assert asyncio.run(late()) is False
    thread = rise(flag, owner)
    assert asyncio.run(both()) == [True, True]
    thread.join()
    assert not flag.waiter.waited_for


def test_a_ring_makes_the_descriptor_readable(flag: Flag, owner: Child) -> None:
    number = flag.waiter.fileno()
    flag.waiter.rest()
    assert select.select([number], [], [], 0)[0] == []
    thread = rise(flag, owner)
    deadline = time.monotonic() + PATIENCE
    while not flag.up:
        assert time.monotonic() < deadline
        select.select([number], [], [], PATIENCE)
        flag.waiter.rest()
    thread.join()
    assert select.select([number], [], [], PATIENCE)[0], "as long as it is ready"
    flag.up = False
    flag.waiter.rest()
    assert select.select([number], [], [], 0)[0] == []


def test_closing_ends_a_wait(flag: Flag) -> None:
    thread = threading.Timer(0.05, flag.waiter.close)
    thread.start()
    assert flag.waiter.wait(PATIENCE)
    thread.join()
    flag.waiter.close()
    with pytest.raises(NdError):
        Waiter(closed_adapter(), lambda: True)


def closed_adapter() -> shmnd.Adapter:
    adapter = shmnd.open_adapter()
    adapter.close()
    return adapter
