# SPDX-License-Identifier: Apache-2.0
"""An adapter of version 1, as a type, for what it has made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.memory_region import MemoryRegion
    from shmnd.overlapped import OverlappedFile

__all__ = ["AdapterLike"]


class AdapterLike(Protocol):
    """What windows, queues, connectors and endpoints ask of the adapter that made them."""

    @property
    def _core(self) -> Adapter:
        """The same adapter in version 2."""

    @property
    def _overlapped_file(self) -> OverlappedFile:
        """Where every operation on it comes out."""

    def _region(self, memory_handle: object) -> MemoryRegion | None:
        """Return the registration of a handle; None when there is none."""
