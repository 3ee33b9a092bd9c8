# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef class buffer:
    """A block of memory: an address, a length, and what keeps it."""

    cdef Py_buffer view             # of an object with the buffer protocol, or filled by hand
    cdef bint held                  # view.obj has to be released
    cdef object hold                # what parts and views share: it keeps the memory
    cdef bint viewed                # others may have views of it
    cdef bint stated                # it is of `fromaddress`
    cdef bint device                # memory of a device: not to be touched item by item
    cdef object owner               # what `obj` returns
    cdef object kept                # what else keeps the memory
    cdef char format_[4]
    cdef Py_ssize_t itemsize_
    cdef object __weakref__
    cdef _take(self, buffer other)
    cdef object _share(self)
    cdef int _touch(self) except -1
    cdef Py_ssize_t _place(self, object item) except -1
    cdef object _range(self, slice item)
    cdef const char *letters(self) noexcept


cdef buffer as_buffer(object obj, bint readonly)
cdef buffer buffer_for(object obj, bint readonly, str call)
cdef bint is_stated(object memory) noexcept
cdef buffer view_at(void *address, Py_ssize_t nbytes, bint readonly)
