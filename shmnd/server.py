# SPDX-License-Identifier: Apache-2.0
"""Making connections that carry messages: `listen`, `connect`, and the `Server` between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from shmnd.broker.protocol import written
from shmnd.common.closing import Closing
from shmnd.common.deadline import deadline_of, left_until
from shmnd.connection import Connection
from shmnd.messaging.endpoints import READS, Ends, Plan, SharedAdapter
from shmnd.messaging.fragments import Terms
from shmnd.provider import open_adapter
from shmnd.status import NdError, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shmnd.adapter import Adapter
    from shmnd.connector import Connector
    from shmnd.overlapped import Overlapped

__all__ = ["Server", "aconnect", "connect", "listen"]

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
    """Listen at an address; port 0 takes a free one, which `Server.address` names.

    Each connection has `nbytes` of memory for the program's own use, and about as many in each
    direction for messages, in `depth` pieces.
    """
    return Server(address, Plan.checked(nbytes, depth, "listen"), namespace, group)


def connect(
    address: tuple[str, int],
    *,
    nbytes: int = 1 << 20,
    depth: int = 64,
    timeout: float | None = 10,
    namespace: str | None = None,
    group: int | str | None = None,
) -> Connection:
    """Connect to a `listen` at an address.

    ConnectionRefusedError when nothing listens there, TimeoutError when the server does not
    accept within `timeout` seconds. `nbytes` and `depth` are as in `listen`; of two different
    depths the smaller one counts.
    """
    deadline = deadline_of(timeout, "connect")
    attempt = _Attempt(address, Plan.checked(nbytes, depth, "connect"), namespace, group)
    try:
        attempt.asked.result(left_until(deadline))
        return attempt.connection()
    except BaseException:
        attempt.close()
        raise


async def aconnect(
    address: tuple[str, int],
    *,
    nbytes: int = 1 << 20,
    depth: int = 64,
    timeout: float | None = 10,
    namespace: str | None = None,
    group: int | str | None = None,
) -> Connection:
    """Connect as `connect` does, and let other tasks run meanwhile."""
    deadline = deadline_of(timeout, "aconnect")
    attempt = _Attempt(address, Plan.checked(nbytes, depth, "aconnect"), namespace, group)
    try:
        async with asyncio.timeout(left_until(deadline)):
            await attempt.asked
        return attempt.connection()
    except TimeoutError as exc:
        attempt.close()
        if isinstance(exc, NdError):
            raise
        raise TimeoutError(
            f"aconnect: {address!r} did not accept within {timeout} seconds"
        ) from None
    except BaseException:
        attempt.close()
        raise


class _Attempt:
    """A connection that was asked for."""

    def __init__(
        self,
        address: tuple[str, int],
        plan: Plan,
        namespace: str | None,
        group: int | str | None,
    ) -> None:
        self._shared = SharedAdapter(open_adapter(namespace=namespace, group=group))
        self._shared.take()
        self._ends: Ends | None = None
        try:
            adapter = self._shared.adapter
            self._ends = ends = Ends.made(adapter, adapter.create_connector(), plan)
            self.asked: Overlapped = ends.connector.connect(
                ends.qp, address, READS, READS, ends.terms()
            )
        except BaseException:
            self.close()
            raise

    def connection(self) -> Connection:
        """Complete the connection, when the peer has accepted."""
        ends = self._ends
        assert ends is not None
        theirs = Terms.unpack(ends.connector.get_private_data())
        if theirs is None:
            ends.connector.reject()
            raise ConnectionError(
                "connect: the peer is not a shmnd.listen; connect to it with Connector.connect"
            )
        ends.agree(theirs)
        ends.connector.complete_connect().result()
        made = Connection(self._shared, ends)
        self._shared.give_back()
        return made

    def close(self) -> None:
        """Release everything: nothing came of it."""
        if self._ends is not None:
            self._ends.close()
        self._shared.give_back()


class ServerClosedError(OSError):
    """The server was closed: it accepts no connections any more."""


class _Offer(NamedTuple):
    """A connector that waits for a request, or holds one."""

    connector: Connector
    overlapped: Overlapped


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
        self._closed = True  # until all is made
        self._plan: Final = plan
        self._shared: Final = SharedAdapter(open_adapter(namespace=namespace, group=group))
        self._shared.take()
        try:
            self._listener = self._shared.adapter.create_listener()
            self._listener.bind(address)
            self._listener.listen()
            self.address: Final[tuple[str, int]] = self._listener.get_local_address()
            """Where it listens."""
        except BaseException:
            self._shared.give_back()
            raise
        self._closed = False
        self._waiting: _Offer | None = None

    @property
    def adapter(self) -> Adapter:
        """The adapter, which its connections share."""
        return self._shared.adapter

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._closed

    def accept(self, timeout: float | None = None) -> Connection:
        """Wait for a connection and return it; TimeoutError when `timeout` seconds end first."""
        call = "Server.accept"
        deadline = deadline_of(timeout, call)
        while True:
            offer = self._offer(call)
            try:
                offer.overlapped.result(left_until(deadline))
            except TimeoutError as exc:
                if isinstance(exc, NdError):
                    raise
                raise self._late(call, timeout) from None
            except NdError as err:
                raise self._over(call, err) from err
            ends = self._answer(offer)
            if ends is None:
                continue
            try:
                ends[1].result(_PATIENCE)
            except (NdError, TimeoutError):
                ends[0].close()  # the peer gave up, or does not complete
                continue
            except BaseException:
                ends[0].close()
                raise
            return Connection(self._shared, ends[0])

    async def aaccept(self, timeout: float | None = None) -> Connection:
        """Wait for a connection as `accept` does, and let other tasks run meanwhile."""
        call = "Server.aaccept"
        deadline = deadline_of(timeout, call)
        while True:
            offer = self._offer(call)
            try:
                async with asyncio.timeout(left_until(deadline)):
                    await offer.overlapped
            except TimeoutError as exc:
                if isinstance(exc, NdError):
                    raise
                raise self._late(call, timeout) from None
            except NdError as err:
                raise self._over(call, err) from err
            ends = self._answer(offer)
            if ends is None:
                continue
            try:
                async with asyncio.timeout(_PATIENCE):
                    await ends[1]
            except (NdError, TimeoutError):
                ends[0].close()
                continue
            except BaseException:
                ends[0].close()
                raise
            return Connection(self._shared, ends[0])

    def __iter__(self) -> Iterator[Connection]:
        """Return connections as they come, until the server is closed."""
        while not self._closed:
            try:
                connection = self.accept()
            except ServerClosedError:
                return
            yield connection

    async def __aiter__(self) -> AsyncIterator[Connection]:
        """Return connections as they come, until the server is closed."""
        while not self._closed:
            try:
                connection = await self.aaccept()
            except ServerClosedError:
                return
            yield connection

    def _offer(self, call: str) -> _Offer:
        """Return the request that waits since an earlier call, or ask for the next one."""
        if self._closed:
            raise ServerClosedError(f"{call}: the server is closed")
        offer = self._waiting
        if offer is None:
            connector = self._shared.adapter.create_connector()
            offer = _Offer(connector, self._listener.get_connection_request(connector))
            self._waiting = offer
        return offer

    def _answer(self, offer: _Offer) -> tuple[Ends, Overlapped] | None:
        """Accept a request; None when its peer gave up, or does not speak this way."""
        self._waiting = None
        connector = offer.connector
        ends: Ends | None = None
        try:
            theirs = Terms.unpack(connector.get_private_data())
            if theirs is None:
                connector.reject(_NOT_OURS)
                return None
            ends = Ends.made(self._shared.adapter, connector, self._plan)
            ends.agree(theirs)
            return ends, connector.accept(ends.qp, READS, READS, ends.terms())
        except BaseException as exc:
            if ends is not None:
                ends.close()
            connector.close()
            if isinstance(exc, NdError) and exc.status in _OVER:
                return None
            raise

    def _late(self, call: str, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{call}: nothing connected to {self.address} in {timeout} seconds")

    def _over(self, call: str, err: NdError) -> Exception:
        if self._closed or err.status is Status.CANCELED:
            return ServerClosedError(f"{call}: the server is closed")
        return err

    def close(self) -> None:
        """Stop listening. Connections live on; a waiter in `accept` gets OSError."""
        if self._closed:
            return
        self._closed = True
        self._listener.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.connector.close()
        self._shared.give_back()

    def __repr__(self) -> str:
        state = "closed, was" if self._closed else "listening"
        plan = self._plan
        return (
            f"<Server {state} at {written(self.address)}, connections of {plan.nbytes} bytes and "
            f"depth {plan.depth}>"
        )
