# SPDX-License-Identifier: Apache-2.0
"""The adapter of version 1: memory by handles, listens with protocol and port, one file for all."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shmnd.adapter import Adapter as Adapter2
from shmnd.address import address_list_into, into
from shmnd.common.arguments import integer, shown, within
from shmnd.common.closing import made_by
from shmnd.common.interruption import pass_on
from shmnd.memory_region import MemoryRegion
from shmnd.nd1.completion_queue import CompletionQueue
from shmnd.nd1.connector import Connector
from shmnd.nd1.file_handle import FileHandle
from shmnd.nd1.info import ND_VERSION_1, AdapterInfo
from shmnd.nd1.listen import Listen
from shmnd.nd1.memory_window import MemoryWindow
from shmnd.nd1.messages import Result
from shmnd.nd1.translation import Overlapped, in_words_of_version_1
from shmnd.overlapped import OverlappedObject
from shmnd.status import MrFlag, NdError, Status, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.overlapped import Overlapped as Overlapped2
    from shmnd.ring.interfaces import AnyBuffer
    from shmnd.ring.shared_memory.array import SharedArray

__all__ = ["Adapter"]

_BEFORE_A_HANDLE: Final = 4096
_ACCESS: Final = MappingProxyType({Status.INVALID_BUFFER_SIZE: Status.ACCESS_VIOLATION})
_NO_BUFFER: Final = MappingProxyType(
    {
        Status.INVALID_BUFFER_SIZE: Status.ACCESS_VIOLATION,
        Status.INVALID_PARAMETER: Status.ACCESS_VIOLATION,
    }
)


class _Region(MemoryRegion):
    _operation = Overlapped


@made_by("Provider.open_adapter")
class Adapter(OverlappedObject):
    """An open adapter. Its one file delivers every operation on it and on the objects made from it.

    Before the first `get_file_handle` the file keeps the last 4,096 operations that have ended.

    Registering allows local use only; peers reach memory through bound windows.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        *,
        namespace: str | None = None,
        rnr_timeout: float = 2.0,
        group: int | str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._core: Final = Adapter2(
            host,
            namespace=namespace,
            rnr_timeout=rnr_timeout,
            group=group,
            memory_limit=memory_limit,
        )
        super().__init__(self._core._engine)
        self._overlapped_file: Final = self._core.create_overlapped_file()
        # Operations do not pile up for a program that asks for no handle, and so polls none.
        self._overlapped_file._keep_newest(_BEFORE_A_HANDLE)
        self._regions: dict[int, _Region] = {}
        self._leaving: list[tuple[_Region, Overlapped2]] = []

    def cancel_overlapped_requests(self) -> None:
        """Cancel nothing: registrations under way finish, and other objects have their own call."""
        self._core._check_open("Adapter.cancel_overlapped_requests")
        super().cancel_overlapped_requests()

    # -- what it is --

    def get_file_handle(self) -> FileHandle:
        """Return a handle to poll, or to wait at, for all operations that are over.

        The first handle delivers the last 4,096 operations that ended before.
        """
        self._core._check_open("Adapter.get_file_handle")
        self._overlapped_file._keep_all()
        return FileHandle(self._overlapped_file)

    def query(self, version: int = ND_VERSION_1) -> AdapterInfo:
        """Return the limits of this adapter. The only known version of the structure is 1."""
        call = "Adapter.query"
        self._core._check_open(call)
        if integer(version) != ND_VERSION_1:
            raise _not_supported(call, version)
        return AdapterInfo._of(self._core._limits)

    def query_into(self, version: int, buffer: Buffer | None) -> int:
        """Fill a buffer with ND_ADAPTER_INFO; return its size, or raise BUFFER_OVERFLOW."""
        call = "Adapter.query_into"
        self._core._check_open(call)
        if integer(version) != ND_VERSION_1:
            raise _not_supported(call, version)
        return into(call, buffer, AdapterInfo._of(self._core._limits).pack(), parameter=2)

    def query_address_list(self) -> list[tuple[str, int]]:
        """Return the addresses of this adapter, with port 0."""
        return self._core.query_address_list()

    def query_address_list_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with a SOCKET_ADDRESS_LIST; return its size, or raise BUFFER_OVERFLOW."""
        return address_list_into(
            "Adapter.query_address_list_into", buffer, self.query_address_list()
        )

    def control(self, io_control_code: object = 0, *buffers: object) -> int:
        """Raise NOT_SUPPORTED: there is no device to control, and nothing is started."""
        call = "Adapter.control"
        self._core._check_open(call)
        raise error(Status.NOT_SUPPORTED, call, f"control code {shown(io_control_code)}: no device")

    # -- memory --

    def allocate(self, nbytes: int) -> SharedArray:
        """Return zeroed shared memory; data registered in it moves without an intermediate copy."""
        return self._core.allocate(nbytes)

    def register_memory(
        self, buffer: AnyBuffer | tuple[int, int] | None
    ) -> tuple[int, Overlapped2]:
        """Register a buffer for local use; return its handle, for scatter/gather elements.

        The buffer is held until the handle is given back. A read-only one serves as a source: a
        Receive or Read into it completes with ACCESS_VIOLATION, a Bind of it allows no Write.
        """
        call = "Adapter.register_memory"
        self._core._check_open(call)
        region = _Region(self._core, self._overlapped_file)
        nothing = buffer is None or (isinstance(buffer, tuple) and buffer == (0, 0))
        special = _NO_BUFFER if nothing else _ACCESS
        with in_words_of_version_1(call, special):
            writes = 0 if _is_read_only(buffer) else int(MrFlag.ALLOW_LOCAL_WRITE)
            overlapped = region.register(buffer, writes)
        overlapped.call = call
        handle = region.local_token
        self._regions[handle] = region
        return handle, overlapped

    def deregister_memory(self, handle: int) -> Overlapped2:
        """Release a registration. Completes when no request accesses the memory any more.

        The handle is invalid when this returns. DEVICE_BUSY while windows are bound to it.
        """
        call = "Adapter.deregister_memory"
        self._core._check_open(call)
        region = self._region(handle)
        if region is None:
            raise error(
                Status.INVALID_HANDLE,
                call,
                f"{shown(handle)} is not a memory handle; register_memory returns one",
            )
        with in_words_of_version_1(call):
            overlapped = region.deregister()
        overlapped.call = call
        del self._regions[handle]
        # A region that is dropped cancels its operations: it is kept until this one is over.
        self._leaving = [pair for pair in self._leaving if not pair[1].done()]
        self._leaving.append((region, overlapped))
        return overlapped

    def _region(self, memory_handle: object) -> _Region | None:
        """Return the registration of a handle; None when there is none."""
        return self._regions.get(memory_handle) if isinstance(memory_handle, int) else None

    def create_memory_window(self, invalidate_result: Result | None = None) -> MemoryWindow:
        """Create a window, to let one peer read or write a part of registered memory.

        The inbound completion queue returns `invalidate_result` each time the peer ends a binding;
        without it, that is not reported.
        """
        call = "Adapter.create_memory_window"
        self._core._check_open(call)
        if invalidate_result is not None and not isinstance(invalidate_result, Result):
            raise TypeError(
                f"{call}: invalidate_result must be a Result, "
                f"not {type(invalidate_result).__name__}"
            )
        return MemoryWindow(self, self._core.create_memory_window(), invalidate_result)

    # -- queues and connections --

    def create_completion_queue(self, entries: int) -> CompletionQueue:
        """Create a completion queue for `entries` results."""
        call = "Adapter.create_completion_queue"
        self._core._check_open(call)
        entries = within(
            call, 0, "entries", entries, 1, self._core._limits.max_completion_queue_depth
        )
        return self._core._keep(CompletionQueue(self, entries, self._overlapped_file))

    def create_connector(self) -> Connector:
        """Create a connector, for one endpoint and its connection."""
        self._core._check_open("Adapter.create_connector")
        connector = Connector(self)
        self._core._keep(connector._core)
        return connector

    def listen(self, backlog: int = 0, protocol: int = 6, port: int = 0) -> Listen:
        """Return a `Listen` at the adapter's address. Backlog 0: no limit; port 0: any free one.

        A port may be used under several protocols; a Connect reaches the one of its own.
        """
        call = "Adapter.listen"
        self._core._check_open(call)
        return Listen(
            self,
            within(call, 1, "backlog", backlog, 0),
            within(call, 2, "protocol", protocol, 0, 255),
            within(call, 3, "port", port, 0, 0xFFFF),
        )

    # -- the end --

    def close(self) -> None:
        """Close it: connections end, pending operations are cancelled. Arrays stay valid."""
        super().close()
        self._regions.clear()
        self._core.close()

    def __repr__(self) -> str:
        return f"<nd1 {self._core!r}>"


def _not_supported(call: str, version: object) -> NdError:
    return error(Status.NOT_SUPPORTED, call, f"version {shown(version)} is not {ND_VERSION_1}")


def _is_read_only(buffer: object) -> bool:
    """Return whether a buffer is read-only; an object without memory is refused later."""
    try:
        with memoryview(buffer) as view:  # type: ignore[arg-type]  # a TypeError refuses it
            return view.readonly
    except (TypeError, BufferError, ValueError) as exc:
        pass_on(exc)
        return False
