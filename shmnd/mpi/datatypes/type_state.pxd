# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.handle cimport State

cdef extern from "datatypes/runs.h" nogil:
    ctypedef struct mpi_run:
        ptrdiff_t off
        size_t bytes
        size_t count
        ptrdiff_t stride
        size_t start
        int kind
    ctypedef struct mpi_runs:
        mpi_run *run
        size_t n
        size_t size
    void mpi_runs_free(mpi_runs *runs)
    int mpi_runs_add(mpi_runs *runs, mpi_run run)
    int mpi_runs_add_blocks(
        mpi_runs *runs, const mpi_runs *item, ptrdiff_t extent, ptrdiff_t off, size_t count,
        size_t length, ptrdiff_t stride)
    size_t mpi_types_copy(
        const mpi_runs *runs, ptrdiff_t extent, char *items, size_t count, char *packed,
        size_t start, size_t nbytes, int scatter)

cdef extern from "datatypes/kinds.h":
    ctypedef struct mpi_kind_facts:
        const char *name
        size_t size
        size_t align
    const mpi_kind_facts *mpi_kinds
    int MPI_KIND_END


cdef class TypeState(State):
    """A datatype: where its bytes lie, of what kind they are, and how it was made."""

    cdef readonly Py_ssize_t size, extent, lb, true_lb, true_extent
    cdef readonly bint contig       # count items are count * size bytes from the address on
    cdef readonly int basic         # the kind that all items are of, or -1
    cdef readonly bint committed
    cdef readonly bint bounded      # the bounds were set by hand
    cdef readonly Py_ssize_t align
    cdef readonly int pair_value, pair_index    # kinds of a pair of value and index; else 0
    cdef readonly Py_ssize_t pair_off           # where the index lies
    cdef readonly int combiner
    cdef readonly tuple ints, addrs, counts, types
    cdef readonly object decoded    # (combiner, parameters) for Datatype.decode
    cdef readonly str char, text    # typechar, typestr
    cdef list pieces                # (off, count, length, stride, TypeState)
    cdef mpi_runs runs
    cdef mpi_runs typed             # runs by kind, made when first asked for

    cdef void pack(self, const char *src, Py_ssize_t count, char *dst) noexcept
    cdef void unpack(self, const char *src, Py_ssize_t count, char *dst) noexcept
    cdef void unpack_bytes(self, const char *src, Py_ssize_t nbytes, char *dst) noexcept
    cdef size_t pack_part(
        self, const char *src, Py_ssize_t count, char *dst, size_t start, size_t nbytes) noexcept
    cdef mpi_runs *by_kind(self) except NULL
    cdef TypeState leaf(self)
    cdef _check_room(self)
    cdef _place(self)
    cdef _bound(self)
    cdef _finish(self)
