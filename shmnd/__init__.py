# SPDX-License-Identifier: Apache-2.0
"""A NetworkDirect provider between the processes of one host, over shared memory.

`listen()` and `connect()` make a connection in one call each; `open_adapter()` opens the single
objects. The names of the interface are kept, one class per interface; a failing status is an
`NdError`, an overlapped operation is an `Overlapped`. `shmnd.ipc` passes arrays and objects between
processes, `shmnd.mpi` runs programs written for mpi4py, `shmnd.nd1` is version 1 of the interface.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmnd.status import (
    AdapterFlag,
    CqNotify,
    MrFlag,
    NdError,
    OpFlag,
    RequestType,
    Status,
)
from shmnd.status import error as _error
from shmnd.status import limit_met_by_load as _limit_met_by_load

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.completion_queue import CompletionQueue, Result
    from shmnd.connecting import aconnect, connect
    from shmnd.connection import Connection
    from shmnd.connector import Connector
    from shmnd.info import AdapterInfo
    from shmnd.listener import Listener
    from shmnd.memory_region import MemoryRegion, Sge
    from shmnd.memory_window import MemoryWindow
    from shmnd.overlapped import Overlapped, OverlappedFile
    from shmnd.provider import Provider, open_adapter
    from shmnd.queue_pair import QueuePair
    from shmnd.server import Server, listen
    from shmnd.shared_receive_queue import SharedReceiveQueue

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "AdapterFlag",
    "AdapterInfo",
    "CompletionQueue",
    "Connection",
    "Connector",
    "CqNotify",
    "Listener",
    "MemoryRegion",
    "MemoryWindow",
    "MrFlag",
    "NdError",
    "OpFlag",
    "Overlapped",
    "OverlappedFile",
    "Provider",
    "QueuePair",
    "RequestType",
    "Result",
    "Server",
    "Sge",
    "SharedReceiveQueue",
    "Status",
    "__version__",
    "aconnect",
    "connect",
    "get_include",
    "listen",
    "open_adapter",
]

# Loaded at first use: the broker and the command line are part of this package too, and should
# not pay for numpy and the data plane.
_HOME: Final = {
    "Adapter": "shmnd.adapter",
    "AdapterInfo": "shmnd.info",
    "CompletionQueue": "shmnd.completion_queue",
    "Connection": "shmnd.connection",
    "Connector": "shmnd.connector",
    "Listener": "shmnd.listener",
    "MemoryRegion": "shmnd.memory_region",
    "MemoryWindow": "shmnd.memory_window",
    "Overlapped": "shmnd.overlapped",
    "OverlappedFile": "shmnd.overlapped",
    "Provider": "shmnd.provider",
    "QueuePair": "shmnd.queue_pair",
    "Result": "shmnd.completion_queue",
    "Server": "shmnd.server",
    "Sge": "shmnd.memory_region",
    "SharedReceiveQueue": "shmnd.shared_receive_queue",
    "aconnect": "shmnd.connecting",
    "connect": "shmnd.connecting",
    "listen": "shmnd.server",
    "open_adapter": "shmnd.provider",
}


def get_include() -> str:
    """Return the folder of the C header that modules compiled against `shmnd.native` include."""
    return str(Path(__path__[0], "include"))


def _build_hint(what: str) -> str:
    """Return what to run when the compiled part cannot be used."""
    return (
        f"the compiled part of shmnd {what} in {__path__[0]}; build it with 'pip install .' in the "
        "source tree (needs a C compiler and Python's headers), or, to use shmnd from within the "
        "source tree, in place with 'pip install -e .'"
    )


def _require_compiled_part() -> None:
    """Raise ImportError unless each module that has a stub in the data plane is there."""
    ring = Path(__path__[0], "ring")
    for stub in sorted(ring.rglob("*.pyi")):
        if PathFinder.find_spec(stub.stem, [str(stub.parent)]) is None:
            module = stub.relative_to(ring).with_suffix("")
            raise ImportError(
                _build_hint(f"(ring/{module}, for this Python) is missing"),
                name=".".join([__name__, "ring", *module.parts]),
                path=str(ring),
            )


# Searched for, not loaded: so a missing build is reported at the import, not at the first use.
_require_compiled_part()


def __getattr__(name: str) -> object:
    """Return an object of the interface, or version 1, loaded when it is first asked for."""
    home = f"{__name__}.nd1" if name == "nd1" else _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(home)
    except (ImportError, OSError, MemoryError) as exc:
        shortage = _limit_met_by_load(exc)
        if shortage:
            first = exc.__cause__ or exc  # numpy adds pages of advice
            why = f"{home} cannot be loaded ({str(first) or 'no memory'}); {shortage}"
            raise _error(Status.INSUFFICIENT_RESOURCES, name, why) from exc
        if isinstance(exc, ImportError) and (exc.name or "").startswith(f"{__name__}.ring"):
            hint = _build_hint(f"cannot be loaded ({exc})")
            raise ImportError(hint, name=exc.name, path=exc.path) from exc
        raise
    if name == "nd1":
        return module
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the interface, loaded or not, and version 1."""
    return sorted({*(name for name in globals() if name.startswith("_")), *__all__, "nd1"})
