# SPDX-License-Identifier: Apache-2.0
"""The endpoint of version 1: a queue pair made by a connector, for the connection it will have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from shmnd.common.arguments import flags_given, shown, within, wrong_kind
from shmnd.common.closing import Front, made_by
from shmnd.common.native import direct_calls
from shmnd.handshake.queue_pair_link import QpState
from shmnd.memory_region import MemoryRegion
from shmnd.nd1.memory_window import MemoryWindow
from shmnd.nd1.messages import EndpointCore, MwDescriptor, Result, Staging
from shmnd.nd1.translation import in_words_of_version_1
from shmnd.ring import Sge as RegisteredSge
from shmnd.ring.shared_memory.sge import inline_bytes
from shmnd.status import MrFlag, OpFlag, Status, error

if TYPE_CHECKING:
    from shmnd.handshake.attempt import ReadLimits
    from shmnd.nd1.adapter_like import AdapterLike
    from shmnd.ring import QueuePair

__all__ = ["Endpoint"]

_Post = TypeVar("_Post", bound=Callable[..., Any])

_ALLOW: Final = int(OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE)
_BIND_FLAGS: Final = int(OpFlag.SILENT_SUCCESS | OpFlag.READ_FENCE) | _ALLOW
_INVALIDATE_FLAGS: Final = int(OpFlag.SILENT_SUCCESS | OpFlag.READ_FENCE)


def _ending_a_batch(post: _Post) -> _Post:
    """Return a call that ends an open batch if it is refused, as those of the compiled part do."""

    @functools.wraps(post)
    def call(self: Endpoint, *args: Any, **options: Any) -> Any:
        try:
            return post(self, *args, **options)
        except BaseException:
            self._end_batch()
            raise

    return cast(_Post, call)


def _make_staging(nd1_adapter: AdapterLike, pieces: int, size: int) -> Staging:
    memory = bytearray(max(1, pieces * size))
    region = MemoryRegion(nd1_adapter._core, None)
    region.register(memory, int(MrFlag.ALLOW_LOCAL_WRITE))
    return Staging(memory, region, max(1, pieces))


@direct_calls
@made_by("Connector.create_endpoint")
class Endpoint(EndpointCore, Front):
    """One end of a connection, which takes its requests. Made by `Connector.create_endpoint`."""

    def __init__(
        self, nd1_adapter: AdapterLike, pair: QueuePair, limits: ReadLimits, outbound_entries: int
    ) -> None:
        super().__init__(pair)
        self._nd1_adapter: Final = nd1_adapter
        self._limits: Final = limits
        """How many Reads it allows at a time, in each direction, before the peer's limits apply."""
        self.max_inline_data: Final = nd1_adapter._core._limits.max_inline_data_size
        """The bytes of inline data that one request may carry."""
        self._outbound_entries: Final = outbound_entries
        self._staging: Staging | None = None

    @property
    def _alive(self) -> bool:
        """Whether it is neither released nor disconnected by its connector."""
        return self._pair._state != QpState.CLOSED

    # -- windows --

    @_ending_a_batch
    def bind(
        self,
        result: Result,
        memory_handle: int,
        memory_window: MemoryWindow,
        address: int,
        length: int,
        flags: int,
    ) -> MwDescriptor:
        """Let the peer read or write a part of a registration through a window.

        The descriptor is valid when this returns, for the next Send to carry to the peer.
        """
        call = "Endpoint.bind"
        region = self._nd1_adapter._region(memory_handle)
        if region is None:
            text = f"{shown(memory_handle)} is not a memory handle; register_memory returns one"
            raise error(Status.INVALID_PARAMETER_2, call, text)
        self._check_window(memory_window, Status.INVALID_PARAMETER_3, call)
        begin, size = region.address, region.length
        address = within(call, 4, "address", address, begin, begin + size)
        length = within(call, 5, "length", length, 0, begin + size - address)
        flags = flags_given(call, flags, OpFlag)
        if flags & ~_BIND_FLAGS or not flags & _ALLOW:
            raise error(
                Status.INVALID_PARAMETER_6,
                call,
                f"flags {flags:#x}: at least one of {_ALLOW:#x}, none outside {_BIND_FLAGS:#x}",
            )
        window, owned = memory_window._core, _pending(result, call)
        with in_words_of_version_1(call):
            self._pair.bind(region, window, address, length, owned, flags=flags)
        return MwDescriptor(address, length, memory_window._core.remote_token)

    def _check_window(self, window: object, status: Status, call: str) -> None:
        if not isinstance(window, MemoryWindow):
            raise error(status, call, wrong_kind(window, "MemoryWindow"))
        if window._nd1_adapter is not self._nd1_adapter:
            raise error(status, call, "the window is of another adapter")

    @_ending_a_batch
    def invalidate(self, result: Result, memory_window: MemoryWindow, flags: int = 0) -> None:
        """End the peer's access through a window. Final when it completes."""
        call = "Endpoint.invalidate"
        self._check_window(memory_window, Status.INVALID_PARAMETER_2, call)
        flags = flags_given(call, flags, OpFlag)
        if flags & ~_INVALIDATE_FLAGS:
            raise error(
                Status.INVALID_PARAMETER_3, call, f"flags {flags:#x} outside {_INVALIDATE_FLAGS:#x}"
            )
        owned = _pending(result, call)
        with in_words_of_version_1(call):
            self._pair.invalidate(memory_window._core, owned, flags=flags)

    # -- batches, the end --

    def start_request_batch(self) -> None:
        """Begin a batch: the requests that follow are published together.

        This is a hint: each call still reports whether its request was accepted, and no request is
        held back for ever. A call that is refused ends the batch, and so do `flush`, a disconnect
        and `close`.
        """
        self._pair._begin_batch()

    def submit_request_batch(self) -> None:
        """Publish the requests of the batch. Harmless when there are none."""
        self._pair._submit_batch()

    def flush(self) -> None:
        """Cancel all outstanding requests. A connection does not survive it."""
        self._pair._break_off()

    def close(self) -> None:
        """Release it: a connection ends, outstanding requests are cancelled."""
        self._pair.close()
        staging = self._staging
        if staging is not None:
            staging.close()
            self._staging = None  # last: an interrupted close is continued

    # -- inline data --

    def _staged(
        self, items: list[RegisteredSge], call: str, flags: int
    ) -> tuple[list[RegisteredSge], int, Staging | None, bytearray | None]:
        """Return the list to post for one with inline elements, and the flags to post it with.

        If it has registered elements, too, the inline data and the memory to copy it to follow.
        """
        inline = [item for item in items if not item.token]
        data = inline_bytes(inline, call)
        if len(inline) == len(items):
            return [RegisteredSge(data, len(data), 0)], flags | int(OpFlag.INLINE), None, None
        staging = self._staging
        if staging is None:
            staging = self._new_staging()
        posted, offset = [], 0
        for item in items:
            if item.token:
                posted.append(item)
            else:
                posted.append(RegisteredSge(staging.address + offset, item.length, staging.token))
                offset += item.length
        return posted, flags, staging, data

    def _new_staging(self) -> Staging:
        made = _make_staging(self._nd1_adapter, self._outbound_entries, self.max_inline_data)
        staging = self._staging
        if staging is None:
            self._staging = made
            return made
        made.close()  # another thread was faster
        return staging

    def __repr__(self) -> str:
        return repr(self._pair)  # which is called Endpoint


def _pending(result: Any, call: str) -> Result:
    if not isinstance(result, Result):
        raise TypeError(f"{call}: result must be a Result, not {type(result).__name__}")
    result.status = Status.PENDING
    return result
