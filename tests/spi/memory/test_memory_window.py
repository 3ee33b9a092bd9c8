# SPDX-License-Identifier: Apache-2.0
"""IND2MemoryWindow: tokens with rights and an end."""

from typing import Any

import pytest

from shmnd import OpFlag, Status
from spi import roles
from spi.harness import FILL, LOCAL, WAIT, End, contexts, final, nd_error, outcome, statuses
from spi.pair import Pair

READ, WRITE = OpFlag.ALLOW_READ, OpFlag.ALLOW_WRITE
BOTH = READ | WRITE


def request(pair: Pair, name: str, near: Any, address: int, token: int) -> Status:
    """A Read or Write of the active end through a token; how it completes."""
    getattr(pair.active.qp, name)(near.sge(), address, token)
    return Status(pair.reap(pair.active)[0].status)


class _Copying:
    """A registry, with peers that are still copying by some tokens."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self.tokens: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def settled(self, token: int) -> bool:
        return token not in self.tokens and self._registry.settled(token)


@pytest.mark.active_end_here
@pytest.mark.parametrize("how", ["closed", "invalidated", "closed after another"])
def test_deregister_waits_for_a_copy_by_a_window_that_is_gone(
    connected: Pair, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    owner = connected.active
    copying = _Copying(owner.adapter._registry)
    monkeypatch.setattr(owner.adapter, "_registry", copying)
    near = owner.memory(64)
    window = connected.window(owner, near, READ)
    copying.tokens.add(window.remote_token)
    if how == "invalidated":
        owner.qp.invalidate(window)
        assert statuses(owner.reap()) == [Status.SUCCESS]
    elif how == "closed after another":
        connected.window(owner, near, READ).close()
    window.close()
    address = near.address
    deregistered = near.mr.deregister()
    assert not deregistered.done()
    other = owner.adapter.create_memory_window()
    with nd_error(Status.ACCESS_VIOLATION, match="the region has no registered buffer"):
        owner.qp.bind(near.mr, other, address, 64, flags=READ)
    copying.tokens.clear()
    assert final(deregistered) == Status.SUCCESS


@pytest.mark.active_end_here
def test_windows_that_are_gone_take_no_memory_of_their_region(connected: Pair) -> None:
    owner = connected.active
    near = owner.memory(64)
    for _ in range(200):
        connected.window(owner, near, READ).close()
    assert len(near.mr._revoked) < 100


def test_remote_token_success_as_soon_as_bind_has_returned(connected: Pair) -> None:
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(64)
    window = owner.adapter.create_memory_window()
    owner.qp.bind(far.mr, window, far.address, 64, "bound", flags=READ)
    token = window.remote_token
    assert 0 < token < 1 << 32
    assert (window.address, window.length) == (far.address, 64)
    assert request(connected, "read", near, far.address, token) == Status.SUCCESS
    assert contexts(owner.reap()) == ["bound"]


@pytest.mark.parametrize("flags", [READ, WRITE, BOTH])
@pytest.mark.parametrize("name", ["read", "write"])
def test_window_grants_only_the_rights_of_its_bind(connected: Pair, flags: int, name: str) -> None:
    far, near = connected.passive.memory(64), connected.active.memory(64)
    far.put(b"f" * 64)
    near.put(b"n" * 64)
    window = connected.window(connected.passive, far, flags)
    allowed = flags & (READ if name == "read" else WRITE)
    wanted = Status.SUCCESS if allowed else Status.ACCESS_VIOLATION
    assert request(connected, name, near, far.address, window.remote_token) == wanted
    if allowed:
        assert near.get() == far.get() == (b"f" if name == "read" else b"n") * 64
    else:
        assert (near.get(), far.get()) == (b"n" * 64, b"f" * 64)


@pytest.mark.parametrize("name", ["read", "write"])
def test_window_bound_without_flags_grants_nothing(connected: Pair, name: str) -> None:
    far, near = connected.passive.memory(64), connected.active.memory(64)
    window = connected.window(connected.passive, far, 0)
    status = request(connected, name, near, far.address, window.remote_token)
    assert status == Status.ACCESS_VIOLATION


def test_window_needs_no_remote_right_of_its_region(connected: Pair) -> None:
    far, near = connected.passive.memory(64, 0), connected.active.memory(64)
    window = connected.window(connected.passive, far, READ)
    assert request(connected, "read", near, far.address, window.remote_token) == Status.SUCCESS
    assert near.get() == bytes([FILL]) * 64


@pytest.mark.parametrize(("offset", "length"), [(8, 17), (7, 16), (24, 1), (-1, 1), (1 << 33, 4)])
@pytest.mark.parametrize("name", ["read", "write"])
def test_access_beyond_the_end_of_a_window_fails(
    connected: Pair, name: str, offset: int, length: int
) -> None:
    """A window over bytes 8 to 24 of a region of 64."""
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(64)
    near.put(bytes(64))
    window = owner.adapter.create_memory_window()
    owner.qp.bind(far.mr, window, far.address + 8, 16, flags=BOTH)
    assert statuses(owner.reap()) == [Status.SUCCESS]
    sge = near.sge(0, length)
    getattr(connected.active.qp, name)(sge, far.address + offset, window.remote_token)
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]
    assert far.get() == bytes([FILL]) * 64
    assert near.get() == bytes(64)


def test_a_window_permits_access_to_exactly_its_bytes(connected: Pair) -> None:
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(16)
    near.put(b"exactly my bytes")
    window = owner.adapter.create_memory_window()
    owner.qp.bind(far.mr, window, far.address + 8, 16, flags=BOTH)
    assert statuses(owner.reap()) == [Status.SUCCESS]
    status = request(connected, "write", near, far.address + 8, window.remote_token)
    assert status == Status.SUCCESS
    assert far.get() == bytes([FILL]) * 8 + b"exactly my bytes" + bytes([FILL]) * 40


def test_windows_may_overlap_with_different_rights(connected: Pair) -> None:
    far, near = connected.passive.memory(64), connected.active.memory(64)
    near.put(bytes(64))
    reader = connected.window(connected.passive, far, READ)
    writer = connected.window(connected.passive, far, WRITE, 32)
    assert reader.remote_token != writer.remote_token
    half = connected.active.memory(32)
    half.put(b"w" * 32)
    assert request(connected, "write", half, far.address, writer.remote_token) == Status.SUCCESS
    assert request(connected, "read", near, far.address, reader.remote_token) == Status.SUCCESS
    assert near.get() == b"w" * 32 + bytes([FILL]) * 32
    status = request(connected, "write", near, far.address, reader.remote_token)
    assert status == Status.ACCESS_VIOLATION


def test_every_bind_issues_a_fresh_token_and_the_old_one_fails(connected: Pair) -> None:
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(64)
    window = owner.adapter.create_memory_window()
    tokens = []
    for _ in range(50):
        owner.qp.bind(far.mr, window, far.address, 64, flags=BOTH)
        tokens.append(window.remote_token)
        assert request(connected, "write", near, far.address, tokens[-1]) == Status.SUCCESS
        owner.qp.invalidate(window)
        assert statuses(owner.reap(2)) == [Status.SUCCESS] * 2
    assert len(set(tokens)) == len(tokens)
    owner.qp.bind(far.mr, window, far.address, 64, flags=BOTH)
    status = request(connected, "write", near, far.address, tokens[-1])
    assert status == Status.ACCESS_VIOLATION


@pytest.mark.parametrize("name", ["read", "write"])
def test_an_invalidated_window_permits_no_access(connected: Pair, name: str) -> None:
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(64)
    window = connected.window(owner, far, BOTH)
    token = window.remote_token
    owner.qp.invalidate(window)
    assert statuses(owner.reap()) == [Status.SUCCESS]
    assert request(connected, name, near, far.address, token) == Status.ACCESS_VIOLATION
    assert near.get() == far.get() == bytes([FILL]) * 64


def test_no_byte_moves_after_invalidate_completed(connected: Pair) -> None:
    """A peer that hammers: the bytes present when Invalidate completes stay as they are."""
    owner = connected.passive
    source, far = connected.active.memory(1 << 18), owner.memory(1 << 18)
    window = connected.window(owner, far, WRITE)
    hammered, stayed = connected.play(
        roles.hammer,
        roles.invalidate_under_fire,
        active_args=(source, far.address, window.remote_token),
        passive_args=(far, window),
    )
    assert hammered == Status.ACCESS_VIOLATION
    assert stayed


def test_window_token_is_useless_to_another_queue_pair(connected: Pair) -> None:
    active, passive = connected.active, connected.passive
    far, near = passive.memory(64), active.memory(64)
    window = connected.window(passive, far, BOTH)
    connector, partner = active.new_connector(), passive.new_connector()
    qp, far_qp = active.new_qp(), passive.new_qp()
    connecting = connector.connect(qp, connected.address, 1, 1)
    passive.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp, 1, 1)
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    qp.write(near.sge(), far.address, window.remote_token)
    assert statuses(connected.reap(active)) == [Status.ACCESS_VIOLATION]
    status = request(connected, "write", near, far.address, window.remote_token)
    assert status == Status.SUCCESS, "the peer of its own queue pair may still use it"


def test_another_queue_pair_of_its_owner_cannot_invalidate_a_window(connected: Pair) -> None:
    owner, peer = connected.active, connected.passive
    near, sink = owner.memory(64), peer.memory(64)
    window = connected.window(owner, near, READ)
    connector, partner = owner.new_connector(), peer.new_connector()
    qp, far_qp = owner.new_qp(), peer.new_qp()
    connecting = connector.connect(qp, connected.address, 1, 1)
    peer.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp, 1, 1)
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    qp.invalidate(window)
    assert statuses(connected.reap(owner)) == [Status.INVALID_DEVICE_REQUEST]
    peer.qp.read(sink.sge(), near.address, window.remote_token)
    assert statuses(connected.reap(peer)) == [Status.SUCCESS], "it is bound as before"


def test_a_window_bound_to_another_region_leaves_the_first_one(connected: Pair) -> None:
    """The first region can be deregistered, and the window still grants access to the second."""
    owner, peer = connected.active, connected.passive
    first, second = owner.memory(64), owner.memory(64)
    window = connected.window(owner, first, READ)
    owner.qp.invalidate(window)
    owner.qp.bind(second.mr, window, second.address, 64, flags=READ)
    assert statuses(connected.reap(owner, 2)) == [Status.SUCCESS] * 2
    assert final(first.mr.deregister()) == Status.SUCCESS
    with nd_error(Status.DEVICE_BUSY, match="1 windows are bound"):
        second.mr.deregister()
    peer.qp.read(peer.memory(64).sge(), second.address, window.remote_token)
    assert statuses(connected.reap(peer)) == [Status.SUCCESS]


class _Rebinding:
    """The windows of a region; another thread binds one while it is taken out."""

    def __init__(self, windows: Any, bind: Any) -> None:
        self._windows, self._bind = windows, [bind]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._windows, name)

    def discard(self, window: Any) -> None:
        if self._bind:
            self._bind.pop()()
        self._windows.discard(window)


@pytest.mark.active_end_here
def test_a_window_that_is_bound_while_it_is_invalidated_keeps_its_region(
    connected: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = connected.active
    near = owner.memory(64)
    window = connected.window(owner, near, READ)

    def bind() -> None:
        owner.qp.bind(near.mr, window, near.address, 64, flags=READ)

    monkeypatch.setattr(near.mr, "_windows", _Rebinding(near.mr._windows, bind))
    owner.qp.invalidate(window)
    assert statuses(connected.reap(owner, 2)) == [Status.SUCCESS] * 2
    with nd_error(Status.DEVICE_BUSY, match="1 windows are bound"):
        near.mr.deregister()


def test_window_can_be_bound_by_another_queue_pair_after_invalidate(connected: Pair) -> None:
    owner = connected.passive
    far, near = owner.memory(64), connected.active.memory(64)
    window = connected.window(owner, far, READ)
    owner.qp.invalidate(window)
    owner.qp.bind(far.mr, window, far.address, 64, flags=WRITE)
    assert statuses(owner.reap(2)) == [Status.SUCCESS] * 2
    status = request(connected, "write", near, far.address, window.remote_token)
    assert status == Status.SUCCESS


@pytest.mark.parametrize("how", ["disconnect", "close the queue pair", "close the window"])
def test_window_is_unbound_implicitly(connected: Pair, how: str) -> None:
    owner: End = connected.active
    buffer = owner.memory(64)
    window = connected.window(owner, buffer, READ)
    with nd_error(Status.DEVICE_BUSY):
        buffer.mr.deregister()
    if how == "disconnect":
        owner.connector.disconnect().result(timeout=WAIT)
    elif how == "close the queue pair":
        owner.qp.close()
    else:
        window.close()
    assert final(buffer.mr.deregister()) == Status.SUCCESS


def test_window_is_dead_for_the_peer_when_it_is_closed(connected: Pair) -> None:
    far, near = connected.passive.memory(64), connected.active.memory(64)
    window = connected.window(connected.passive, far, BOTH)
    token = window.remote_token
    window.close()
    window.close()
    assert request(connected, "write", near, far.address, token) == Status.ACCESS_VIOLATION
    assert far.get() == bytes([FILL]) * 64


def test_window_close_with_a_with_block_and_unbound(end: End) -> None:
    with end.adapter.create_memory_window():
        pass
    window = end.adapter.create_memory_window()
    window.close()


def test_read_fence_makes_bind_and_invalidate_wait_for_earlier_reads(connected: Pair) -> None:
    active, passive = connected.active, connected.passive
    far, near = passive.memory(64, 0x7), active.memory(64, LOCAL)
    window = active.adapter.create_memory_window()
    where = (far.address, far.remote_token)
    active.qp.read(near.sge(), *where, "read")
    active.qp.bind(near.mr, window, near.address, 64, "bind", flags=READ | OpFlag.READ_FENCE)
    active.qp.read(near.sge(), *where, "read")
    active.qp.invalidate(window, "invalidate", flags=OpFlag.READ_FENCE)
    assert contexts(active.reap(4)) == ["read", "bind", "read", "invalidate"]


def test_a_bind_that_a_flush_cancels_has_no_effect(patient: Pair) -> None:
    """Bind is valid when it returns; cancelled, it has not happened."""
    end = patient.active
    buffer = end.memory(64)
    window = end.adapter.create_memory_window()
    end.qp.send(None, "waits")
    end.qp.bind(buffer.mr, window, buffer.address, 64, "bind", flags=READ)
    end.qp.flush()
    assert statuses(patient.reap(end, 2)) == [Status.CANCELED] * 2
    end.qp.bind(buffer.mr, window, buffer.address, 64, "again", flags=READ)
    assert statuses(patient.reap(end)) == [Status.SUCCESS], "it is not bound already"
    end.qp.send(None, "waits")
    end.qp.invalidate(window, "invalidate")
    end.qp.flush()
    assert statuses(patient.reap(end, 2)) == [Status.CANCELED] * 2
    assert outcome(buffer.mr.deregister) == Status.SUCCESS, "nothing is bound"
