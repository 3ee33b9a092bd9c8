# SPDX-License-Identifier: Apache-2.0
"""The listener: an address where connection requests arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmnd.address import into, pack_sockaddr, parse
from shmnd.broker.protocol import written
from shmnd.common.arguments import within, wrong_kind
from shmnd.common.brief_waits import refuse_brief_wait
from shmnd.common.closing import made_by
from shmnd.common.held import Held
from shmnd.common.steps import step
from shmnd.connector import Connector
from shmnd.handshake.port import TCP, Port, PortHolder
from shmnd.overlapped import Overlapped, OverlappedFile
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.runtime.interfaces import Event

__all__ = ["Listener"]

_BACKLOG_MAX: Final = 2**31 - 1
"""A longer backlog is silently cut to this."""
_CERTAINLY_TAKEN: Final = 1024
"""The number of outstanding requests of a listener that the broker accepts in any case."""


@made_by("Adapter.create_listener")
class Listener(PortHolder):
    """Waits at an address, and passes each connection request to a connector."""

    def __init__(
        self,
        adapter: AdapterLike,
        overlapped_file: OverlappedFile | None = None,
        *,
        protocol: int = TCP,
    ) -> None:
        super().__init__(adapter, overlapped_file, protocol=protocol)
        self._listening = False
        self._closed = False
        self._numbers: dict[Overlapped, int] = {}  # of the connectors that wait

    def bind(self, address: tuple[str, int]) -> None:
        """Choose the address and port; the any-address means all addresses, port 0 a free port."""
        call = "Listener.bind"
        self._check(call)
        wanted = parse(address, call, 1)
        with Held(self._lock):
            self._require_open(call)
            if self._port is not None:
                raise error(
                    Status.ADDRESS_ALREADY_ASSOCIATED,
                    call,
                    f"the listener is bound to {self._port.address}; create one for each address",
                )
            self._bind_port("listener", wanted, call)

    def listen(self, backlog: int = 0) -> None:
        """Start to listen; at most `backlog` requests wait in the queue (0: no limit)."""
        call = "Listener.listen"
        self._check(call)
        backlog = within(call, 1, "backlog", backlog, 0)
        with Held(self._lock):
            self._require_open(call)
            if self._port is None:
                raise error(
                    Status.INVALID_DEVICE_STATE, call, "the listener is not bound; call bind first"
                )
            if self._listening:
                raise error(
                    Status.INVALID_DEVICE_STATE, call, f"listening at {self._port.address} already"
                )
            self._port.listen(min(backlog, _BACKLOG_MAX), call)
            self._listening = True

    def get_local_address(self) -> tuple[str, int]:
        """Return the address of the listener, with the chosen port."""
        return self._require_listening("Listener.get_local_address").address

    def get_local_address_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with the listener's sockaddr; return its size, or raise BUFFER_OVERFLOW."""
        call = "Listener.get_local_address_into"
        return into(call, buffer, pack_sockaddr(self._require_listening(call).address))

    def get_connection_request(self, connector: Connector) -> Overlapped:
        """Pass the next request to a new connector; completes when the connector holds one."""
        call = "Listener.get_connection_request"
        self._check(call)
        if not isinstance(connector, Connector):
            raise error(Status.INVALID_PARAMETER_1, call, wrong_kind(connector, "Connector"))
        if connector._adapter is not self._adapter:
            raise error(Status.INVALID_PARAMETER_1, call, "the connector is of another adapter")
        with Held(self._lock):
            port = self._listening_port(call)
            overlapped = self._operation(
                self._engine, self, self._file, call, cancel=self._cancel_request
            )
            try:
                connector._expect_request(overlapped, port.object)
                self._numbers[overlapped] = connector._number
                self._pending[overlapped] = None
                with self._engine.conversing(call):
                    self._arm(call, port.object, connector._number)
                    step("request-armed")
                    self._engine.broker_state.armed[port.object, connector._number] = None
                return overlapped._keeping(connector)
            except BaseException:  # of a handler of a signal: the broker may have the request
                connector._stop_expecting(overlapped, released=True)
                self._forget(overlapped)
                raise

    def _arm(self, call: str, listener: int, connector: int) -> None:
        """Let the broker offer a request to a connector.

        This waits for the broker only if the broker is gone, or may refuse because of the number of
        requests.
        """
        if self._engine.client.alive and len(self._numbers) <= _CERTAINLY_TAKEN:
            self._engine.post("request", object=listener, connector=connector)
        else:
            refuse_brief_wait(call)
            self._engine.call("request", caller=call, object=listener, connector=connector)

    def _cancel_request(self, overlapped: Overlapped) -> bool:
        """Take a request back; return False if its offer was on its way, which completes it."""
        connector = self._connector_of(overlapped)
        if connector is None:
            return True
        if not self._disarm(connector):
            self._engine.progress()  # the offer came before the reply
        # One that still waits is free again. One that has got its offer has completed it.
        return connector._stop_expecting(overlapped)

    def _disarm(self, connector: Connector) -> bool:
        """Ask the broker to offer this connector nothing; return False if it has already."""
        with Held(self._lock):  # a request that is being made is made first
            if self._port is None:
                return True
            try:
                reply = self._engine.call(
                    "cancel_request",
                    caller="Listener.cancel_overlapped_requests",
                    object=self._port.object,
                    connector=connector._number,
                )
            except NdError:
                return True  # no broker, or one that never knew of it
            return bool(reply["cancelled"])

    def _forget(self, overlapped: Overlapped) -> None:
        self._numbers.pop(overlapped, None)
        super()._forget(overlapped)

    def _connector_of(self, overlapped: Overlapped) -> Connector | None:
        found = self._engine.followed_object(self._numbers.get(overlapped, 0))
        return found if isinstance(found, Connector) else None

    def close(self) -> None:
        """Release the listener: pending operations are cancelled, waiting requests refused.

        Connectors that hold a request, and connections, are not affected.
        """
        if not self._engine.alive:
            self._closed = True
            self._cancel_pending()
            return
        if not self._puts_off_close():
            with Held(self._lock):
                self._close_now()

    def _close_now(self) -> None:
        self._closed = True
        self._listening = False
        for overlapped in list(self._pending):
            connector = self._connector_of(overlapped)
            if connector is None or connector._stop_expecting(overlapped, released=True):
                overlapped._complete(Status.CANCELED, "the listener was released")
        self._drop_port()  # last, because the broker refuses what names a port that is free

    def _on_event(self, event: Event, fds: list[int]) -> None:
        """Close if another process took the port while there was no broker: no request comes."""
        if event["ev"] == "port_lost":
            self.close()

    def _require_open(self, call: str) -> None:
        if self._closed:
            raise error(Status.INVALID_DEVICE_STATE, call, "the listener is closed; make a new one")

    def _require_listening(self, call: str) -> Port:
        self._check(call)
        with Held(self._lock):
            return self._listening_port(call)

    def _listening_port(self, call: str) -> Port:
        self._require_open(call)
        if self._port is None or not self._listening:
            raise error(
                Status.INVALID_DEVICE_STATE,
                call,
                "the listener does not listen; call bind and listen first",
            )
        return self._port

    def __repr__(self) -> str:
        if self._port is None:
            return f"<Listener {'closed' if self._closed else 'not bound'}>"
        state = "listening at" if self._listening else "bound to"
        waiting = f", {len(self._pending)} connectors wait for a request" if self._pending else ""
        return f"<Listener {state} {written(self._port.address)}{waiting}>"
