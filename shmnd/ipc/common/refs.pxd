# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers in a ring, which grow."""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc


cdef struct Refs:
    uint32_t *items
    size_t first, count, room


cdef inline int append(Refs *refs, uint32_t ref) except -1:
    """Append at the end; the first lies at `first`, and the list is a ring."""
    cdef uint32_t *more
    cdef size_t at
    if refs.count == refs.room:
        at = refs.room * 2 if refs.room else 64
        more = <uint32_t *>realloc(refs.items, at * sizeof(uint32_t))
        if more == NULL:
            raise MemoryError
        refs.items = more
        for i in range(refs.first):  # the wrapped part comes behind the rest
            more[refs.room + i] = more[i]
        refs.room = at
    refs.items[(refs.first + refs.count) & (refs.room - 1)] = ref
    refs.count += 1
    return 0


cdef inline uint32_t take_first(Refs *refs) noexcept:
    cdef uint32_t ref = refs.items[refs.first]
    refs.first = (refs.first + 1) & (refs.room - 1)
    refs.count -= 1
    return ref


cdef inline uint32_t take_last(Refs *refs) noexcept:
    refs.count -= 1
    return refs.items[(refs.first + refs.count) & (refs.room - 1)]
