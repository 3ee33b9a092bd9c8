# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Messages as bytes in a row: those of types with gaps are packed into memory of their own."""

from libc.stdlib cimport malloc

from shmnd.mpi.datatypes.type_state cimport TypeState


cdef int flatten(
    Spec spec, bint sends, char **address, Py_ssize_t *length, char **staged
) except -1:
    """Get bytes in a row for a specification: its own, or packed ones in `staged`."""
    cdef TypeState type = spec.type
    cdef Py_ssize_t n = 0 if type is None else spec.count * type.size
    length[0] = n
    staged[0] = NULL
    address[0] = spec.addr
    if n == 0 or type.contig:
        return 0
    staged[0] = <char *>malloc(n)
    if staged[0] == NULL:
        raise MemoryError(f"shmnd.mpi: no memory to pack {n} bytes of a message")
    address[0] = staged[0]
    if sends:
        type.pack(spec.addr, spec.count, staged[0])
    return 0
