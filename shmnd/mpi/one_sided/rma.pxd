# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.keyed cimport Keyed
from shmnd.mpi.collectives.op cimport OpState
from shmnd.mpi.buffers.spec cimport Spec
from shmnd.mpi.one_sided.window cimport Target, WinState


cdef class WinCalls(Keyed):
    cdef object shown               # memory that arrays may view after Free: they keep the handle
    cdef WinState state(self, str call)
    cdef Target _target(self, Spec origin, int rank, target, str call)
    cdef int _combine(self, Spec origin, Spec result, Target t, op, str call) except -1
    cdef int _combine_leaves(self, Spec origin, Target t, OpState how) except -1
