# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""The environment of a program: start and end, threads, versions, time, the machine."""

import atexit
import io
import os
import sys
import threading
from typing import Any

from shmnd.common.interruption import Ignoring
import shmnd
from shmnd.mpi import constants
from shmnd.mpi.transport import hooks
from shmnd.mpi.constants import THREAD_MULTIPLE
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.info import Info
from shmnd.mpi.objects.unsupported import left_out

cdef bint _initialized = False
cdef bint _finalized = False
cdef int _provided = constants.THREAD_MULTIPLE
cdef object _main_thread = None
cdef list _at_finalize = []


def Init() -> None:
    """Initialize the MPI execution environment."""
    Init_thread(constants.THREAD_SINGLE)


def Init_thread(required: int = THREAD_MULTIPLE) -> int:
    """Initialize the MPI execution environment."""
    global _initialized, _provided, _main_thread
    if _initialized:
        raise MPIException(constants.ERR_OTHER, "Init_thread: MPI was initialized before")
    if not constants.THREAD_SINGLE <= required <= constants.THREAD_MULTIPLE:
        raise MPIException(constants.ERR_ARG, f"Init_thread({required}): expected a THREAD_*")
    _initialized = True
    _provided = required
    _main_thread = threading.get_ident()
    _write_by_lines()
    return _provided


def _write_by_lines() -> None:
    """Have a rank write its output by lines, where it goes to a file or a pipe.

    All ranks write there. Python cuts a full buffer within a line, and writes the parts of a line
    one by one where it has none (PYTHONUNBUFFERED): lines of other ranks would come in between. So
    it does with the lines of a traceback, which have parts, too.
    """
    if hooks.size() == 1:
        return
    for out, original in ((sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__)):
        if out is not original or not isinstance(out, io.TextIOWrapper):
            continue
        # What fails here, such as a full disk or a stream without its descriptor, fails again when
        # the program prints.
        with Ignoring(OSError, ValueError):
            if not out.isatty():
                out.reconfigure(line_buffering=True, write_through=False)


def at_finalize(function: Any) -> None:
    """Have `function()` called by `Finalize`, the latest first; not where the program just ends."""
    _at_finalize.append(function)


def Finalize() -> None:
    """Terminate the MPI execution environment."""
    if not _initialized or _finalized:
        raise MPIException(
            constants.ERR_OTHER, "Finalize: MPI was not initialized, or was finalized before"
        )
    while _at_finalize:
        _at_finalize.pop()()
    _end()


def _end() -> None:
    global _finalized
    _finalized = True
    hooks.finalize()


def Query_thread() -> int:
    """Return the level of thread support provided by the MPI library."""
    return _provided


def Is_thread_main() -> bool:
    """Indicate whether this thread called `Init` or `Init_thread`."""
    return threading.get_ident() == _main_thread


def Is_initialized() -> bool:
    """Indicate whether `Init` has been called."""
    return bool(_initialized)


def Is_finalized() -> bool:
    """Indicate whether `Finalize` has completed."""
    return bool(_finalized)


def Get_version() -> tuple[int, int]:
    """Obtain the version number of the MPI standard."""
    return (constants.VERSION, constants.SUBVERSION)


def Get_library_version() -> str:
    """Obtain the version string of the MPI library."""
    return f"shmnd {shmnd.__version__}: MPI over shared memory, the processes of one host"


def Get_abi_version() -> tuple[int, int]:
    """Obtain the version number of the MPI ABI standard."""
    return (-1, -1)


def Get_abi_info() -> Info:
    """Obtain the MPI ABI information."""
    return Info.Create()


def Get_abi_fortran_info() -> Info:
    """Obtain the MPI Fortran ABI information."""
    return Info.Create()


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Information about the underlying implementation."""
    parts = [int("".join([c for c in part if c.isdigit()]) or "0")
             for part in shmnd.__version__.split(".")]
    major, minor, micro = (parts + [0, 0, 0])[:3]
    return ("shmnd", (major, minor, micro))


def Get_processor_name() -> str:
    """Obtain the name of the calling processor."""
    return os.uname().nodename


def Get_hw_resource_info() -> Info:
    """Obtain information about the hardware platform of the calling processor."""
    return Info.Create({"mpi_hw_resource_type": "node", "hostname": os.uname().nodename})


def Wtime() -> float:
    """Return an elapsed time on the calling processor."""
    return hooks.wtime()


def Wtick() -> float:
    """Return the resolution of `Wtime`."""
    return 1e-9


def Pcontrol(level: int) -> None:
    """Control profiling."""
    int(level)


cdef int _abort_status = 0


def _set_abort_status(status: int) -> None:
    """Have the end of the process abort the job with a status other than 0."""
    global _abort_status
    _abort_status = status if isinstance(status, int) else 1


def _leave() -> None:
    """Finalize at the end of the process, or abort if the program asked for that."""
    if not _initialized or _finalized:
        return
    if _abort_status:
        hooks.abort_with_line(_abort_status, "MPI_COMM_WORLD")
    _end()


def start(rc: Any) -> None:
    """Initialize as `mpi4py.rc` says, and finalize at the end of the process."""
    levels = {
        "single": constants.THREAD_SINGLE,
        "funneled": constants.THREAD_FUNNELED,
        "serialized": constants.THREAD_SERIALIZED,
        "multiple": constants.THREAD_MULTIPLE,
    }
    if rc.initialize and not _initialized:
        Init_thread(levels[rc.thread_level] if rc.threads else constants.THREAD_SINGLE)
    finalize = rc.initialize if rc.finalize is None else rc.finalize
    if finalize:
        atexit.register(_leave)


def Open_port(info: Any = None) -> str:
    """Return an address used to connect group of processes."""
    raise left_out("Open_port")


def Close_port(port_name: str) -> None:
    """Close a port."""
    raise left_out("Close_port")


def Publish_name(service_name: str, port_name: str, info: Any = None) -> None:
    """Publish a service name."""
    raise left_out("Publish_name")


def Unpublish_name(service_name: str, port_name: str, info: Any = None) -> None:
    """Unpublish a service name."""
    raise left_out("Unpublish_name")


def Lookup_name(service_name: str, info: Any = None) -> str:
    """Lookup a port name given a service name."""
    raise left_out("Lookup_name")


def Register_datarep(datarep: str, read_fn: Any, write_fn: Any, extent_fn: Any) -> None:
    """Register user-defined data representations."""
    raise left_out("Register_datarep")
