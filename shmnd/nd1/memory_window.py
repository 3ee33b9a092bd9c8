# SPDX-License-Identifier: Apache-2.0
"""The memory window of version 1: bound to one endpoint at a time, ended by either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmnd.common.closing import Front, made_by

if TYPE_CHECKING:
    from shmnd.memory_window import MemoryWindow as MemoryWindow2
    from shmnd.nd1.adapter_like import AdapterLike
    from shmnd.nd1.messages import Result

__all__ = ["MemoryWindow"]


@made_by("Adapter.create_memory_window")
class MemoryWindow(Front):
    """A part of registered memory that a peer may read or write while it is bound.

    The inbound completion queue returns `invalidate_result` each time the peer ends the binding by
    SendAndInvalidate.
    """

    def __init__(
        self, nd1_adapter: AdapterLike, core: MemoryWindow2, invalidate_result: Result | None
    ) -> None:
        self._nd1_adapter: Final = nd1_adapter
        self._core: Final = core
        self._invalidate_result: Final = invalidate_result
        core._set_invalidate_context(invalidate_result)

    def __repr__(self) -> str:
        return repr(self._core)

    def close(self) -> None:
        """Release it; the end of a binding is not reported."""
        self._core.close()
