# SPDX-License-Identifier: Apache-2.0
"""A Send that ends its sender's access through a window, between two queue pairs of version 2.

Version 1 offers it to programs; the data plane has it for both.
"""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import CqNotify, OpFlag, RequestType, Status
from spi.harness import FILL, WAIT, Buffer, Completion, contexts, nd_error, statuses
from spi.pair import Pair

BOTH = OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE
SIZES = [0, 8, 45, 1024, 3573, 3576, 20_000, 65_536, 300_000]
GONE = "the window is gone"

MakePair = Callable[..., Pair]


class Bound:
    """A connected pair whose passive end has a window bound for the active one."""

    def __init__(self, pair: Pair, nbytes: int = 8, *, private: bool = False) -> None:
        self.pair = pair
        self.owner, self.peer = pair.passive, pair.active
        self.shown = self.owner.memory(64)
        self.sink: Buffer = self.owner.memory(max(nbytes, 1), private=private)
        self.source: Buffer = self.peer.memory(max(nbytes, 1), private=private)
        self.nbytes = nbytes
        self.source.put(bytes(i * 7 & 255 for i in range(nbytes)))
        self.window = self.owner.adapter.create_memory_window()
        self.window._set_invalidate_context(GONE)
        self.bind()

    def bind(self) -> None:
        shown = self.shown
        self.owner.qp.bind(shown.mr, self.window, shown.address, 64, "bound", flags=BOTH)
        assert statuses(self.pair.reap(self.owner)) == [Status.SUCCESS]
        self.token = self.window.remote_token

    def receive(self, context: Any = "received") -> None:
        self.owner.receiver().receive(self.sink.sge(0, self.nbytes), context)

    def send(self, token: int | None = None, context: Any = "sent", flags: int = 0) -> None:
        sge = self.source.sge(0, self.nbytes)
        token = self.token if token is None else token
        self.peer.qp._send_and_invalidate(sge, token, context, flags=flags)

    def write(self) -> Status:
        """A Write through the window; how it completes."""
        self.peer.qp.write(self.source.sge(0, 8), self.shown.address, self.token, "written")
        return Status(self.pair.reap(self.peer)[0].status)

    def completions(self, count: int = 2) -> list[tuple[RequestType, Status, Any]]:
        """The results of the owner."""
        return [
            (RequestType(each.request_type), Status(each.status), each.request_context)
            for each in self.pair.reap(self.owner, count)
        ]


RECEIVED = (RequestType.RECEIVE, Status.SUCCESS, "received")
UNBOUND = (RequestType.INVALIDATE, Status.SUCCESS, GONE)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("srq", [False, True])
def test_receive_and_then_the_windows_end(
    make_pair: MakePair, nbytes: int, private: bool, srq: bool
) -> None:
    bound = Bound(make_pair(srq=srq).connect(), nbytes, private=private)
    bound.receive()
    bound.send()
    received, ended = bound.pair.reap(bound.owner, 2)
    assert (received.status, received.bytes_transferred) == (Status.SUCCESS, nbytes)
    assert bound.sink.get(nbytes) == bound.source.get(nbytes)
    assert (ended.request_type, ended.status) == (RequestType.INVALIDATE, Status.SUCCESS)
    assert (ended.request_context, ended.bytes_transferred) == (GONE, 0)
    sent = bound.pair.reap(bound.peer)[0]
    assert (sent.request_type, sent.status) == (RequestType.SEND, Status.SUCCESS)
    assert sent.request_context == "sent"


def test_posted_before_the_receive(connected: Pair) -> None:
    bound = Bound(connected)
    bound.send()
    assert bound.peer.leftover() == bound.owner.leftover() == []
    bound.receive()
    assert bound.completions() == [RECEIVED, UNBOUND]
    assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]


def test_a_send_that_invalidates_completes_when_the_window_is_dead_and_not_before(
    connected: Pair,
) -> None:
    bound = Bound(connected)
    bound.receive()
    bound.send()
    # A poll advances the other queue pairs of its process from time to time: the owner's, in one.
    for _ in range(100):
        if bound.peer.gather():
            break
        assert bound.window._is_bound()
    else:
        assert bound.completions() == [RECEIVED, UNBOUND]
    assert contexts(connected.reap(bound.peer)) == ["sent"]
    assert not bound.window._is_bound()


def test_the_window_permits_no_access_afterwards(connected: Pair) -> None:
    bound = Bound(connected)
    bound.receive()
    bound.send()
    bound.peer.qp.write(bound.source.sge(0, 8), bound.shown.address, bound.token, "late")
    assert bound.completions() == [RECEIVED, UNBOUND]
    both = connected.reap(bound.peer, 2)
    assert statuses(both) == [Status.SUCCESS, Status.ACCESS_VIOLATION]
    assert bound.shown.get() == bytes([FILL]) * 64


def test_the_window_may_be_bound_anew(connected: Pair) -> None:
    bound = Bound(connected)
    for _ in range(20):
        assert bound.write() is Status.SUCCESS
        bound.receive()
        bound.send()
        assert bound.completions() == [RECEIVED, UNBOUND]
        assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]
        bound.bind()
    assert bound.write() is Status.SUCCESS


def test_the_region_may_be_deregistered_then(connected: Pair) -> None:
    bound = Bound(connected)
    with nd_error(Status.DEVICE_BUSY):
        bound.shown.mr.deregister()
    bound.receive()
    bound.send()
    assert bound.completions() == [RECEIVED, UNBOUND]
    assert connected.settle(bound.shown.mr.deregister(), bound.owner) is Status.SUCCESS


def test_without_a_context_no_further_result(connected: Pair) -> None:
    bound = Bound(connected)
    bound.owner.qp.invalidate(bound.window)
    assert statuses(connected.reap(bound.owner)) == [Status.SUCCESS]
    bound.window._set_invalidate_context(None)
    bound.bind()
    bound.receive()
    bound.send()
    assert bound.completions(1) == [RECEIVED]
    assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]
    assert bound.owner.leftover() == []
    assert not bound.window._is_bound()


def test_flags_of_a_send_apply(make_pair: MakePair) -> None:
    bound = Bound(make_pair(inline=64).connect(), 40)
    bound.receive()
    notify = bound.owner.cq.notify(CqNotify.SOLICITED)
    bound.send(
        flags=OpFlag.SILENT_SUCCESS | OpFlag.INLINE | OpFlag.SEND_AND_SOLICIT_EVENT,
    )
    assert bound.pair.settle(notify, bound.owner) is Status.SUCCESS
    assert bound.completions() == [RECEIVED, UNBOUND]
    assert bound.pair.active.leftover() == []


@pytest.mark.parametrize("flags", [0x8, 0x10, 0x40, 0x80, 1 << 40])
def test_other_flags_are_refused(connected: Pair, flags: int) -> None:
    bound = Bound(connected)
    with nd_error(Status.INVALID_PARAMETER_5):
        bound.send(flags=flags)
    assert bound.write() is Status.SUCCESS


def test_refused_like_a_send(make_pair: MakePair) -> None:
    pair = make_pair(depth=2, sge=4)
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.qp._send_and_invalidate(None, 1)
    bound = Bound(pair.connect())
    with nd_error(Status.DATA_OVERRUN):
        bound.peer.qp._send_and_invalidate([bound.source.sge()] * 9, bound.token)
    for _ in range(2):
        bound.send()
    with nd_error(Status.NO_MORE_ENTRIES):
        bound.send()


# A token that this peer has no right to name


@pytest.mark.parametrize("which", ["none", "unknown", "region", "own", "old", "used"])
def test_a_token_of_no_window_ends_the_connection(connected: Pair, which: str) -> None:
    bound = Bound(connected)
    if which == "old":
        old = bound.token
        bound.owner.qp.invalidate(bound.window)
        assert statuses(connected.reap(bound.owner)) == [Status.SUCCESS]
        bound.bind()
        token = old
    elif which == "used":
        bound.receive()
        bound.send()
        assert bound.completions() == [RECEIVED, UNBOUND]
        assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]
        token = bound.token
    elif which == "own":
        token = connected.window(bound.peer, bound.source, BOTH, 1).remote_token
    else:
        token = {"none": 0, "unknown": 0xFFFFFFFF, "region": bound.shown.local_token}[which]
    bound.receive("first")
    bound.receive("second")
    bound.send(token)
    assert bound.completions() == [
        (RequestType.RECEIVE, Status.INVALIDATION_ERROR, "first"),
        (RequestType.RECEIVE, Status.CANCELED, "second"),
    ]
    assert statuses(connected.reap(bound.peer)) == [Status.INVALIDATION_ERROR]
    assert bound.owner.leftover() == []


def test_a_window_of_another_connection_is_not_this_peers(connected: Pair) -> None:
    bound = Bound(connected)
    owner, peer = bound.owner, bound.peer
    other_owner, other_peer = owner.new_qp(), peer.new_qp()
    answer, ask = owner.new_connector(), peer.new_connector()
    asked = ask.connect(other_peer, connected.address, 8, 8)
    owner.listener.get_connection_request(answer).result(timeout=WAIT)
    accepted = answer.accept(other_owner, 8, 8)
    asked.result(timeout=WAIT)
    ask.complete_connect().result(timeout=WAIT)
    accepted.result(timeout=WAIT)
    other_owner.receive(bound.sink.sge(0, 8), "theirs")
    other_peer._send_and_invalidate(bound.source.sge(0, 8), bound.token, "mine")
    received = connected.reap(owner)[0]
    assert (received.status, received.request_context) == (Status.INVALIDATION_ERROR, "theirs")
    assert statuses(connected.reap(peer)) == [Status.INVALIDATION_ERROR]
    assert bound.write() is Status.SUCCESS
    connected.exchange()


# Against the owner's own Invalidate


def test_the_owner_is_first(connected: Pair) -> None:
    bound = Bound(connected)
    bound.receive()
    bound.send()
    bound.owner.qp.invalidate(bound.window, "mine")
    ended = bound.completions()
    assert (RequestType.INVALIDATE, Status.SUCCESS, "mine") in ended
    assert (RequestType.RECEIVE, Status.INVALIDATION_ERROR, "received") in ended
    assert statuses(connected.reap(bound.peer)) == [Status.INVALIDATION_ERROR]


def test_the_peer_is_first(connected: Pair) -> None:
    bound = Bound(connected)
    bound.receive()
    bound.send()
    assert bound.completions() == [RECEIVED, UNBOUND]
    bound.owner.qp.invalidate(bound.window, "mine")
    lost = (RequestType.INVALIDATE, Status.INVALIDATION_ERROR, "mine")
    assert bound.completions(1) == [lost]
    assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]
    bound.receive("too late")
    assert bound.completions(1) == [(RequestType.RECEIVE, Status.CANCELED, "too late")]


# Taken back, cut off


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("posted", [False, True])
def test_a_flush_cancels_the_invalidate_and_the_window_stays_bound(
    connected: Pair, nbytes: int, posted: bool
) -> None:
    bound = Bound(connected, nbytes)
    if posted:
        bound.receive()
    bound.send()
    bound.peer.gather()
    bound.peer.qp.flush()
    ended = connected.reap(bound.peer)[0]
    if ended.status == Status.CANCELED:
        assert bound.window._is_bound()
    else:  # the other end had taken it, or begun to copy it: calls serve all queues now and then
        assert posted
        assert bound.completions() == [RECEIVED, UNBOUND]


def test_a_flush_of_the_owner_receives_arrived_messages(connected: Pair) -> None:
    bound = Bound(connected)
    bound.receive()
    bound.receive("never met")
    bound.send()
    bound.owner.qp.flush()
    never = (RequestType.RECEIVE, Status.CANCELED, "never met")
    assert bound.completions(3) == [RECEIVED, UNBOUND, never]
    assert statuses(connected.reap(bound.peer)) == [Status.SUCCESS]


@pytest.mark.parametrize("nbytes", [0, 8, 1024, 20_000])
@pytest.mark.parametrize("posted", [False, True])
def test_a_disconnect_of_the_sender(connected: Pair, nbytes: int, posted: bool) -> None:
    """Both sides agree whether it was received."""
    bound = Bound(connected, nbytes)
    if posted:
        bound.receive()
    bound.send()
    ending = bound.peer.connector.disconnect()
    assert connected.settle(ending, bound.peer) is Status.SUCCESS
    sent = connected.reap(bound.peer)[0]
    told = bound.completions(2 if sent.status == Status.SUCCESS else int(posted))
    assert (RECEIVED in told) == (UNBOUND in told) == (sent.status == Status.SUCCESS)


@pytest.mark.parametrize("nbytes", [0, 8, 1024, 20_000])
@pytest.mark.parametrize("posted", [False, True])
def test_a_disconnect_of_the_owner(connected: Pair, nbytes: int, posted: bool) -> None:
    """A message that has arrived and has a receive is delivered, with the window's end."""
    bound = Bound(connected, nbytes)
    if posted:
        bound.receive()
    bound.send()
    ending = bound.owner.connector.disconnect()
    assert connected.settle(ending, bound.owner) is Status.SUCCESS
    sent = connected.reap(bound.peer)[0]
    if posted:
        assert bound.completions() == [RECEIVED, UNBOUND]
    assert sent.status == (Status.SUCCESS if posted else Status.CANCELED)
    assert bound.owner.leftover() == []


def test_a_sender_that_dies(ends: Any, kill: Callable[[], int]) -> None:
    """What it sent before is delivered, with the window's end."""
    pair = ends.pair("two")
    pair.active, pair.passive = pair.passive, pair.active
    bound = Bound(pair.connect())
    bound.receive()
    bound.send()
    kill()
    told = [(RequestType(each.request_type), Status(each.status)) for each in bound.owner.reap(2)]
    assert told == [
        (RequestType.RECEIVE, Status.SUCCESS),
        (RequestType.INVALIDATE, Status.SUCCESS),
    ]


# The owner's queue


def test_the_results_take_no_place_of_the_queues_depth(make_pair: MakePair) -> None:
    """A queue of 16 entries, 64 windows: everything comes, in order, without a poll."""
    pair = make_pair(cq_depth=16, depth=64).connect()
    bound = Bound(pair)
    shown = bound.shown
    windows = []
    for number in range(64):
        window = bound.owner.adapter.create_memory_window()
        window._set_invalidate_context(("gone", number))
        bound.owner.qp.bind(shown.mr, window, shown.address, 8, flags=BOTH)
        assert statuses(pair.reap(bound.owner)) == [Status.SUCCESS]
        windows.append(window)
    for number, window in enumerate(windows):
        bound.receive(number)
        bound.send(window.remote_token)
    if pair.in_one_process:
        bound.owner.connector.disconnect()
        ended = bound.owner.reap(128)
    else:
        ended = pair.reap(bound.owner, 128)
    want = [context for number in range(64) for context in (number, ("gone", number))]
    assert [tuple(c) if isinstance(c, list) else c for c in contexts(ended)] == want
    assert set(statuses(ended)) == {Status.SUCCESS}


def test_contexts_are_let_go(ends: Any) -> None:
    """Of windows that end in every way: told, invalidated, closed, never invalidated."""

    class Context:
        pass

    pair = ends.pair("one").connect()
    bound = Bound(pair)
    alive = []
    for way in ("told", "invalidated", "closed", "connection over"):
        context = Context()
        alive.append(weakref.ref(context))
        window = bound.owner.adapter.create_memory_window()
        window._set_invalidate_context(context)
        bound.owner.qp.bind(bound.shown.mr, window, bound.shown.address, 8, flags=BOTH)
        pair.reap(bound.owner)
        if way == "told":
            bound.receive()
            bound.send(window.remote_token)
            told = pair.reap(bound.owner, 2)[1]
            assert told.request_context is context
            del told
            pair.reap(bound.peer)
        elif way == "invalidated":
            bound.owner.qp.invalidate(window)
            pair.reap(bound.owner)
        elif way == "closed":
            window.close()
        else:
            bound.owner.connector.disconnect().result(timeout=WAIT)
        window.close()
        del window, context
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4


def test_results_are_taken_one_at_a_time(ends: Any) -> None:
    pair = ends.pair("one").connect()
    bound = Bound(pair)
    bound.receive("first")
    bound.receive("second")
    bound.send()
    bound.peer.qp.send(bound.source.sge(0, 8), "plain")
    seen: list[Any] = []
    while len(seen) < 3:
        taken = bound.owner.cq.get_results(1)
        assert len(taken) <= 1
        seen += [Completion.of(result).request_context for result in taken]
        pair.active.gather()
    assert seen == ["first", GONE, "second"]


def test_posting_in_an_end_that_is_over_is_canceled(connected: Pair) -> None:
    bound = Bound(connected)
    connected.hang_up(bound.owner)
    bound.send()
    assert statuses(connected.reap(bound.peer)) == [Status.CANCELED]
    bound.peer.connector.disconnect()
    with nd_error(Status.CONNECTION_INVALID):
        bound.send()
