# SPDX-License-Identifier: Apache-2.0
"""The listen of version 1: bound and listening from the moment it is made."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shmnd.common.arguments import wrong_kind
from shmnd.common.closing import Front, made_by
from shmnd.listener import Listener
from shmnd.nd1.connector import Connector
from shmnd.nd1.translation import Overlapped, in_words_of_version_1
from shmnd.status import Status, error

if TYPE_CHECKING:
    from shmnd.nd1.adapter_like import AdapterLike
    from shmnd.overlapped import Overlapped as Overlapped2

__all__ = ["Listen"]

_CLOSED: Final = MappingProxyType({Status.INVALID_DEVICE_STATE: Status.CANCELED})


class _Listener(Listener):
    _operation = Overlapped
    _title = "Listen"


@made_by("Adapter.listen")
class Listen(Front):
    """Passes each connection request that arrives at its port to a connector."""

    def __init__(self, nd1_adapter: AdapterLike, backlog: int, protocol: int, port: int) -> None:
        call = "Adapter.listen"
        self._nd1_adapter: Final = nd1_adapter
        self._core: Final = _Listener(
            nd1_adapter._core, nd1_adapter._overlapped_file, protocol=protocol
        )
        with in_words_of_version_1(call):
            self._core.bind((nd1_adapter._core._host, port))
            self._core.listen(backlog)
            self._address: Final = self._core.get_local_address()

    @property
    def assigned_port(self) -> int:
        """The port, in host byte order; the provider chose it if 0 was asked for."""
        return self._address[1]

    def get_local_address(self) -> tuple[str, int]:
        """Return the address where it listens."""
        return self._address

    def get_connection_request(self, connector: Connector) -> Overlapped2:
        """Let a new connector take the next request; the operation ends when it holds one."""
        call = "Listen.get_connection_request"
        if not isinstance(connector, Connector):
            raise error(Status.INVALID_PARAMETER_1, call, wrong_kind(connector, "Connector"))
        with in_words_of_version_1(call, _CLOSED):
            if connector._core._is_new:
                connector._core._protocol = self._core._protocol
            return self._core.get_connection_request(connector._core)

    def cancel_overlapped_requests(self) -> None:
        """End every GetConnectionRequest that is pending with CANCELED."""
        with in_words_of_version_1("Listen.cancel_overlapped_requests"):
            self._core.cancel_overlapped_requests()

    def get_overlapped_result(self, overlapped: Overlapped2, wait: bool = False) -> Status:
        """Return the final status of an operation; PENDING while it is not over."""
        return self._core.get_overlapped_result(overlapped, wait)

    def close(self) -> None:
        """Stop listening: pending requests are cancelled. Connectors that hold one continue."""
        self._core.close()

    def __repr__(self) -> str:
        return f"<Listen protocol {self._core._protocol}: {self._core!r}>"
