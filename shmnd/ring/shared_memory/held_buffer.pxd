# SPDX-License-Identifier: Apache-2.0


cdef class HeldBuffer:
    cdef object _owner  # the buffer again: it makes this a type that the collector visits
    cdef Py_buffer _view
    cdef readonly bint held
    cdef bint registered  # a region refers to it: it must stay
