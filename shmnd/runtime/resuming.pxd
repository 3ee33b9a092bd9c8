# SPDX-License-Identifier: Apache-2.0


cdef class LoopPolls:
    cdef object __weakref__
    cdef object poll
    cdef dict polling  # by thread: the loop whose callback polls there, and what that poll ended
