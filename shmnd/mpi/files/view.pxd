# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport int64_t

from shmnd.mpi.datatypes.type_state cimport TypeState, mpi_runs

cdef extern from "files/view.h" nogil:
    ctypedef struct mpi_view:
        const mpi_runs *runs
        ptrdiff_t extent
        int64_t start
    int MPI_VIEW_DONE, MPI_VIEW_MORE, MPI_VIEW_END
    int64_t mpi_view_place(const mpi_view *view, size_t at, size_t *row)
    size_t mpi_view_before(
        const mpi_view *view, ptrdiff_t true_lb, ptrdiff_t true_extent, int64_t end)
    int mpi_view_move(
        const mpi_view *view, int fd, char *memory, size_t at, size_t nbytes, bint writes,
        size_t *moved)
    int mpi_view_lock(int fd, int64_t first, int64_t nbytes, short kind)


cdef class View:
    cdef readonly Py_ssize_t displacement
    cdef readonly TypeState etype, filetype
    cdef readonly str datarep
    cdef mpi_view shown

    cdef int check(self, Py_ssize_t at, Py_ssize_t nbytes, str call) except -1
