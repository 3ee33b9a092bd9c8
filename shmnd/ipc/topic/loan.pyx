# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Loans: memory of a publisher that a program computes a sample into."""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from shmnd.common.timeouts cimport is_plain_timeout
from shmnd.ipc.common.array_over cimport (
    NPY_ARRAY_CARRAY, Py_REFCNT, PyDataType_REFCHK, array_over, empty_row, is_spare_row, use_row
)
from shmnd.ipc.topic.writer cimport Loaned, WriterCore
from shmnd.ring.process.forks cimport forks

import numpy as np

from shmnd.common.arguments import seconds
from shmnd.ipc.errors import Closed
from shmnd.ipc.types.loan_layouts import layout_of
from shmnd.ipc.types.record import Record

cnp.import_array()

cdef uint32_t _ROOM = 64  # bytes kept for a header
cdef unsigned char[64] _NOTHING  # where a loan without a slot begins
cdef Loaned _SPENT = Loaned.__new__(Loaned)
_SPENT.spent = True
_SPENT.base = _NOTHING


cdef class Lender(WriterCore)


@cython.freelist(16)
cdef class Loan:
    """A sample that is being made. `send` publishes it without a copy; `drop` gives it back.

    Leaving a `with` block unsent drops it, and so does its end.
    """

    cdef Loaned loaned
    cdef Lender writer
    cdef object dtype
    cdef tuple shape
    cdef bytes meta
    cdef object view  # the array, from when it is asked for
    cdef uint64_t size
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
            items = items_in(self.loaned.nbytes, dtype)
            if PyDataType_REFCHK(dtype):
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
        self.slot()
        return self.size

    def send(self, header=None, timeout=None):
        """Publish it; return its sequence number. The memory is the subscribers' from then on.

        TimeoutError when a subscriber that blocks has no room for so long: it is not spent then.
        """
        cdef Loaned loaned = self.slot()
        cdef bint lent = not loaned.spent
        if not is_plain_timeout(timeout):
            seconds("Loan.send", 0, "timeout", timeout)
        if header is not None and lent:
            loaned = self.with_room(bytes_of(header))
        try:
            sent = self.writer.send_loan(loaned, self.kind, self.shape, self.meta, header, timeout)
        except BaseException:
            if lent and loaned.spent:  # it was published; what raised came behind
                self.freeze()
            raise
        loaned = None
        if self.is_alone():
            self.writer.put_aside(self)
        else:
            self.freeze()
        return sent

    cdef bint is_alone(self) noexcept:
        """Return whether this loan alone refers to its slot and array, or leads to its memory."""
        cdef Py_ssize_t known = 1
        if self.view is not None:
            if not self.flat or not is_spare_row(<PyObject *>self.view, <PyObject *>self.dtype,
                                                 <PyObject *>self.loaned):
                return False
            known = 2
        return Py_REFCNT(<PyObject *>self.loaned) == known

    cdef void freeze(self) noexcept:
        """Written through an array that the program has kept, it would change under subscribers."""
        if self.view is not None:
            cnp.PyArray_CLEARFLAGS(self.view, cnp.NPY_ARRAY_WRITEABLE)

    cdef Loaned with_room(self, extra):
        """Return the slot, or a larger one with the same bytes where a header does not fit."""
        cdef Loaned larger
        room = extra + (0 if self.meta is None else len(self.meta))
        if extra > _ROOM and self.loaned.nbytes + room > self.writer._capacity(self.loaned):
            larger = self.writer.new_loan(self.loaned.nbytes, room)
            if self.loaned.spent:  # by another thread meanwhile
                larger.give_back()
                return self.loaned
            memoryview(larger)[:] = memoryview(self.loaned)
            self.freeze()  # the old slot may be used for another sample
            self.view = None
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
        return f"<Loan of {self.size} bytes on {self.writer.topic!r}, {state}>"


cdef cnp.npy_intp items_in(uint64_t nbytes, cnp.dtype dtype) noexcept:
    return nbytes // <uint64_t>dtype.itemsize if dtype.itemsize > 0 else 0


cdef object bytes_of(object header):
    """Return the length of a header; 0 for another object, which send_loan() refuses."""
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
    # The parts of a loan that was sent: the next one is made of them.
    cdef Loaned spare
    cdef object spare_view
    cdef uint64_t spare_nbytes

    cdef void put_aside(self, Loan loan) noexcept:
        """Keep the parts of a loan that was sent, to which nothing else refers."""
        cdef Loaned loaned = loan.loaned
        loaned.writer = None
        loaned.memory = None
        loaned.base = _NOTHING
        self.spare_nbytes, loaned.nbytes = loaned.nbytes, 0
        if loan.view is not None:
            empty_row(loan.view, _NOTHING)
            self.spare_view = loan.view
            loan.view = None
        self.spare = loaned
        loan.loaned = _SPENT

    cdef int reuse(self, Loan loan) except -1:
        """Make a loan of the parts of the last one, or of new ones. It has no slot yet."""
        loan.loaned = self.spare
        if loan.loaned is not None:
            self.spare = None
            if self.spare_view is not None:
                if (self.spare_nbytes == loan.size and <PyObject *>loan.dtype
                        == <PyObject *>cnp.PyArray_DESCR(self.spare_view)):
                    loan.view = self.spare_view
                self.spare_view = None
            if loan.is_alone():
                return 0
            loan.view = None
        loan.loaned = Loaned.__new__(Loaned)
        return 0

    def loan(self, shape_or_nbytes=None, dtype=None):
        """Return memory to compute a sample into; sending it copies nothing.

        A shape for a topic of a dtype, bytes for one of `bytes`, both for one without a type, and
        nothing where the type says how large a sample is.
        """
        cdef Loan loan
        cdef uint64_t extra
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
        loan.size = self.found_nbytes
        extra = self.found_extra
        self.reuse(loan)
        self.lend(loan.loaned, loan.size, extra)
        if loan.view is not None:
            use_row(loan.view, loan.loaned.base, items_in(loan.size, loan.dtype))
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
    """Return whether a shape can never mean another one."""
    if type(shape) is not tuple:
        return shape is None or type(shape) is int
    for each in <tuple>shape:
        if type(each) is not int:
            return False
    return True
