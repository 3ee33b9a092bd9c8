# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Loans: memory of a publisher that a program computes a sample into."""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from shmnd.common.timeouts cimport is_plain_timeout
from shmnd.ipc.common.array_over cimport (
    NPY_ARRAY_CARRAY, Py_REFCNT, array_over, empty_row, is_spare_row, use_row
)
from shmnd.ipc.topic.writer cimport Loaned, WriterCore
from shmnd.ring.process.forks cimport forks

from math import prod

import numpy as np

from shmnd.common.arguments import seconds
from shmnd.ipc.errors import Closed
from shmnd.ipc.types.loan_layouts import layout_of
from shmnd.ipc.types.record import Record

cnp.import_array()

cdef uint32_t _ROOM = 64  # bytes kept for a header
cdef Py_ssize_t _MOST_LAYOUTS = 64
cdef unsigned char[64] _NOTHING  # where a loan without a slot begins
cdef Loaned _SPENT = Loaned.__new__(Loaned)
_SPENT.spent = True
_SPENT.base = _NOTHING


cdef class Lender(WriterCore)


@cython.final
cdef class Layout:
    """What a loan is of. All loans of the same arguments share it."""

    cdef object dtype
    cdef tuple shape
    cdef bytes meta
    cdef uint64_t nbytes, extra
    cdef uint32_t kind
    cdef bint plain, is_row, is_record
    cdef cnp.npy_intp[32] dims

    def __cinit__(self, object dtype, tuple shape not None, uint64_t nbytes, uint32_t kind,
                  bytes meta, bint plain):
        self.dtype, self.shape, self.nbytes, self.kind, self.meta = dtype, shape, nbytes, kind, meta
        self.extra = _ROOM + (0 if meta is None else len(meta))
        self.plain = plain
        self.is_row = plain and len(shape) == 1
        # A program may dig this class out; an array is made of what it is given without a check.
        if not isinstance(dtype, cnp.dtype):
            raise TypeError(f"{dtype!r} is not a dtype")
        self.is_record = dtype.names is not None and not shape
        if plain and (dtype.hasobject or len(shape) > 32 or prod(shape) * dtype.itemsize != nbytes):
            raise ValueError(f"a loan of {nbytes} bytes is no {dtype} of shape {shape}")
        if plain:
            for i, each in enumerate(shape):
                self.dims[i] = each


@cython.freelist(16)
cdef class Loan:
    """A sample that is being made. `send` publishes it without a copy; `drop` gives it back.

    Leaving a `with` block unsent drops it, and so does its end.
    """

    cdef Loaned loaned
    cdef Lender writer
    cdef Layout layout
    cdef object view  # the array, from when it is asked for

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
        if self.layout.is_record:
            return Record(self.view)
        return self.view

    cdef int make_view(self) except -1:
        cdef Layout layout = self.layout
        if layout.plain:  # takes a third of the time of the general way
            self.view = array_over(layout.dtype, <int>len(layout.shape), layout.dims,
                                   self.loaned.base, NPY_ARRAY_CARRAY, self.loaned)
        else:
            memory = self.loaned if self.loaned.nbytes else None
            self.view = np.ndarray(layout.shape, layout.dtype, buffer=memory)
        return 0

    @property
    def nbytes(self):
        """The bytes of the sample."""
        self.slot()
        return self.layout.nbytes

    def send(self, header=None, timeout=None):
        """Publish it; return its sequence number. The memory is the subscribers' from then on.

        TimeoutError when a subscriber that blocks has no room for so long: it is not spent then.
        """
        cdef Loaned loaned = self.slot()
        cdef Layout layout = self.layout
        cdef bint lent = not loaned.spent
        if not is_plain_timeout(timeout):
            seconds("Loan.send", 0, "timeout", timeout)
        if header is not None and lent:
            loaned = self.with_room(bytes_of(header))
        try:
            sent = self.writer.send_loan(loaned, layout.kind, layout.shape, layout.meta, header,
                                         timeout)
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
            if not self.layout.is_row or not is_spare_row(
                    <PyObject *>self.view, <PyObject *>self.layout.dtype, <PyObject *>self.loaned):
                return False
            known = 2
        return Py_REFCNT(<PyObject *>self.loaned) == known

    cdef void freeze(self) noexcept:
        """Make an array that the program has kept read-only: writes would change the sample."""
        if self.view is not None:
            cnp.PyArray_CLEARFLAGS(self.view, cnp.NPY_ARRAY_WRITEABLE)

    cdef Loaned with_room(self, extra):
        """Return the slot, or a larger one with the same bytes where a header does not fit."""
        cdef Loaned larger
        room = extra + (0 if self.layout.meta is None else len(self.layout.meta))
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
        cdef Loaned loaned = self.slot()
        if not loaned.spent:
            self.freeze()  # its memory may be another sample's by the next line of the program
            loaned.give_back()

    def close(self):
        """Return it unsent, as `drop` does."""
        self.drop()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.drop()

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a Loan: it is memory of this process; send it")

    def __repr__(self):
        cdef Loaned loaned = self.slot()
        state = "spent" if loaned.spent else "to be filled"
        return f"<Loan of {self.layout.nbytes} bytes on {self.writer.topic!r}, {state}>"


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
    cdef object last_shape, last_dtype
    cdef Layout last_layout
    cdef dict layouts  # those that were asked for by a whole number
    # The parts of a loan that was sent: the next one is made of them.
    cdef Loaned spare
    cdef object spare_view
    cdef Layout spare_layout  # of that array

    cdef void put_aside(self, Loan loan) noexcept:
        """Keep the parts of a loan that was sent, to which nothing else refers."""
        cdef Loaned loaned = loan.loaned
        loaned.writer = None
        loaned.memory = None
        loaned.base = _NOTHING
        loaned.nbytes = 0
        if loan.view is not None:
            empty_row(loan.view, _NOTHING)
            self.spare_view, self.spare_layout = loan.view, loan.layout
            loan.view = None
        self.spare = loaned
        loan.loaned = _SPENT

    cdef int reuse(self, Loan loan) except -1:
        """Make a loan of the parts of the last one, or of new ones. It has no slot yet."""
        loan.loaned = self.spare
        if loan.loaned is not None:
            self.spare = None
            if self.spare_view is not None:
                if self.spare_layout is loan.layout:
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
        cdef Layout layout = self.last_layout
        if self.closed or self.born != forks:
            self.refuse("Publisher.loan")
        if (layout is None or shape_or_nbytes is not self.last_shape
                or dtype is not self.last_dtype):
            layout = self.lay_out(shape_or_nbytes, dtype)
        loan = Loan.__new__(Loan)
        loan.writer = self
        loan.layout = layout
        self.reuse(loan)
        self.lend(loan.loaned, layout.nbytes, layout.extra)
        if loan.view is not None:
            use_row(loan.view, loan.loaned.base, layout.dims[0])
        return loan

    cdef Layout lay_out(self, object shape, object dtype):
        """Find what a loan is of; it is kept where the same arguments mean the same again."""
        cdef Layout layout = None
        cdef bint is_count = type(shape) is int and dtype is None
        if self.layouts is None:
            self.layouts = {}
        if is_count:
            layout = self.layouts.get(shape)
        if layout is None:
            layout = Layout(*layout_of(self._form, shape, dtype))
            if is_count and len(self.layouts) < _MOST_LAYOUTS:
                self.layouts[shape] = layout
        if (dtype is None or type(dtype) is str) and is_fixed(shape):
            self.last_layout = None  # which no other thread finds with arguments of another one
            self.last_shape, self.last_dtype, self.last_layout = shape, dtype, layout
        return layout


cdef bint is_fixed(object shape) except -1:
    """Return whether a shape can never mean another one."""
    if type(shape) is not tuple:
        return shape is None or type(shape) is int
    for each in <tuple>shape:
        if type(each) is not int:
            return False
    return True
