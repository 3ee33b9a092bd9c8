# SPDX-License-Identifier: Apache-2.0
"""The provider of version 1: which addresses this host serves, and adapters to use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from shmnd.common.closing import Closing
from shmnd.nd1.adapter import Adapter
from shmnd.nd1.translation import in_words_of_version_1
from shmnd.provider import Provider as Provider2
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Provider"]


class Provider(Closing):
    """Entry to version 1. May be closed or dropped once an adapter is open."""

    _core: Final = Provider2()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return object.__reduce_ex__(self, protocol)  # nothing here could be released twice

    def __repr__(self) -> str:
        return "<nd1 Provider>"

    def query_address_list(self) -> list[tuple[str, int]]:
        """Return all local addresses, with port 0."""
        return self._core.query_address_list()

    def query_address_list_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with a SOCKET_ADDRESS_LIST; return its size, or raise BUFFER_OVERFLOW."""
        return self._core.query_address_list_into(buffer)

    def open_adapter(
        self,
        host: str | tuple[str, int],
        *,
        namespace: str | None = None,
        rnr_timeout: float = 2.0,
        group: int | str | None = None,
        memory_limit: int | None = None,
    ) -> Adapter:
        """Open the adapter that serves a local address; a port is ignored.

        The other parameters are those of `shmnd.open_adapter`. INVALID_ADDRESS for a `host` that
        is not an address of this host.
        """
        call = "Provider.open_adapter"
        with in_words_of_version_1(call):
            try:
                self._core.resolve_address(host)
            except NdError as exc:
                raise error(Status.INVALID_ADDRESS, call, detail_of(exc)) from None
            if isinstance(host, tuple):
                host = host[0]
            return Adapter(
                host,
                namespace=namespace,
                rnr_timeout=rnr_timeout,
                group=group,
                memory_limit=memory_limit,
            )
