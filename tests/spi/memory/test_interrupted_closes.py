# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within the end of a region or window: the next close ends it.

Its entry in the registry is free then, and so is the place that was held for its result.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import Alarm, inside, interrupted
from shmnd import OpFlag, Status, memory_window
from shmnd.handshake.queue_pair_link import QpState
from spi.harness import LOCAL, WAIT, statuses
from spi.pair import Pair
from stepping import stepped

WITHIN = inside(shmnd)
READ = OpFlag.ALLOW_READ


class Place:
    """Stands for the queue that holds a place for the result of a window."""

    held = freed = 0

    def _hold_place(self) -> None:
        self.held += 1

    def _free_place(self) -> None:
        self.freed += 1


class PairWith:
    """Stands for a queue pair whose receives complete to another queue."""

    def __init__(self, pair: Any, queue: Place) -> None:
        self._pair, self._receive_cq = pair, queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pair, name)


class Counting:
    """A registry that knows which tokens are given out."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self.tokens: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def register(self, *given: Any) -> int:
        token: int = self._registry.register(*given)
        self.tokens.add(token)
        return token

    def bind(self, *given: Any) -> int:
        token: int = self._registry.bind(*given)
        self.tokens.add(token)
        return token

    def release(self, token: int) -> None:
        self._registry.release(token)
        self.tokens.discard(token)


@pytest.fixture
def counting(connected: Pair, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The registry of the active end, which counts from now on."""
    counting = Counting(connected.active.adapter._registry)
    monkeypatch.setattr(connected.active.adapter, "_registry", counting)
    return counting


def interrupt_all(once: Callable[[int], bool]) -> None:
    """Call a function for each place; it returns whether it came there."""
    for at in itertools.count():
        if not once(at):
            break
    assert at > 5, "there were places to interrupt"


@pytest.mark.active_end_here
@pytest.mark.parametrize("how", ["close", "invalidate"])
def test_a_window_whose_end_is_interrupted_is_released(
    connected: Pair, counting: Counting, how: str
) -> None:
    owner = connected.active
    near = owner.memory(64)
    before = set(counting.tokens)

    def once(at: int) -> bool:
        window = owner.adapter.create_memory_window()
        flags = READ | OpFlag.SILENT_SUCCESS
        owner.qp.bind(near.mr, window, near.address, 64, flags=flags)
        assert counting.tokens > before
        window._place = place = Place()

        def invalidate() -> None:
            window._invalidate(owner.qp)

        came = interrupted(at, invalidate if how == "invalidate" else window.close, WITHIN, Alarm)
        window.close()
        assert counting.tokens == before, f"interrupted at {at}"
        assert not near.mr._windows, f"interrupted at {at}"
        assert place.freed == 1, f"interrupted at {at}"
        return came

    interrupt_all(once)


@pytest.mark.active_end_here
def test_a_bind_that_is_interrupted_holds_no_place(connected: Pair, counting: Counting) -> None:
    owner = connected.active
    near = owner.memory(64)
    before = set(counting.tokens)

    def once(at: int) -> bool:
        window, place = owner.adapter.create_memory_window(), Place()
        window._set_invalidate_context("a result")
        pair: Any = PairWith(owner.qp, place)

        def bind() -> None:
            window._bind(pair, near.mr, near.address, 64, int(READ))

        came = stepped(at, bind, memory_window.__file__.__eq__, Alarm)
        assert place.held == 1 or came
        window.close()
        assert counting.tokens == before, came
        assert place.freed == place.held, came
        return bool(came)

    interrupt_all(once)


@pytest.mark.active_end_here
@pytest.mark.parametrize("how", ["close", "deregister"])
@pytest.mark.parametrize("bound", [False, True], ids=["alone", "with a window"])
def test_a_region_whose_end_is_interrupted_is_released(
    connected: Pair, counting: Counting, how: str, bound: bool
) -> None:
    owner = connected.active

    def once(at: int) -> bool:
        region, window = owner.adapter.create_memory_region(), owner.adapter.create_memory_window()
        memory = bytearray(64)
        region.register(memory, LOCAL).result(WAIT)
        if bound and how == "close":
            flags = READ | OpFlag.SILENT_SUCCESS
            owner.qp.bind(region, window, region.address, 64, flags=flags)
        came = bool(stepped(at, getattr(region, how), WITHIN, Alarm))
        region.close()
        owner.adapter._engine.progress()
        assert not counting.tokens, f"interrupted at {at}"
        assert not window._is_bound(), f"interrupted at {at}"
        memory.append(0)  # nothing holds it
        return came

    interrupt_all(once)


@pytest.mark.active_end_here
@pytest.mark.parametrize("how", ["bind", "invalidate"])
def test_a_request_of_a_window_that_is_interrupted_can_be_made_again(
    connected: Pair, counting: Counting, how: str
) -> None:
    """The call that raises has posted nothing; the same call then does it, and completes."""
    owner, peer = connected.active, connected.passive
    near, sink = owner.memory(64), peer.memory(64)
    before = set(counting.tokens)

    def once(at: int) -> bool:
        window = owner.adapter.create_memory_window()

        def bind() -> None:
            owner.qp.bind(near.mr, window, near.address, 64, flags=READ)

        if how == "invalidate":
            bind()
            assert statuses(owner.reap()) == [Status.SUCCESS]
        came = bool(stepped(at, bind if how == "bind" else end_of(window), WITHIN, Alarm))
        assert statuses(owner.leftover()) == [Status.SUCCESS] * (not came)
        if came and how == "bind":
            assert not window._is_bound(), f"interrupted at {at}"
            assert counting.tokens == before, f"interrupted at {at}"
            bind()
            assert statuses(owner.reap()) == [Status.SUCCESS], f"interrupted at {at}"
        if how == "bind":
            peer.qp.read(sink.sge(), near.address, window.remote_token)
            assert statuses(connected.reap(peer)) == [Status.SUCCESS], f"interrupted at {at}"
        if came or how == "bind":
            end_of(window)()
            assert statuses(owner.reap()) == [Status.SUCCESS], f"interrupted at {at}"
        assert counting.tokens == before, f"interrupted at {at}"
        return came

    def end_of(window: Any) -> Callable[[], None]:
        return lambda: owner.qp.invalidate(window)

    interrupt_all(once)


@pytest.mark.active_end_here
@pytest.mark.parametrize("deregistered", [False, True], ids=["bound", "deregistered"])
def test_an_invalidate_that_was_interrupted_is_not_that_of_a_later_bind(
    make_pair: Callable[..., Pair], deregistered: bool
) -> None:
    left_to_end = 0

    def once(at: int) -> bool:
        nonlocal left_to_end
        connected = make_pair().connect()  # a refusal ends the last one
        owner, peer = connected.active, connected.passive
        near, sink = owner.memory(64), peer.memory(64)
        window = connected.window(owner, near, READ)
        came = stepped(at, lambda: owner.qp.invalidate(window), WITHIN, Alarm)
        left_to_end += window._ending is not None and not window._token
        if not came:
            assert statuses(owner.reap()) == [Status.SUCCESS]
        window._drop()  # whatever the interrupted call has left
        owner.qp.bind(near.mr, window, near.address, 64, flags=READ)
        assert statuses(owner.reap()) == [Status.SUCCESS], came
        peer.qp.read(sink.sge(), near.address, window.remote_token)
        assert statuses(connected.reap(peer)) == [Status.SUCCESS], came
        if deregistered:
            near.mr.close()
        owner.qp.invalidate(window)
        wanted = Status.INVALID_DEVICE_REQUEST if deregistered else Status.SUCCESS
        assert statuses(owner.reap()) == [wanted], came
        if not deregistered:
            owner.qp.invalidate(window)
            assert statuses(owner.reap()) == [Status.INVALID_DEVICE_REQUEST], came
        return bool(came)

    interrupt_all(once)
    assert left_to_end, "some Invalidate was interrupted after it had revoked the access"


@pytest.mark.active_end_here
def test_an_invalidate_on_another_queue_pair_begins_none(connected: Pair) -> None:
    owner, peer = connected.active, connected.passive
    window = connected.window(owner, owner.memory(64), READ)
    other: Any = PairWith(owner.qp, Place())
    assert window._invalidate(other)[0] == Status.INVALID_DEVICE_REQUEST
    owner.qp.receive(None)
    peer.qp._send_and_invalidate(None, window.remote_token)
    assert statuses(connected.reap(owner)) == [Status.SUCCESS]
    assert window._invalidate(owner.qp)[0] == Status.INVALID_DEVICE_REQUEST


@pytest.mark.active_end_here
def test_a_bind_that_is_interrupted_grants_nothing_where_an_earlier_one_granted_nothing(
    connected: Pair, counting: Counting
) -> None:
    owner = connected.active
    near = owner.memory(64)
    before = set(counting.tokens)
    ended: Any = PairWith(owner.qp, Place())
    ended._state = QpState.CLOSED

    def once(at: int) -> bool:
        window = owner.adapter.create_memory_window()
        assert window._bind(ended, near.mr, near.address, 64, int(READ)) == (Status.SUCCESS, 0)

        def bind() -> None:
            window._bind(owner.qp, near.mr, near.address, 64, int(READ))

        came = stepped(at, bind, memory_window.__file__.__eq__, Alarm)
        if came:
            assert counting.tokens == before, came
        window.close()
        assert counting.tokens == before, came
        return bool(came)

    interrupt_all(once)


@pytest.mark.active_end_here
def test_a_close_withdraws_the_grant_of_a_bind_that_could_not(
    connected: Pair, counting: Counting
) -> None:
    """Its handlers raised behind the grant, and in the withdrawal of it."""
    owner = connected.active
    near, window = owner.memory(64), owner.adapter.create_memory_window()
    before = set(counting.tokens)
    end = owner.qp._connection, owner.qp._serial, None
    token = counting.bind(near.mr._token, near.address, 64, int(READ), *end)
    window._unfinished[token] = near.mr, None
    window.close()
    assert counting.tokens == before
    assert not counting.is_bound(token)
