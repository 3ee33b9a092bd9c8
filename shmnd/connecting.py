# SPDX-License-Identifier: Apache-2.0
"""Asking for connections that carry messages: `connect` and `aconnect`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from shmnd.address import parse
from shmnd.broker.place import place_of
from shmnd.common.deadline import end_of, left_until
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.late import asyncio
from shmnd.connection import Connection
from shmnd.messaging.endpoints import READS, Ends, Plan, SharedAdapter
from shmnd.messaging.fragments import EndTerms
from shmnd.provider import open_adapter
from shmnd.runtime.broker.broker_calls import BrokerCall, BrokerCalls
from shmnd.status import NdError, Status, error, renamed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmnd.overlapped import Overlapped

__all__ = ["aconnect", "connect"]

_GIVEN_UP: Final = (Status.CONNECTION_INVALID, Status.CONNECTION_ABORTED)
"""What the last steps say where the peer has accepted, and closed its end since."""


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

    ConnectionRefusedError when nothing listens there or the server closes meanwhile, TimeoutError
    when it does not accept within `timeout` seconds. `nbytes` and `depth` are as in `listen`; of
    two different depths the smaller one counts.
    """
    end = end_of(timeout, "connect")
    plan = Plan.checked(nbytes, depth, "connect")
    attempt = _Attempt("connect", address, plan, namespace, group)
    with attempt.or_nothing(timeout):
        attempt.begin()
        if not attempt.asking.wait(left_until(end)):
            raise TimeoutError
        attempt.asking.result().result(left_until(end))
        return attempt.connection()


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
    end = end_of(timeout, "aconnect")
    plan = Plan.checked(nbytes, depth, "aconnect")
    attempt = _Attempt("aconnect", address, plan, namespace, group)
    with attempt.or_nothing(timeout):
        attempt.begin()
        async with asyncio.timeout(left_until(end)):
            await (await attempt.asking)
        return attempt.connection()


_SHORT: Final = 1.0
"""Seconds in which a broker that runs, or that has to be started, mostly answers."""


class _Attempt:
    """A connection that is asked for, if need be in a thread that may wait for the broker."""

    def __init__(
        self,
        call: str,
        address: tuple[str, int],
        plan: Plan,
        namespace: str | None,
        group: int | str | None,
    ) -> None:
        parse(address, call, 1)
        self._call = call
        self._address = address
        self._plan = plan
        try:
            self._place = place_of(namespace, group=group)
        except NdError as exc:
            pass_on(exc)
            raise renamed(exc, call) from exc.__cause__
        self._named = namespace, group
        self._shared: SharedAdapter | None = None
        self._ends: Ends | None = None
        self._given_up = False
        self.asking: Final = BrokerCall(self._ask)

    def begin(self) -> None:
        """Open an adapter, and ask for the connection, or begin to."""
        BrokerCalls.of(self._place).begin(self.asking, self._release)

    def _ask(self) -> Overlapped:
        if self._given_up:
            raise error(Status.CANCELED, self._call, "given up")  # it reaches no caller
        namespace, group = self._named
        self._shared = shared = SharedAdapter(open_adapter(namespace=namespace, group=group))
        shared.take(self)
        adapter = shared.adapter
        self._ends = ends = Ends.made(adapter, adapter.create_connector(), self._plan)
        return ends.connector.connect(ends.qp, self._address, READS, READS, ends.terms())

    @contextlib.contextmanager
    def or_nothing(self, timeout: float | None) -> Iterator[None]:
        """Release everything where the block fails. The error names the call of the program."""
        try:
            yield
        except BaseException as exc:
            self.close()
            if is_interruption(exc):
                raise
            if isinstance(exc, NdError):
                raise renamed(exc, self._call) from exc.__cause__
            if isinstance(exc, TimeoutError):
                raise self._late(timeout) from None
            raise

    def _late(self, timeout: float | None) -> TimeoutError:
        """Return the error of a time-out that has ended."""
        call = self._call
        if self.asking.over:
            return TimeoutError(
                f"{call}: {self._address!r} did not accept within {timeout} seconds"
            )
        hint = "is it stopped? 'shmnd broker stop' ends it, the next call that needs one starts"
        hint += " another"
        if timeout is not None and timeout < _SHORT:
            hint = "pass a longer time-out: it may have to start"
        return TimeoutError(
            f"{call}: the broker at {self._place.socket} did not answer within {timeout} seconds;"
            f" {hint}"
        )

    def connection(self) -> Connection:
        """Complete the connection that the peer has accepted, and return it."""
        ends, shared = self._ends, self._shared
        assert ends is not None
        assert shared is not None
        try:
            self._complete(ends)
        except NdError as exc:
            if exc.status not in _GIVEN_UP or is_interruption(exc):
                raise
            text = f"the server at {self._address!r} was closed before the connection was complete"
            raise error(Status.CONNECTION_REFUSED, self._call, text) from None
        made = Connection(shared, ends)
        shared.give_back(self)
        return made

    def _complete(self, ends: Ends) -> None:
        theirs = EndTerms.unpack(ends.connector.get_private_data())
        if theirs is None:
            ends.connector.reject()
            raise ConnectionError(
                f"{self._call}: the peer is not a shmnd.listen; connect to it with"
                " Connector.connect"
            )
        ends.agree(theirs)
        ends.connector.complete_connect().result()

    def close(self) -> None:
        """Release everything, as soon as the thread is done with it: nothing came of it."""
        self._given_up = True
        self.asking.when_over(self._release)

    def _release(self) -> None:
        ends, shared = self._ends, self._shared
        if ends is not None:
            ends.close()
        if shared is not None:
            shared.give_back(self)
        self._ends = self._shared = None  # last: an interrupted release is continued
