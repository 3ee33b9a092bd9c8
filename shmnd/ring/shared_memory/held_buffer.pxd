# SPDX-License-Identifier: Apache-2.0


cdef class HeldBuffer:
    cdef Py_buffer _view
    cdef readonly bint held
    cdef bint registered  # a region refers to it: it must stay
