# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

# How many forks lie between this process and the one that was started: what was made before the
# last one belongs to the parent.
cdef uint32_t forks

# Of what has not come through its `__init__`: no process may use it.
cdef uint32_t NOT_MADE

cdef object whose(uint32_t born, str call)
