# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

# One more than the number of forks between the process that was started first and this one. An
# object that was made with a smaller number belongs to a parent.
cdef uint32_t forks

# The number of an object whose `__init__` has not finished: no process may use it.
cdef uint32_t NOT_MADE

cdef object unusable(uint32_t born, str call)
