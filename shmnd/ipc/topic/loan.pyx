# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Loans: memory of a publisher that a program computes a sample into."""

cimport cython
cimport numpy as cnp
from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.common.array_over cimport NPY_ARRAY_CARRAY, array_over
from shmnd.ipc.topic.writer cimport Loaned, WriterCore
from shmnd.ring.process.forks cimport forks

import numpy as np

from shmnd.ipc.errors import Closed
from shmnd.ipc.types.loan_layouts import layout_of
from shmnd.ipc.types.record import Record

cnp.import_array()

cdef uint32_t _ROOM = 64  # bytes kept for a header


@cython.freelist(16)
cdef class Loan:
    """A sample that is being made. `send` publishes it without a copy; `drop` gives it back.

    Leaving a `with` block unsent drops it, and so does its end.
    """

    cdef Loaned loaned
    cdef WriterCore writer
    cdef object dtype
    cdef tuple shape
    cdef bytes meta
    cdef object view  # the array, from when it is asked for
    cdef uint32_t kind
    cdef bint flat, is_record

    def __init__(self):
        raise TypeError("a loan is made by Publisher.loan")

    cdef Loaned slot(self):
        if self.loaned is None:
            raise TypeError("a loan is made by Publisher.loan")
        return self.loaned

    @property
    def array(self):
        """The memory: a writable array, or a record with its fields by attribute and by key."""
        if self.slot().spent:
            raise Closed("Loan.array: the loan is spent: it was sent or dropped before")
        if self.view is None:
            self.make_view()
        if self.is_record:
            return Record(self.view)
        return self.view

    cdef int make_view(self) except -1:
        cdef cnp.npy_intp items
        cdef cnp.dtype dtype
        if self.flat:  # takes a third of the time of the general way
            dtype = self.dtype
            items = self.loaned.nbytes // dtype.itemsize if dtype.itemsize > 0 else 0
            if self.dtype.hasobject:
                raise TypeError(f"Loan.array: items of {dtype} are not plain memory")
            self.view = array_over(dtype, 1, &items, self.loaned.base, NPY_ARRAY_CARRAY,
                                   self.loaned)
        else:
            memory = self.loaned if self.loaned.nbytes else None
            self.view = np.ndarray(self.shape, self.dtype, buffer=memory)
            self.is_record = self.view.dtype.names is not None and self.view.ndim == 0
        return 0

    @property
    def nbytes(self):
        """The bytes of the sample."""
        return self.slot().nbytes

    def send(self, header=None, timeout=None):
        """Publish it; return its sequence number. The memory is the subscribers' from then on.

        TimeoutError when a subscriber that blocks has no room for so long: it is not spent then.
        """
        cdef Loaned loaned = self.slot()
        if header is not None and not loaned.spent:
            loaned = self.with_room(bytes_of(header))
        sent = self.writer.send_loan(loaned, self.kind, self.shape, self.meta, header, timeout)
        if self.view is not None:
            # Written through an array that the program has kept, it would change under subscribers.
            cnp.PyArray_CLEARFLAGS(self.view, cnp.NPY_ARRAY_WRITEABLE)
        return sent

    cdef Loaned with_room(self, extra):
        """The slot, or a larger one with the same bytes where a long header does not fit."""
        cdef Loaned larger
        room = extra + (0 if self.meta is None else len(self.meta))
        if extra > _ROOM and self.loaned.nbytes + room > self.writer._capacity(self.loaned):
            larger = self.writer.new_loan(self.loaned.nbytes, room)
            memoryview(larger)[:] = memoryview(self.loaned)
            self.loaned.give_back()
            self.loaned = larger
        return self.loaned

    def drop(self):
        """Return it unsent. Harmless when it is spent."""
        self.slot().give_back()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.drop()

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a Loan: it is memory of this process; send it")

    def __repr__(self):
        cdef Loaned loaned = self.slot()
        state = "spent" if loaned.spent else "to be filled"
        return f"<Loan of {loaned.nbytes} bytes on {self.writer.topic!r}, {state}>"


cdef object bytes_of(object header):
    """The length of a header; 0 for another object, which send_loan() refuses."""
    try:
        return memoryview(header).nbytes
    except TypeError:
        return 0


cdef class Lender(WriterCore):
    """A publisher, as far as it lends memory."""

    cdef public object _form
    # The last loan: programs ask for the same again and again.
    cdef object last_shape, last_dtype, last_layout
    cdef object found_dtype
    cdef tuple found_shape
    cdef bytes found_meta
    cdef uint64_t found_nbytes, found_extra
    cdef uint32_t found_kind
    cdef bint found_flat

    def loan(self, shape_or_nbytes=None, dtype=None):
        """Return memory to compute a sample into; sending it copies nothing.

        A shape for a topic of a dtype, bytes for one of `bytes`, both for one without a type, and
        nothing where the type says how large a sample is.
        """
        cdef Loan loan
        if self.closed or self.born != forks:
            self.refuse("Publisher.loan")
        if (self.last_layout is None or shape_or_nbytes is not self.last_shape
                or dtype is not self.last_dtype):
            self.lay_out(shape_or_nbytes, dtype)
        loan = Loan.__new__(Loan)
        loan.writer = self
        loan.dtype = self.found_dtype
        loan.shape = self.found_shape
        loan.meta = self.found_meta
        loan.kind = self.found_kind
        loan.flat = self.found_flat
        loan.loaned = self.new_loan(self.found_nbytes, self.found_extra)
        return loan

    cdef int lay_out(self, object shape, object dtype) except -1:
        """Find what a loan is of; it is kept where the same arguments mean the same again."""
        layout = None
        if type(shape) is int and dtype is None:
            layout = self._form.loans.get(shape)
        if layout is None:
            layout = layout_of(self._form, shape, dtype)
        self.last_layout = None
        (self.found_dtype, self.found_shape, self.found_nbytes, self.found_kind, self.found_meta,
         self.found_flat) = layout
        self.found_extra = _ROOM + (0 if self.found_meta is None else len(self.found_meta))
        if (dtype is None or type(dtype) is str) and is_fixed(shape):
            self.last_shape, self.last_dtype, self.last_layout = shape, dtype, layout
        return 0


cdef bint is_fixed(object shape) except -1:
    """A shape that can never mean another one."""
    if type(shape) is not tuple:
        return shape is None or type(shape) is int
    for each in <tuple>shape:
        if type(each) is not int:
            return False
    return True
