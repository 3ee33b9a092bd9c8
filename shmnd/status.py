# SPDX-License-Identifier: Apache-2.0
"""Statuses, flags and errors of the interface: the only place where their numbers are spelled.

This module is a leaf. It imports nothing else of shmnd, so every other room may use it.
"""

import enum
import errno
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, cast

__all__ = [
    "IN_CHILD",
    "LIMITS_OF_MEMORY",
    "LIMIT_OF_FILES",
    "OWN_IN_CHILD",
    "AdapterFlag",
    "CqNotify",
    "MrFlag",
    "NdBlockingIOError",
    "NdBufferError",
    "NdConnectionAbortedError",
    "NdConnectionError",
    "NdConnectionRefusedError",
    "NdError",
    "NdMemoryError",
    "NdNotImplementedError",
    "NdOSError",
    "NdPermissionError",
    "NdTimeoutError",
    "NdValueError",
    "OpFlag",
    "RequestType",
    "Status",
    "detail_of",
    "error",
    "failed",
    "limit_met_by_load",
    "renamed",
]

IN_CHILD: Final = "was opened before fork(); open a new adapter in the child"
"""What a call on an object of the parent process says, with DEVICE_REMOVED."""
OWN_IN_CHILD: Final = "was opened before fork(); open a new one in the child"
"""The same for objects that open their adapter themselves."""


class Status(enum.IntEnum):
    """ND_* status codes without their prefix, as unsigned 32-bit numbers. Prints its name."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        # Without a specification, the name; with one, what it means for a number or a text.
        if spec and spec[-1] in "bcdeEfFgGnoxX%":
            return int.__format__(self, spec)
        return format(self.name, spec)

    SUCCESS = 0x00000000
    TIMEOUT = 0x00000102
    PENDING = 0x00000103
    BUFFER_OVERFLOW = 0x80000005
    DEVICE_BUSY = 0x80000011
    NO_MORE_ENTRIES = 0x8000001A
    UNSUCCESSFUL = 0xC0000001
    ACCESS_VIOLATION = 0xC0000005
    INVALID_HANDLE = 0xC0000008
    INVALID_PARAMETER = 0xC000000D
    INVALID_DEVICE_REQUEST = 0xC0000010
    NO_MEMORY = 0xC0000017
    INVALID_PARAMETER_MIX = 0xC0000030
    DATA_OVERRUN = 0xC000003C
    SHARING_VIOLATION = 0xC0000043
    INSUFFICIENT_RESOURCES = 0xC000009A
    DEVICE_NOT_READY = 0xC00000A3
    IO_TIMEOUT = 0xC00000B5
    NOT_SUPPORTED = 0xC00000BB
    INTERNAL_ERROR = 0xC00000E5
    INVALID_PARAMETER_1 = 0xC00000EF
    INVALID_PARAMETER_2 = 0xC00000F0
    INVALID_PARAMETER_3 = 0xC00000F1
    INVALID_PARAMETER_4 = 0xC00000F2
    INVALID_PARAMETER_5 = 0xC00000F3
    INVALID_PARAMETER_6 = 0xC00000F4
    INVALID_PARAMETER_7 = 0xC00000F5
    INVALID_PARAMETER_8 = 0xC00000F6
    INVALID_PARAMETER_9 = 0xC00000F7
    INVALID_PARAMETER_10 = 0xC00000F8
    CANCELED = 0xC0000120
    REMOTE_ERROR = 0xC000013D
    INVALID_ADDRESS = 0xC0000141
    INVALID_DEVICE_STATE = 0xC0000184
    INVALID_BUFFER_SIZE = 0xC0000206
    TOO_MANY_ADDRESSES = 0xC0000209
    ADDRESS_ALREADY_EXISTS = 0xC000020A
    CONNECTION_REFUSED = 0xC0000236
    CONNECTION_INVALID = 0xC000023A
    CONNECTION_ACTIVE = 0xC000023B
    NETWORK_UNREACHABLE = 0xC000023C
    HOST_UNREACHABLE = 0xC000023D
    CONNECTION_ABORTED = 0xC0000241
    DEVICE_REMOVED = 0xC00002B6

    # In use by the interface, though it has no ND_ name for them.
    BAD_NETWORK_NAME = 0xC00000CC
    ADDRESS_ALREADY_ASSOCIATED = 0xC0000238

    # Version-1 names of the same numbers.
    LOCAL_LENGTH = 0xC000003C
    INVALIDATION_ERROR = 0xC0000010
    FAILURE = 0xC00000E5
    INVALID_REQUEST = 0xC0000010


class MrFlag(enum.IntFlag):
    """ND_MR_FLAG_*: the permitted uses of a memory region."""

    if TYPE_CHECKING:
        __sizeof__: None  # type: ignore[assignment]  # so that no checker takes it for a context

    ALLOW_LOCAL_WRITE = 0x00000001
    """Receives and Reads of this process may write it."""
    ALLOW_REMOTE_READ = 0x00000002
    """Connected peers may read it."""
    ALLOW_REMOTE_WRITE = 0x00000005
    """Connected peers may write it. Contains ALLOW_LOCAL_WRITE: test for both of its bits."""
    RDMA_READ_SINK = 0x00000008
    """Reads of this process may write it."""
    DO_NOT_SECURE_VM = 0x80000000
    """Taken, and without effect."""


class OpFlag(enum.IntFlag):
    """ND_OP_FLAG_*: options of one request."""

    if TYPE_CHECKING:
        __sizeof__: None  # type: ignore[assignment]  # so that no checker takes it for a context

    SILENT_SUCCESS = 0x00000001
    """No result if it succeeds; a failure is reported all the same."""
    READ_FENCE = 0x00000002
    """Begin only when all earlier Reads of the queue pair have completed."""
    SEND_AND_SOLICIT_EVENT = 0x00000004
    """The Receive that it meets ends a SOLICITED Notify of the peer."""
    ALLOW_READ = 0x00000008
    """Of a Bind: the peer may read the window."""
    ALLOW_WRITE = 0x00000010
    """Of a Bind: the peer may write the window."""
    INLINE = 0x00000020
    """Take the bytes now: they may lie anywhere, and may change when the call returns."""


class AdapterFlag(enum.IntFlag):
    """ND_ADAPTER_FLAG_*: abilities that an adapter reports."""

    if TYPE_CHECKING:
        __sizeof__: None  # type: ignore[assignment]  # so that no checker takes it for a context

    IN_ORDER_DMA_SUPPORTED = 0x00000001
    """The last byte that a Write moves becomes visible last."""
    CQ_INTERRUPT_MODERATION_SUPPORTED = 0x00000004
    """Notifications can be held back for a while. Not so here."""
    MULTI_ENGINE_SUPPORTED = 0x00000008
    """Completion queues make progress independently of each other."""
    CQ_RESIZE_SUPPORTED = 0x00000100
    """`CompletionQueue.resize` works."""
    LOOPBACK_CONNECTIONS_SUPPORTED = 0x00010000
    """Both ends of a connection may be on one host."""


class CqNotify(enum.IntEnum):
    """ND_CQ_NOTIFY_*: which completion ends a Notify. Not a bit mask."""

    ERRORS = 0
    """A failure of the queue itself."""
    ANY = 1
    """Any completion."""
    SOLICITED = 2
    """A Receive whose Send had SEND_AND_SOLICIT_EVENT, or a request that failed."""


class RequestType(enum.IntEnum):
    """ND2_REQUEST_TYPE: the kind of request that a result belongs to."""

    RECEIVE = 0
    SEND = 1
    BIND = 2
    INVALIDATE = 3
    READ = 4
    WRITE = 5


def failed(status: int) -> bool:
    """Return whether a status counts as a failure: bit 31 is set, so warnings count too."""
    return bool(status & 0x80000000)


class NdError(Exception):
    """A call or an operation ended with a status that is not a success.

    `.status` says which, the message names the call, the offending value and the limit that it
    broke. `NdError(status, message)` makes an instance of the family of that status, which is
    also an instance of the built-in exception with the same meaning.
    """

    status: Status
    """What the call, or the operation, ended with."""
    required: int | None
    """After BUFFER_OVERFLOW of an `..._into` call: the size in bytes that is needed."""

    def __new__(cls, status: int, message: str, *, required: int | None = None) -> Self:
        """Return an instance of the family of the status; a subclass makes its own instances."""
        family = _FAMILY.get(Status(status), NdError) if cls is NdError else cls
        # CPython requires the __new__ of the base that determines the memory layout of the object.
        if issubclass(family, OSError):
            return cast("Self", OSError.__new__(family, message))
        return cast("Self", Exception.__new__(family, message))

    def __init__(self, status: int, message: str, *, required: int | None = None) -> None:
        super().__init__(message)
        self.status = Status(status)
        self.required = required
        if isinstance(self, OSError):
            _fill_errno(self, self.status, message)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # The default of exceptions and of OSError would call the class with args alone.
        return _rebuild, (type(self), int(self.status), str(self), self.required)


class NdValueError(NdError, ValueError):
    """A parameter is outside what the call takes."""


class NdBufferError(NdError, BufferError):
    """A buffer is too small, or a request names too much."""


class NdPermissionError(NdError, PermissionError):
    """Memory is not registered for this use."""


class NdTimeoutError(NdError, TimeoutError):
    """The other side did not do its part in time."""


class NdOSError(NdError, OSError):
    """An address cannot be used or reached."""


class NdConnectionError(NdError, ConnectionError):
    """The connection is not in the state that the call needs."""


class NdConnectionRefusedError(NdError, ConnectionRefusedError):
    """No listener is there, or the peer refused."""


class NdConnectionAbortedError(NdError, ConnectionAbortedError):
    """The active side gave up before the connection was made."""


class NdMemoryError(NdError, MemoryError):
    """Memory or another bounded resource is used up."""


class NdBlockingIOError(NdError, BlockingIOError):
    """The queue is full now; post again after reaping completions."""


class NdNotImplementedError(NdError, NotImplementedError):
    """The provider does not offer this."""


_PARAMETER_STATUSES: Final = tuple(s for s in Status if s.name.startswith("INVALID_PARAMETER"))

_FAMILY: Final[Mapping[Status, type[NdError]]] = MappingProxyType(
    {
        **dict.fromkeys(_PARAMETER_STATUSES, NdValueError),
        Status.INVALID_ADDRESS: NdValueError,
        Status.INVALID_BUFFER_SIZE: NdValueError,
        Status.INVALID_HANDLE: NdValueError,
        Status.BUFFER_OVERFLOW: NdBufferError,
        Status.DATA_OVERRUN: NdBufferError,
        Status.ACCESS_VIOLATION: NdPermissionError,
        Status.IO_TIMEOUT: NdTimeoutError,
        Status.TIMEOUT: NdTimeoutError,
        Status.CONNECTION_REFUSED: NdConnectionRefusedError,
        Status.CONNECTION_ABORTED: NdConnectionAbortedError,
        Status.CONNECTION_INVALID: NdConnectionError,
        Status.CONNECTION_ACTIVE: NdConnectionError,
        Status.NETWORK_UNREACHABLE: NdOSError,
        Status.HOST_UNREACHABLE: NdOSError,
        Status.BAD_NETWORK_NAME: NdOSError,
        Status.SHARING_VIOLATION: NdOSError,
        Status.TOO_MANY_ADDRESSES: NdOSError,
        Status.ADDRESS_ALREADY_EXISTS: NdOSError,
        Status.ADDRESS_ALREADY_ASSOCIATED: NdOSError,
        Status.NO_MEMORY: NdMemoryError,
        Status.INSUFFICIENT_RESOURCES: NdMemoryError,
        Status.NO_MORE_ENTRIES: NdBlockingIOError,
        Status.NOT_SUPPORTED: NdNotImplementedError,
    }
)

_ERRNO: Final[Mapping[Status, int]] = MappingProxyType(
    {
        Status.ACCESS_VIOLATION: errno.EACCES,
        Status.IO_TIMEOUT: errno.ETIMEDOUT,
        Status.TIMEOUT: errno.ETIMEDOUT,
        Status.CONNECTION_REFUSED: errno.ECONNREFUSED,
        Status.CONNECTION_ABORTED: errno.ECONNABORTED,
        Status.CONNECTION_INVALID: errno.ENOTCONN,
        Status.CONNECTION_ACTIVE: errno.EISCONN,
        Status.NETWORK_UNREACHABLE: errno.ENETUNREACH,
        Status.HOST_UNREACHABLE: errno.EHOSTUNREACH,
        Status.BAD_NETWORK_NAME: errno.EADDRNOTAVAIL,
        Status.SHARING_VIOLATION: errno.EADDRINUSE,
        Status.TOO_MANY_ADDRESSES: errno.EADDRNOTAVAIL,
        Status.ADDRESS_ALREADY_EXISTS: errno.EADDRINUSE,
        Status.ADDRESS_ALREADY_ASSOCIATED: errno.EINVAL,
        Status.NO_MORE_ENTRIES: errno.EAGAIN,
    }
)


def _fill_errno(err: OSError, status: Status, message: str) -> None:
    """Set the errno of a socket, for code that reads it (asyncio, socketserver)."""
    err.errno = _ERRNO.get(status)
    err.strerror = message


def _rebuild(cls: type[NdError], status: int, message: str, required: int | None) -> NdError:
    """Return an error as it was in the process that pickled it; pickle passes no keywords."""
    return cls(status, message, required=required)


def error(status: int, call: str, detail: str, *, required: int | None = None) -> NdError:
    """Return the error of a status: `raise error(Status.X, "QueuePair.send", "flags 0x40 …")`."""
    return NdError(status, f"{call}: {detail} [{Status(status).name}]", required=required)


LIMIT_OF_FILES: Final = "the limit of open files of the machine is fs.file-max"
LIMITS_OF_MEMORY: Final = "see the limits of the memory and of the address space (ulimit -v)"
_LIMITS_OF_LOADS: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.EMFILE: "the limit of descriptors of this process is ulimit -n",
        errno.ENFILE: LIMIT_OF_FILES,
        errno.ENOMEM: LIMITS_OF_MEMORY,
    }
)


def limit_met_by_load(failure: BaseException) -> str:
    """Return the limit that the load of a module has met, as text; "" if it met none.

    The loader of compiled modules passes no number on, only its text.
    """
    text = str(failure)
    unmapped = "failed to map segment" in text and not _may_not_be_executed(failure)
    if isinstance(failure, MemoryError) or unmapped:
        return LIMITS_OF_MEMORY
    if isinstance(failure, OSError):
        return _LIMITS_OF_LOADS.get(failure.errno or 0, "")
    found = (limit for number, limit in _LIMITS_OF_LOADS.items() if os.strerror(number) in text)
    return next(found, "")


def _may_not_be_executed(failure: BaseException) -> bool:
    """Return whether the file that was not loaded lies where none may be executed (noexec)."""
    path = getattr(failure, "path", None) or ""
    there = os.path.exists(path)  # noqa: PTH110 - pathlib would be loaded
    return there and bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def renamed(err: NdError, call: str) -> NdError:
    """Return an error with the name of the call that the program made."""
    return error(err.status, call, detail_of(err), required=err.required)


def detail_of(err: NdError) -> str:
    """Return the message of an error without the call before it and the status behind it."""
    _, _, detail = str(err).partition(": ")
    return detail.removesuffix(f" [{err.status.name}]") or str(err)
