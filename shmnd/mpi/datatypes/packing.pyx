# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Packing items of a datatype into memory of the program, also in the representation external32.

Here memory is the program's own on both sides; messages are packed by the engine.
"""

from operator import index
from typing import Any

from shmnd.mpi.buffers.buffer cimport as_buffer, buffer, is_stated
from shmnd.mpi.datatypes.type_state cimport TypeState, mpi_run, mpi_runs

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.buffers.sentinels import Sentinel

cdef extern from "datatypes/external32.h":
    size_t mpi_external_size(int kind)
    size_t mpi_external_copy(int kind, char *here, char *there, size_t count, int back)
    ctypedef struct mpi_kind_facts:
        size_t size
    const mpi_kind_facts *mpi_kinds


def require_comm(comm: Any, call: str) -> None:
    """Raise Exception(ERR_COMM) for a null communicator."""
    if not comm:
        raise MPIException(constants.ERR_COMM, f"Datatype.{call}: the communicator is null")


def address(location: Any) -> int:
    """Return the address of the memory of an object; None is at 0, words are at their number."""
    if location is None:
        return 0
    if isinstance(location, Sentinel):
        return int(location)
    return <size_t> as_buffer(location, True).view.buf


cdef Py_ssize_t _fitting(TypeState type, buffer items, str call) except -1:
    """Return how many items lie in the memory whole, of at most one for each extent. ValueError
    where that is none, although the memory is as long as one: nothing would be moved unsaid."""
    if not type.committed:
        raise MPIException(
            constants.ERR_TYPE,
            f"Datatype.{call}: the datatype is not committed; call its Commit first",
        )
    cdef Py_ssize_t extent = type.extent, length = items.view.len
    cdef Py_ssize_t count = length // extent if extent > 0 else length > 0
    if count == 0 or type.size == 0 or is_stated(items):
        return count
    cdef Py_ssize_t last = type.true_lb + type.true_extent
    if type.true_lb < 0 or last > length:
        raise ValueError(
            f"Datatype.{call}: an item takes the bytes {type.true_lb} to {last} of a buffer of "
            f"{length} bytes; pass memory that it lies in"
        )
    return min(count, (length - last) // extent + 1) if extent > 0 else count


cdef char *_room(buffer packed, object position, Py_ssize_t needed, str call) except? NULL:
    """Return where to begin in packed memory."""
    cdef Py_ssize_t start = index(position)
    if not 0 <= start <= packed.view.len:
        raise MPIException(
            constants.ERR_ARG,
            f"Datatype.{call}: position {start} in a buffer of {packed.view.len} bytes",
        )
    if needed > packed.view.len - start:
        raise MPIException(
            constants.ERR_TRUNCATE,
            f"Datatype.{call}: {needed} bytes at position {start} of a buffer of "
            f"{packed.view.len}",
        )
    return <char *> packed.view.buf + start


def size_of(state: TypeState, count: int) -> int:
    """Return how many bytes `count` items are when packed."""
    if count < 0:
        raise MPIException(constants.ERR_COUNT, f"Datatype.Pack_size: a count of {count}")
    return count * state.size


def pack(state: TypeState, inbuf: Any, outbuf: Any, position: int) -> int:
    """Pack all items of a buffer into another, and return the position after them."""
    cdef TypeState type = state
    cdef buffer items = as_buffer(inbuf, True)
    cdef buffer packed = as_buffer(outbuf, False)
    cdef Py_ssize_t count = _fitting(type, items, "Pack")
    cdef char *there = _room(packed, position, count * type.size, "Pack")
    type.pack(<char *> items.view.buf, count, there)
    return position + count * type.size


def unpack(state: TypeState, inbuf: Any, position: int, outbuf: Any) -> int:
    """Unpack all items of a buffer out of another, and return the position after them."""
    cdef TypeState type = state
    cdef buffer packed = as_buffer(inbuf, True)
    cdef buffer items = as_buffer(outbuf, False)
    cdef Py_ssize_t count = _fitting(type, items, "Unpack")
    cdef char *there = _room(packed, position, count * type.size, "Unpack")
    type.unpack(there, count, <char *> items.view.buf)
    return position + count * type.size


def external_size(state: TypeState, datarep: str, count: int) -> int:
    """Return how many bytes `count` items are in a representation."""
    if datarep != "external32":
        raise MPIException(
            constants.ERR_UNSUPPORTED_DATAREP,
            f"Datatype.Pack_external: datarep {datarep!r}; there is only 'external32'",
        )
    size_of(state, count)
    return count * sum(
        [number * <Py_ssize_t> mpi_external_size(kind) for kind, number in state.signature()]
    )


cdef object _external(TypeState type, buffer items, Py_ssize_t count, char *there, bint back):
    """Convert `count` items between memory and the representation."""
    cdef mpi_runs *runs = type.by_kind()
    cdef mpi_run *run
    cdef Py_ssize_t item
    cdef size_t place, block
    for item in range(count):
        for place in range(runs.n):
            run = &runs.run[place]
            for block in range(run.count):
                there += mpi_external_copy(
                    run.kind,
                    <char *> items.view.buf + item * type.extent + run.off
                    + <ptrdiff_t> block * run.stride,
                    there, run.bytes // mpi_kinds[run.kind].size, back)


def pack_external(
    state: TypeState, datarep: str, inbuf: Any, outbuf: Any, position: int
) -> int:
    """Pack all items of a buffer in a representation, and return the position after them."""
    cdef buffer items = as_buffer(inbuf, True)
    cdef buffer packed = as_buffer(outbuf, False)
    cdef Py_ssize_t count = _fitting(state, items, "Pack_external")
    cdef Py_ssize_t needed = external_size(state, datarep, count)
    _external(state, items, count, _room(packed, position, needed, "Pack_external"), False)
    return position + needed


def unpack_external(
    state: TypeState, datarep: str, inbuf: Any, position: int, outbuf: Any
) -> int:
    """Unpack all items of a buffer from a representation, and return the position after them."""
    cdef buffer packed = as_buffer(inbuf, True)
    cdef buffer items = as_buffer(outbuf, False)
    cdef Py_ssize_t count = _fitting(state, items, "Unpack_external")
    cdef Py_ssize_t needed = external_size(state, datarep, count)
    _external(state, items, count, _room(packed, position, needed, "Unpack_external"), True)
    return position + needed
