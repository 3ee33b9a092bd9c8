# SPDX-License-Identifier: Apache-2.0
"""The provider: which addresses this host serves, and adapters to use them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, SupportsIndex

from shmnd.adapter import Adapter
from shmnd.address import address_list_into, host_addresses, parse_host, require_local
from shmnd.common.arguments import shown
from shmnd.common.closing import Closing
from shmnd.common.interruption import pass_on
from shmnd.status import NdError, Status, error, renamed

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Provider", "open_adapter"]


def _adapter_id() -> int:
    """Return the id of this host's one adapter, which all its addresses share."""
    return uuid.getnode()


class Provider(Closing):
    """Entry to the interface. May be closed or dropped once an adapter is open.

    `namespace` and `group` are those of `open_adapter`.
    """

    _namespace: str | None = None
    _group: int | str | None = None

    def __init__(self, *, namespace: str | None = None, group: int | str | None = None) -> None:
        self._namespace = namespace
        self._group = group

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return object.__reduce_ex__(self, protocol)  # nothing here could be released twice

    def query_address_list(self) -> list[tuple[str, int]]:
        """Return all local addresses, with port 0."""
        return [(host, 0) for host in host_addresses()]

    def query_address_list_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with a SOCKET_ADDRESS_LIST; return its size, or raise BUFFER_OVERFLOW."""
        return address_list_into(
            "Provider.query_address_list_into", buffer, self.query_address_list()
        )

    def resolve_address(self, host: str | tuple[str, int]) -> int:
        """Return the id of the adapter that serves a local address; a port is ignored."""
        call = "Provider.resolve_address"
        numeric = next(iter(host), None) if isinstance(host, tuple) else host
        require_local(parse_host(numeric, call, 1), call)
        return _adapter_id()

    def open_adapter(self, adapter_id: int) -> Adapter:
        """Open the adapter of this id; each call returns a separate adapter."""
        call = "Provider.open_adapter"
        if adapter_id != _adapter_id():
            raise error(
                Status.INVALID_PARAMETER,
                call,
                f"adapter id {shown(adapter_id)} is unknown; Provider.resolve_address returns one",
            )
        try:
            return Adapter("127.0.0.1", namespace=self._namespace, group=self._group)
        except NdError as exc:
            pass_on(exc)
            raise renamed(exc, call) from exc.__cause__

    def __repr__(self) -> str:
        return f"<Provider namespace={self._namespace!r} group={self._group!r}>"

    def close(self) -> None:
        """Close the provider; open adapters stay open."""


def open_adapter(
    host: str = "127.0.0.1",
    *,
    namespace: str | None = None,
    rnr_timeout: float = 2.0,
    group: int | str | None = None,
    memory_limit: int | None = None,
) -> Adapter:
    """Open the adapter of a local address; starts the broker if none runs.

    Processes of different namespaces cannot connect to each other. `rnr_timeout` is the time in
    seconds for which a Send waits for a Receive. With a `group` (its name or number; default:
    SHMND_GROUP) the processes of its members can connect to each other, otherwise only those of
    this user. `memory_limit` is the total size in bytes of the segments of its `allocate`;
    SHMND_MEMORY_LIMIT limits all segments that the process creates.
    """
    return Adapter(
        host,
        namespace=namespace,
        rnr_timeout=rnr_timeout,
        group=group,
        memory_limit=memory_limit,
    )
