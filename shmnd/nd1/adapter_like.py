# SPDX-License-Identifier: Apache-2.0
"""The type of an adapter of version 1, for the objects that it has made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.memory_region import MemoryRegion
    from shmnd.overlapped import OverlappedFile

__all__ = ["AdapterLike"]


class AdapterLike(Protocol):
    """The part of an adapter that its windows, queues, connectors and endpoints use."""

    @property
    def _core(self) -> Adapter:
        """The same adapter in version 2."""

    @property
    def _overlapped_file(self) -> OverlappedFile:
        """The file that delivers every operation on it."""

    def _region(self, memory_handle: object) -> MemoryRegion | None:
        """Return the registration of a handle; None when there is none."""
