# SPDX-License-Identifier: Apache-2.0
"""The link between a connector and its queue pair: everything that touches the data plane.

A connector holds its queue pair weakly, because dropping the last reference to a queue pair
releases it. The queue pair notifies the link when that happens. Once it is connected it holds its
connector, so that the connection lasts as long as the queue pair, also without the connector.
"""

from __future__ import annotations

import enum
import functools
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from shmnd.common.arguments import wrong_kind
from shmnd.common.held import Held
from shmnd.common.weak import without_owner
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from shmnd.handshake.attempt import Attempt, ReadLimits
    from shmnd.handshake.interfaces import AdapterLike, QueuePairLike
    from shmnd.runtime.interfaces import LinkLike, PairDescription, PeerLike, Ticker
    from shmnd.runtime.progress import ProgressEngine

__all__ = [
    "UNDECIDED",
    "LinkStatus",
    "QpState",
    "QueuePairLink",
    "own_queue_pair",
]


class QpState(enum.IntEnum):
    """The state of a queue pair, numbered as in the compiled data plane."""

    IDLE = 0  # free for an attempt
    CONNECTING = 1  # taken by an attempt that has no link yet
    ATTACHED = 2  # has a link; the active side has not completed the connection
    CONNECTED = 3
    DOWN = 4  # was connected; the peer or an error has ended that
    CLOSED = 5  # disconnected by this side, or released


class LinkStatus(enum.Enum):
    """The state that a connector finds when it reads the link of its queue pair."""

    UNDECIDED = "neither side has decided yet"
    OPEN = "connected"
    REFUSED = "the other side gave up before it was connected"
    DOWN = "was connected, and the other side or an error has ended that"
    RELEASED = "the queue pair is gone"


# Looked up once: a member of an enumeration takes as long as a call.
UNDECIDED: Final = LinkStatus.UNDECIDED
_IDLE: Final = int(QpState.IDLE)
_ATTACHED: Final = int(QpState.ATTACHED)

_FOUND: Final[Mapping[int, LinkStatus | None]] = {
    QpState.IDLE: LinkStatus.UNDECIDED,
    QpState.CONNECTING: LinkStatus.UNDECIDED,
    QpState.ATTACHED: None,
    QpState.CONNECTED: LinkStatus.OPEN,
    QpState.DOWN: LinkStatus.DOWN,
    QpState.CLOSED: LinkStatus.RELEASED,
}
"""The state of the link for each state of the queue pair; None: `_peer_gave_up` decides it."""


def own_queue_pair(qp: object, adapter: AdapterLike, call: str) -> QueuePairLike:
    """Return a queue pair of this adapter; raise INVALID_PARAMETER_1 for anything else."""
    if not callable(getattr(qp, "_begin_connect", None)):
        raise error(Status.INVALID_PARAMETER_1, call, wrong_kind(qp, "QueuePair"))
    pair = cast("QueuePairLike", qp)
    if pair._adapter is not adapter:
        raise error(Status.INVALID_PARAMETER_1, call, "the queue pair is of another adapter")
    return pair


# Not in the QueuePairLink objects: when a cycle of garbage is collected, the weak references inside
# it are cleared before the finalisers run, and a connector could not disconnect any more.
_pairs: dict[int, weakref.ref[QueuePairLike]] = {}
_numbers = itertools.count()


class QueuePairLink:
    """A queue pair that belongs to one attempt of one connector."""

    def __init__(self, engine: ProgressEngine, qp: QueuePairLike) -> None:
        self._engine = engine
        self._number = number = next(_numbers)
        # No function in Python: a handler that raised as it began would leave the entry for ever.
        _pairs[number] = weakref.ref(qp, functools.partial(_pairs.pop, number))
        self._taken = False
        self._released = False
        self.attached = False
        """Whether the queue pair is bound to a link, or was."""
        self.given_up = False
        """Whether `give_up` was called."""
        self._listener: Callable[[], None] | None = None

    def take(self, qp: QueuePairLike, call: str) -> None:
        """Take the queue pair if it is free; CONNECTION_ACTIVE or CANCELED when it is not.

        The constructor does not take it: where the handler of a signal raises in here, the caller
        has this object and can call `give_up`.
        """
        with Held(self._engine.attempts):
            if qp._state != _IDLE:
                raise _not_free(qp._state, call)
            self._taken = True  # before the call, behind which a handler may raise
            qp._begin_connect()
        qp._on_release(_release_callback(self))

    def when_released(self, callback: Callable[[], None]) -> None:
        """Set a method that is called when the queue pair is released. It must not wait."""
        self._listener = without_owner(callback)

    def keep(self, connector: object) -> None:
        """Let the queue pair, which is connected, hold the connector until the connection ends."""
        qp = self._living
        if qp is not None:
            qp._on_release(_release_callback(self, connector))

    def queue_pair_released(self) -> None:
        """Note that the queue pair is being closed or dropped; it notifies its peer itself."""
        self._released = True
        if self._listener is not None:
            self._listener()

    @property
    def _living(self) -> QueuePairLike | None:
        pair = _pairs.get(self._number)
        return None if self._released or pair is None else pair()

    def describe(self) -> PairDescription:
        """Return the numbers that the other end needs; none if the pair is gone."""
        qp = self._living
        return () if qp is None else qp._describe()

    def answer(self, attempt: Attempt, peer: PeerLike, limits: ReadLimits) -> LinkLike:
        """Make the link, bind the queue pair to it, and return the link. For the passive side."""
        qp = self._require_living("Connector.accept")
        assert attempt.theirs is not None
        assert attempt.mine is not None
        remote = attempt.theirs.qp
        link = self._engine.data_plane.create_link(attempt.mine.qp, remote)
        self._attach(qp, link, peer, attempt, limits, active=False)
        return link

    def take_answer(
        self, attempt: Attempt, fd: int, size: int, peer: PeerLike, limits: ReadLimits
    ) -> None:
        """Map the link that the other side made, and bind the queue pair. For the active side.

        The descriptor stays the caller's.
        """
        assert attempt.theirs is not None
        assert attempt.mine is not None
        remote = attempt.theirs.qp
        qp = self._require_living("Connector.connect")
        if qp._state != _ATTACHED:  # else by a call that the handler of a signal has interrupted
            link = self._engine.data_plane.attach_link(fd, size, attempt.mine.qp, remote)
            self._attach(qp, link, peer, attempt, limits, active=True)

    def _attach(
        self,
        qp: QueuePairLike,
        link: LinkLike,
        peer: PeerLike,
        attempt: Attempt,
        limits: ReadLimits,
        *,
        active: bool,
    ) -> None:
        assert attempt.theirs is not None
        qp._set_outbound_read_limit(limits.outbound)
        qp._attach(link, peer, attempt.theirs.qp, active, (attempt.local, attempt.peer))
        self.attached = True

    def _require_living(self, call: str) -> QueuePairLike:
        qp = self._living
        if qp is None:
            raise error(Status.CANCELED, call, "the queue pair was released")
        return qp

    def await_news(self, connector: Ticker) -> None:
        """Let the connector be polled when the link changes, or at once without a queue pair."""
        qp = self._living
        if qp is None:
            self._engine.pending_operations.poll_soon(connector)
        else:
            self._engine.pending_operations.add_link(connector, qp)

    def poll(self) -> LinkStatus:
        """Read the state of the link once, and return it."""
        pair = None if self._released else _pairs.get(self._number)
        qp = None if pair is None else pair()
        if qp is None:
            return LinkStatus.RELEASED
        qp._progress()
        found = _FOUND[qp._state]
        if found is None:
            # The peer may have opened and closed since `_progress`; the next poll reads that.
            return LinkStatus.REFUSED if qp._peer_gave_up else UNDECIDED
        return found

    def open(self) -> None:
        """Complete the connection. For the active side."""
        self._require_living("Connector.complete_connect")._open()

    def give_up(self, *, rejected: bool = False) -> None:
        """End the attempt: notify the other side if there is a link, and free the queue pair.

        A call that a handler of a signal has interrupted is continued by the next one.
        """
        self.given_up = True
        qp = self._living if self._taken else None
        if qp is None:
            _pairs.pop(self._number, None)
            return
        qp._on_release(None)
        try:
            if self.attached or qp._state == _ATTACHED:
                qp._abandon(rejected)
                qp._detach()
            else:
                del _pairs[self._number]  # no call, behind which a handler could raise
                qp._end_connect()
        except NdError:
            pass  # it was closed by another thread just now, and notified its peer itself
        _pairs.pop(self._number, None)

    def ending(self, done: Callable[[], object]) -> Callable[[], bool]:
        """Return a function that ends the connection, for polls to call until it returns True.

        It calls `done` when nothing of the connection is left to do.
        """
        qp = self._living
        begun = False

        def step() -> bool:
            nonlocal begun
            self._drop_pair()
            if qp is not None:
                ended = _ended(qp._disconnect_step if begun else qp._disconnect)
                begun = True
                if not ended:
                    return False
            done()
            return True

        return step

    def _drop_pair(self) -> None:
        qp = self._living
        if qp is not None:
            qp._on_release(None)
        _pairs.pop(self._number, None)


def _ended(step: Callable[[], bool]) -> bool:
    try:
        return step()
    except NdError:
        return True  # it was closed by another thread just now


def _release_callback(qp_link: QueuePairLink, kept: object = None) -> Callable[[], None]:
    """Return a function for the end of a queue pair; it keeps `kept` alive, and not the link."""
    ref = weakref.ref(qp_link)

    def released(_kept: object = kept) -> None:
        living = ref()
        if living is not None:
            living.queue_pair_released()

    return released


def _not_free(state: int, call: str) -> NdError:
    if state == QpState.CLOSED:
        return error(
            Status.CANCELED, call, "the queue pair was disconnected or released; make a new one"
        )
    return error(
        Status.CONNECTION_ACTIVE,
        call,
        f"the queue pair is {QpState(state).name.lower()} already; make a new one",
    )
