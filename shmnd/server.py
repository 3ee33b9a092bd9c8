# SPDX-License-Identifier: Apache-2.0
"""Accepting connections that carry messages: `listen`, and the `Server` that it returns."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from shmnd.address import parse
from shmnd.broker.place import place_of
from shmnd.broker.protocol import written
from shmnd.common.brief_waits import TooLate
from shmnd.common.closing import Closing, made_by
from shmnd.common.deadline import end_of, left_until
from shmnd.common.held import Held
from shmnd.common.interruption import is_interruption, may_be_interrupted, pass_on
from shmnd.common.late import asyncio
from shmnd.connection import Connection
from shmnd.handshake.attempt import State
from shmnd.messaging.endpoints import READS, Arrival, Ends, Offer, Plan, SharedAdapter
from shmnd.messaging.errors import ServerClosedError
from shmnd.messaging.fragments import EndTerms
from shmnd.messaging.loops import ArrivalLoop
from shmnd.overlapped import Overlapped
from shmnd.provider import open_adapter
from shmnd.runtime.broker.broker_calls import BrokerCall, BrokerCalls
from shmnd.status import OWN_IN_CHILD, NdError, Status, error, renamed
from shmnd.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmnd.adapter import Adapter
    from shmnd.connector import Connector

__all__ = ["Server", "listen"]

_PATIENCE: Final = 10.0
"""Seconds that an accepted peer has to complete its connection."""
_OVER: Final = (Status.CONNECTION_ABORTED, Status.CONNECTION_REFUSED, Status.CONNECTION_INVALID)
_NOT_OURS: Final = b"shmnd.listen: connect with shmnd.connect"


def listen(
    address: tuple[str, int] = ("127.0.0.1", 0),
    *,
    nbytes: int = 1 << 20,
    depth: int = 64,
    namespace: str | None = None,
    group: int | str | None = None,
) -> Server:
    """Return a server that listens at an address; port 0 takes a free one, see `Server.address`.

    Each connection has `nbytes` of memory for the program's own use, and about as many in each
    direction for messages, in `depth` pieces.
    """
    call = "listen"
    parse(address, call, 1)
    plan = Plan.checked(nbytes, depth, call)
    try:
        return Server(address, plan, namespace, group)
    except NdError as exc:
        pass_on(exc)
        raise renamed(exc, call) from exc.__cause__


@made_by("shmnd.listen")
class Server(Closing):
    """Listens at an address, and returns connections: `accept`, `aaccept`, `for`, `async for`.

    Connections live on when the server is closed.
    """

    def __init__(
        self,
        address: tuple[str, int],
        plan: Plan,
        namespace: str | None,
        group: int | str | None,
    ) -> None:
        self._closed = self._ended = True  # until all is made
        self._pid = os.getpid()
        self._plan: Final = plan
        self._shared: Final = SharedAdapter(open_adapter(namespace=namespace, group=group))
        self._shared.take(self)
        try:
            self._listener = self._shared.adapter.create_listener()
            self._listener.bind(address)
            self._listener.listen()
            self.address: Final[tuple[str, int]] = self._listener.get_local_address()
            """Where it listens."""
        except BaseException:
            self._shared.give_back(self)
            raise
        self._broker_calls: Final = BrokerCalls.of(place_of(namespace, group=group))
        self._lock = threading.RLock()
        self._answer_lock = threading.RLock()
        self._answering: BrokerCall[None] | None = None
        self._waiting: Offer | None = None
        self._arrivals: dict[int, Arrival] = {}  # by their `id`
        self._refused: dict[int, Arrival | Connector | None] = {}  # taken out to be closed
        self._places = itertools.count(-1, -1)  # of arrivals there; connectors have their ids
        self._waiter: Waiter | None = None
        self._closed = self._ended = False

    @property
    def adapter(self) -> Adapter:
        """The adapter, which its connections share."""
        return self._shared.adapter

    @property
    def closed(self) -> bool:
        """Whether the server is closed."""
        return self._closed

    def accept(self, timeout: float | None = None) -> Connection:
        """Wait for a connection and return it; TimeoutError when `timeout` seconds end first.

        With 0 it does what can be done now: a connection takes several such calls.
        """
        call = "Server.accept"
        end = end_of(timeout, call)
        while True:
            arrival, news = self._poll(call, sleeps=timeout != 0)
            with self._waits(news, call, timeout):
                if arrival is None:
                    news.result(left_until(end))
            if arrival is not None and (connection := self._taken(arrival)) is not None:
                return connection

    async def aaccept(self, timeout: float | None = None) -> Connection:
        """Wait for a connection as `accept` does, and let other tasks run meanwhile."""
        call = "Server.aaccept"
        end = end_of(timeout, call)
        while True:
            arrival, news = self._poll(call)
            with self._waits(news, call, timeout):
                if arrival is None:
                    async with asyncio.timeout(left_until(end)):
                        await news
            if arrival is not None and (connection := self._taken(arrival)) is not None:
                return connection

    def __iter__(self) -> ArrivalLoop[Connection]:
        """Return the connections as they come, until the server is closed."""
        return ArrivalLoop(self)

    def __aiter__(self) -> ArrivalLoop[Connection]:
        """Return the connections as they come, until the server is closed."""
        return ArrivalLoop(self)

    # -- descriptors --

    def fileno(self) -> int:
        """Return a descriptor that is readable when `accept(0)` may go one step further.

        For `select`, selectors and event loops. A connection takes several such calls, of which
        all but the last one end with TimeoutError.
        """
        self._require_open("Server.fileno")
        if self._waiter is None:
            self._waiter = Waiter(self.adapter, self._has_news)
        return self._waiter.fileno()

    def _require_open(self, call: str) -> None:
        if self._closed:
            raise ServerClosedError(f"{call}: the server is closed")
        if self._pid != os.getpid():
            raise error(Status.DEVICE_REMOVED, call, f"the server {OWN_IN_CHILD}")

    def _has_news(self) -> bool:
        return self._is_news() is not None

    def _rest(self) -> None:
        if self._waiter is not None and not self._closed:
            self._waiter.rest()

    # -- requests, and the connections that come of them --

    def _poll(self, call: str, sleeps: bool = False) -> tuple[Arrival | None, Overlapped]:
        """Return an arrival whose connection is made, if there is one, and an operation that is
        over when there is something new, for which the caller waits, and `sleeps` or not.

        A request is accepted while another peer has not completed its own: no peer waits for it.
        """
        self._require_open(call)  # in a forked child another thread may have had the lock
        engine = self._shared.adapter._engine
        engine.check(call)
        with Held(self._lock):
            answering = self._answering
            if answering is not None and answering.over:
                self._answering = None
                try:
                    answering.result()
                except NdError as exc:
                    pass_on(exc)
                    raise renamed(exc, call) from exc.__cause__
            arrival = self._complete()
            if self._answering is None and (
                self._waiting is None or self._waiting.overlapped._over()
            ):
                answering = BrokerCall(self._answer)
                # A handler of a signal may end this call, but not the answer to a peer. This thread
                # sleeps meanwhile, and so takes no turns with the other one.
                self._broker_calls.begin(answering, apart=sleeps and may_be_interrupted())
                self._answering = answering
                answering.when_over(self._ring)
            return arrival, Overlapped(engine, None, None, call, self._is_news)

    @contextlib.contextmanager
    def _waits(self, news: Overlapped, call: str, timeout: float | None) -> Iterator[None]:
        """Wait for news in the block, and end that; name the call whose time is over."""
        try:
            yield
        except TimeoutError as exc:
            pass_on(exc)
            raise self._late(call, timeout) from None
        except NdError:
            if not self._closed:
                raise  # else the server was closed meanwhile, and maybe its adapter
        finally:
            news._complete(Status.SUCCESS)
            self._rest()

    def _complete(self) -> Arrival | None:
        """Return an arrival that its peer has completed, with its connection made, or None.

        Arrivals that failed or took too long are dropped. The one returned stays an arrival until
        a call returns its connection: the handler of a signal may raise before.
        """
        if self._refused:
            self._end_refused()  # of a call that was interrupted
        now = time.monotonic()
        for arrival in [*self._arrivals.values()]:
            status = arrival.overlapped.status
            if status is Status.SUCCESS:
                if not arrival.made:
                    # One step for handlers: the connection is in the list, or not made.
                    arrival.made.extend(map(Connection, (self._shared,), (arrival.ends,)))
                return arrival
            if status is Status.PENDING and now < arrival.until:
                continue
            self._refuse([id(arrival)])  # the peer gave up, or does not complete
        return None

    def _refuse(self, keys: list[int]) -> None:
        """End arrivals that no call returns, unless another thread has taken them."""
        # Each moves in one step, for handlers of signals and for threads that take it as well, and
        # to a place of its own: the None of a thread that comes too late replaces nothing.
        taken = map(self._arrivals.pop, keys, itertools.repeat(None))
        self._refused.update(zip(self._places, taken, strict=False))
        self._end_refused()

    def _end_refused(self) -> None:
        for key, each in [*self._refused.items()]:
            if each is not None:
                each.close()
            self._refused.pop(key, None)  # last: what a handler has interrupted is called again

    def _taken(self, arrival: Arrival) -> Connection | None:
        """Return the connection of an arrival; None where another thread has taken it."""
        connection: Connection = arrival.made[0]
        mine = False
        try:
            del self._arrivals[id(arrival)]
            mine = True  # no handler of a signal runs between the two
            self._rest()
        except BaseException as exc:
            if mine:
                self._arrivals[id(arrival)] = arrival
            elif isinstance(exc, KeyError) and not is_interruption(exc):
                return None
            raise
        return connection

    def _is_news(self) -> Status | None:
        """Return SUCCESS if a waiting call finds something new."""
        answering, waiting = self._answering, self._waiting
        if answering is not None:
            asked = answering.over
        else:
            asked = waiting is None or waiting.overlapped._over()
        if self._closed or asked:
            return Status.SUCCESS
        now = time.monotonic()
        # No generator, whose end would swallow what a handler of a signal raises there.
        for each in [*self._arrivals.values()]:
            if each.is_over(now):
                return Status.SUCCESS
        return None

    def _answer(self) -> None:
        """Accept the request that has come, and ask for the next one.

        A call with brief waits that ends with TooLate leaves the rest to the next one. Where a
        handler of a signal ended the call that began one, the next call may begin another.
        """
        with Held(self._answer_lock):
            self._answer_alone()

    def _answer_alone(self) -> None:
        offer, adapter = self._waiting, self._shared.adapter
        if offer is not None and offer.overlapped._over():
            try:
                self._waiting = None
                arrival = self._accepted(offer)
            except BaseException:
                if offer.connector._state is State.OFFERED:
                    self._waiting = offer  # the next call accepts it
                raise
            if arrival is not None:
                self._arrivals[id(arrival)] = arrival
                adapter._engine.wake_at(arrival.until)
        if not self._closed and self._waiting is None:
            connector = adapter.create_connector()
            asked = self._listener.get_connection_request(connector)
            asked._waiters.append(self._ring)
            self._waiting = Offer(connector, asked)
        if self._closed:
            self._drop()

    def _accepted(self, offer: Offer) -> Arrival | None:
        """Accept a request and return its arrival; None if the peer gave up or sent no terms."""
        connector = offer.connector
        ends: Ends | None = None
        try:
            offer.overlapped.result(0)
            theirs = EndTerms.unpack(connector.get_private_data())
            if theirs is None:
                connector.reject(_NOT_OURS)
                return None
            ends = Ends.made(self._shared.adapter, connector, self._plan)
            ends.agree(theirs)
            overlapped = connector.accept(ends.qp, READS, READS, ends.terms())
            overlapped._waiters.append(self._ring)
            return Arrival(ends, overlapped, time.monotonic() + _PATIENCE, [])
        except BaseException as exc:
            # Also where a handler of a signal raised before the answer was on its way.
            kept = connector._state is State.OFFERED and is_interruption(exc)
            if kept or isinstance(exc, TooLate):
                if ends is not None:
                    ends.close_queues()
                raise
            with Held(connector._lock):
                connector._broker.note_failure(exc)  # the peer's Connect names a shortage
            if ends is not None:
                ends.close()
            connector.close()
            if isinstance(exc, NdError) and exc.status in _OVER:
                return None
            raise

    def _ring(self) -> None:
        """Let another poll look for news: a poll that ended an operation may have looked before."""
        engine = self._shared.adapter._engine
        if engine.alive:
            engine.ring()

    def _late(self, call: str, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{call}: nothing connected to {self.address} in {timeout} seconds")

    def close(self) -> None:
        """Stop listening. Connections live on; a waiter in `accept` gets OSError."""
        if self._ended:
            return  # else an interrupted close is continued
        self._closed = True
        if self._waiter is not None:
            self._waiter.close()
        self._listener.close()
        self._drop()
        self._ring()
        self._shared.give_back(self)
        self._ended = True

    def _drop(self) -> None:
        """Refuse the request that waits, and end the connections that no call has taken."""
        # It moves in one step, for handlers of signals and for threads that take it as well.
        waiting = self._waiting
        key = id(waiting and waiting.connector)
        if waiting is not None and self._waiting is waiting:
            self._waiting, self._refused[key] = None, waiting.connector
        self._refuse([*self._arrivals])

    def __repr__(self) -> str:
        state = "closed, was" if self._closed else "listening"
        plan = self._plan
        return (
            f"<Server {state} at {written(self.address)}, connections of {plan.nbytes} bytes and "
            f"depth {plan.depth}>"
        )
