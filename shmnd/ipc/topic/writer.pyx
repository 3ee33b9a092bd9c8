# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The compiled part of a publisher: loans, and the way of a sample to its subscribers.

What happens now and then (subscribers that come and go, growth, waiting) is in `publisher.py`.
"""

cimport cython
cimport numpy as cnp
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from shmnd.common.timeouts cimport is_plain_timeout
from shmnd.ipc.common.limits cimport LONG_COPY
from shmnd.ipc.topic.topic_c cimport *
from shmnd.ipc.topic.writer_board cimport WriterBoard
from shmnd.ring.process.forks cimport forks

from shmnd.common.arguments import seconds
from shmnd.common.exits import stay_at_exit
from shmnd.ipc.errors import Closed, LoanLimit
from shmnd.status import OWN_IN_CHILD, NdError

cnp.import_array()

cdef uint64_t _CHECK_NS = 10_000_000
cdef int _MOST_TRIES = 1000  # of a thread for memory that others take
cdef object _FLOAT = cnp.dtype("f8")
cdef uint32_t _SELF = 4  # kind of an array that brings its type along


def too_large(call: str, nbytes: int) -> LoanLimit:
    """Return the error of a sample that no slot can hold."""
    return LoanLimit(f"{call}: {nbytes} bytes; a sample has at most {SHMND_MOST_SAMPLE}, header "
                     "and description included; send it in parts")


@cython.freelist(16)
@cython.no_gc_clear  # its end needs the publisher
@cython.final
cdef class Loaned:
    """A slot that is computed into; exports its bytes, writable."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.nbytes, 0, flags)

    def drop(self):
        """Return the slot unsent. Harmless when it is spent."""
        self.give_back()

    cdef void give_back(self) noexcept:
        if self.writer is not None and not self.spent:
            self.spent = True
            if self.writer.born == forks and not self.writer.closed:
                shmnd_slots_free(&self.writer.b.slots, self.slot)
                self.writer.loans -= 1
            self.writer = None  # an array that is kept keeps its memory alone

    def __dealloc__(self):
        self.give_back()


cdef int open_header(object header, Py_buffer *head, str call) except -1:
    """Get the bytes of a header, or raise TypeError."""
    try:
        PyObject_GetBuffer(header, head, PyBUF_SIMPLE)
    except (TypeError, BufferError) as exc:
        hint = "; encode it first, text.encode()" if isinstance(header, str) else ""
        raise TypeError(f"{call}: header {header!r} is not bytes: {exc}{hint}") from None
    return 0


cdef int _announce(WriterCore writer, uint64_t when) except -1:
    """Wake subscribers that sleep, and see which came and went: the sample did not wait for that.

    Another thread may close the publisher meanwhile: the sample is sent, and nothing is raised.
    """
    cdef uint64_t bits = 0
    cdef uint32_t word, words
    if writer.b.guest_count:
        if shmnd_board_published(&writer.b, when):
            writer.wake_each()
        else:
            words = (writer.b.guest_count + 63) // 64
            word = shmnd_board_sleepers(&writer.b, 0, &bits)
            while word < words:
                writer.wake(word * 64, bits)
                word = shmnd_board_sleepers(&writer.b, word + 1, &bits)
    return writer.check(when)


@cython.no_gc_clear
cdef class WriterCore(WriterBoard):
    """The compiled part of a publisher."""

    # -- the way of a sample --

    cdef int enter(self, str call) except -1:
        if self.closed or self.born != forks:
            self.refuse(call)
        return 0

    cdef int refuse(self, str call) except -1:
        stay_at_exit()
        raise Closed(f"{call}: the publisher of topic {self.topic!r} "
                     + ("is closed" if self.born == forks else OWN_IN_CHILD))

    def _require_open(self, call):
        """Raise Closed unless the publisher can be used here."""
        self.enter(call)

    cdef int check(self, uint64_t now) except -1:
        """Check the members now and then. Raise nothing if the publisher is closed meanwhile."""
        if now - self.checked_ns > _CHECK_NS:
            self.checked_ns = now
            try:
                self._check_members()
            except (NdError, Closed):
                if not self.closed:
                    raise
        return 0

    cdef uint32_t take(self, uint64_t nbytes, uint64_t extra, str call) except? 0xFFFFFFFE:
        """Take a slot for `nbytes` bytes of a value, and `extra` ones behind them."""
        cdef uint32_t slot, wanted
        if nbytes > SHMND_MOST_SAMPLE - extra or extra > SHMND_MOST_SAMPLE:
            raise too_large(call, nbytes)
        wanted = shmnd_class_of(nbytes + extra)
        if self.most_sample and nbytes > self.most_sample:
            raise LoanLimit(f"{call}: {nbytes} bytes, and topic {self.topic!r} was opened with "
                            f"max_sample={self.most_sample}; open it with a larger one")
        slot = shmnd_board_take(&self.b, wanted)
        if slot == SHMND_NO_SLOT:
            self.check(shmnd_now_ns())  # a subscriber that is gone holds nothing
            self.enter(call)
            slot = shmnd_board_take(&self.b, wanted)
        if slot == SHMND_NO_SLOT:
            slot = self.take_new(wanted, call)
        if slot == SHMND_NO_SLOT:
            raise LoanLimit(f"{call}: no memory for {nbytes} bytes on topic {self.topic!r}")
        return slot

    cdef uint32_t take_new(self, uint32_t wanted, str call) except? 0xFFFFFFFE:
        """Take a slot of new memory. Other threads run while it is made, and may take it before."""
        cdef uint32_t slot = SHMND_NO_SLOT
        for _ in range(_MOST_TRIES):
            if not self._grow(wanted):
                slot = shmnd_board_squeeze(&self.b, wanted)
                if slot != SHMND_NO_SLOT:
                    break
                self._shrink(0)
                if not self._grow(wanted):
                    raise self._full(call)
            self.enter(call)
            slot = shmnd_board_take(&self.b, wanted)
            if slot != SHMND_NO_SLOT:
                break
        return slot

    cdef object publish(self, shmnd_sample *sample, uint32_t slot, object timeout, str call):
        """Put a sample on the board; return its position. The slot is the board's from then on.

        `_announce` follows, which may run code of Python, and so code of other threads.
        """
        cdef object end = None
        sample.when_ns = shmnd_now_ns()
        # Again after a wait: another thread may have taken the room that ended it.
        while self.b.blockers and not shmnd_board_has_room(&self.b):
            end = self._wait_for_room(timeout, end, call)
            self.enter(call)
        # After all that runs code of Python: a sample of a closed board reaches no subscriber.
        if self.closed:
            self.refuse(call)
        return shmnd_board_publish(&self.b, sample, slot)

    cdef object put(self, const void *data, uint64_t nbytes, uint32_t kind, uint32_t ndim,
                    const cnp.npy_intp *shape, bytes meta, object header, object timeout,
                    str call):
        """Copy a sample in and publish it."""
        if header is None and meta is None and nbytes <= SHMND_LINE_INLINE \
                and (ndim <= 1 or self.fixed):
            return self.put_short(data, nbytes, kind | <uint64_t>ndim << 8, timeout, call)
        return self.put_long(data, nbytes, kind, ndim, shape, meta, header, timeout, call)

    cdef object put_short(self, const void *data, uint64_t nbytes, uint64_t info, object timeout,
                          str call):
        """Publish a short value without a header, in the line itself."""
        cdef shmnd_sample sample
        memset(&sample.body, 0, sizeof(sample.body))
        memcpy(&sample.body, data, nbytes)
        sample.info = info | SHMND_INFO_INLINE | nbytes << 16
        position = self.publish(&sample, SHMND_NO_SLOT, timeout, call)
        _announce(self, sample.when_ns)
        return position

    cdef object put_long(self, const void *data, uint64_t nbytes, uint32_t kind, uint32_t ndim,
                         const cnp.npy_intp *shape, bytes meta, object header, object timeout,
                         str call):
        """Publish any value, in the line if it fits, else in a slot."""
        cdef shmnd_sample sample
        cdef uint64_t header_bytes = 0, meta_bytes = 0 if meta is None else len(meta), total
        cdef uint32_t slot
        cdef unsigned char *base
        cdef Py_buffer head
        cdef bint has_header = header is not None
        if has_header:
            open_header(header, &head, call)
            header_bytes = <uint64_t>head.len
        try:
            memset(&sample, 0, sizeof(sample))
            total = nbytes + header_bytes + meta_bytes
            if header_bytes > 0xFFFFFFFF or meta_bytes > 0xFFFF:
                raise ValueError(f"{call}: a header of {header_bytes} bytes; at most 2**32 - 1")
            if total <= SHMND_LINE_INLINE and (ndim <= 1 or self.fixed) and meta_bytes == 0:
                base = <unsigned char *>&sample.body[0]
                memcpy(base, data, nbytes)
                if has_header:
                    memcpy(base + nbytes, head.buf, header_bytes)
                sample.info = (kind | <uint64_t>ndim << 8 | SHMND_INFO_INLINE
                               | nbytes << 16 | header_bytes << 32)
                position = self.publish(&sample, SHMND_NO_SLOT, timeout, call)
                _announce(self, sample.when_ns)
                return position
            slot = self.take(nbytes, header_bytes + meta_bytes, call)
            base = self.b.slots.all[slot].base
            try:
                if nbytes > LONG_COPY:
                    with nogil:
                        shmnd_copy_bytes(base, data, nbytes)
                    self.enter(call)
                else:
                    shmnd_copy_bytes(base, data, nbytes)
                self.tail(base + nbytes, &head if has_header else NULL, meta)
                self.fill(&sample, slot, kind, nbytes, ndim, shape, header_bytes, meta_bytes)
                position = self.publish(&sample, slot, timeout, call)
            except BaseException:
                if not self.closed:
                    shmnd_slots_free(&self.b.slots, slot)
                raise
            _announce(self, sample.when_ns)
            return position
        finally:
            if has_header:
                PyBuffer_Release(&head)

    cdef int tail(self, unsigned char *at, Py_buffer *head, bytes meta) except -1:
        """Write the header and the description behind a payload."""
        if head != NULL:
            shmnd_copy_bytes(at, head.buf, head.len)
            at += head.len
        if meta is not None:
            memcpy(at, <const char *>meta, len(meta))
        return 0

    cdef int fill(self, shmnd_sample *sample, uint32_t slot, uint32_t kind, uint64_t nbytes,
                  uint32_t ndim, const cnp.npy_intp *shape, uint64_t header_bytes,
                  uint64_t meta_bytes) except -1:
        cdef shmnd_store *s = &self.b.slots.all[slot]
        cdef uint32_t dims[4]
        cdef uint32_t i
        sample.info = kind | <uint64_t>ndim << 8 | meta_bytes << 16 | header_bytes << 32
        sample.body[0] = slot | <uint64_t>s.pool << 32
        sample.body[1] = s.offset
        sample.body[2] = nbytes
        memset(dims, 0, sizeof(dims))
        if shape != NULL and not self.fixed and 1 < ndim <= 4:
            for i in range(ndim):
                dims[i] = <uint32_t>shape[i]
        memcpy(&sample.body[3], dims, sizeof(dims))
        return 0

    def send(self, value, header=None, timeout=None):
        """Publish a copy of a value; return its sequence number.

        `timeout` bounds the wait for a subscriber that blocks: TimeoutError names it.
        """
        cdef cnp.ndarray array
        cdef double number
        if self.closed or self.born != forks:
            self.refuse("Publisher.send")
        if not is_plain_timeout(timeout):
            seconds("Publisher.send", 0, "timeout", timeout)
        if self.dtype is not None and type(value) is cnp.ndarray:  # others may have a mask
            array = <cnp.ndarray>value
            if (<void *>cnp.PyArray_DESCR(array) == <void *>self.dtype
                    and cnp.PyArray_IS_C_CONTIGUOUS(array)
                    and not self.fixed and array.ndim <= 4):
                if array.ndim < 2 or self.small(array):
                    return self.put(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array), self.kind,
                                    array.ndim, cnp.PyArray_DIMS(array), None, header, timeout,
                                    "Publisher.send")
            elif self.fixed and self.matches(array):
                return self.put(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array), self.kind,
                                array.ndim, NULL, None, header, timeout, "Publisher.send")
        elif type(value) is float and <void *>self.dtype == <void *>_FLOAT and not self.fixed:
            number = value
            return self.put(&number, sizeof(number), self.kind, 0, NULL, None, header, timeout,
                            "Publisher.send")
        elif self.kind == 2 and type(value) is bytes:
            return self.put(<const char *>(<bytes>value), len(<bytes>value), 2, 1, NULL, None,
                            header, timeout, "Publisher.send")
        return self._send_other(value, header, timeout)

    cdef bint matches(self, cnp.ndarray array) except -1:
        return (<void *>cnp.PyArray_DESCR(array) == <void *>self.dtype
                and cnp.PyArray_IS_C_CONTIGUOUS(array)
                and (<object>array).shape == self.shape)

    cdef bint small(self, cnp.ndarray array):
        cdef int i
        for i in range(array.ndim):
            if cnp.PyArray_DIMS(array)[i] > 0xFFFFFFFF:
                return False
        return True

    def _put_array(self, cnp.ndarray array not None, bytes meta, header, timeout):
        """Publish a C-contiguous array; `meta` describes what the topic does not say."""
        cdef cnp.ndarray value = array
        cdef bint described = meta is not None
        return self.put(cnp.PyArray_DATA(value), cnp.PyArray_NBYTES(value),
                        _SELF if described else self.kind, value.ndim,
                        NULL if described or not self.small(value) else cnp.PyArray_DIMS(value),
                        meta, header, timeout, "Publisher.send")

    def _put_bytes(self, const unsigned char[::1] view not None, kind, meta, header, timeout):
        """Publish the bytes of a buffer."""
        cdef const void *data = &_CHECK_NS  # of which no byte is read
        if view.shape[0]:
            data = &view[0]
        return self.put(data, view.shape[0], kind, 1, NULL, meta, header, timeout,
                        "Publisher.send")

    def _loan(self, nbytes, extra):
        """Return a slot to compute into, with room for a header and a description behind it."""
        return self.new_loan(nbytes, extra)

    cdef Loaned new_loan(self, uint64_t nbytes, uint64_t extra):
        cdef Loaned loan = Loaned.__new__(Loaned)
        self.lend(loan, nbytes, extra)
        return loan

    cdef int lend(self, Loaned loan, uint64_t nbytes, uint64_t extra) except -1:
        """Take a slot for a loan, be it a new one or one that is used again."""
        cdef uint32_t slot
        if self.closed or self.born != forks:
            self.refuse("Publisher.loan")
        slot = self.take(nbytes, extra, "Publisher.loan")
        loan.writer = self
        loan.spent = False
        loan.slot = slot
        loan.nbytes = nbytes
        loan.base = self.b.slots.all[slot].base
        shmnd_prefetch_to_own(loan.base)  # a subscriber has read it
        if self.b.slots.all[slot].group != self.near_group:
            self.near_pool = self.pools[self.b.slots.all[slot].group]
            self.near_group = self.b.slots.all[slot].group
        loan.memory = self.near_pool
        self.loans += 1
        return 0

    def _capacity(self, Loaned loan not None):
        """Return the bytes of a loan's slot; 0 for a loan of another writer."""
        return shmnd_class_bytes(self.b.slots.all[loan.slot].class_) if loan.writer is self else 0

    def _send_loan(self, Loaned loan not None, kind, shape, meta, header, timeout):
        """Publish the contents of a loan; nothing is copied."""
        return self.send_loan(loan, kind, shape, meta, header, timeout)

    cdef object send_loan(self, Loaned loan, uint32_t kind, tuple shape, bytes meta,
                          object header, object timeout):
        cdef shmnd_sample sample
        cdef cnp.npy_intp dims[4]
        cdef uint32_t i, ndim = len(shape)
        cdef uint64_t meta_bytes = 0 if meta is None else len(meta)
        cdef Py_buffer head
        cdef uint64_t header_bytes = 0
        cdef bint sent = False
        cdef str call = "Loan.send"
        if self.closed or self.born != forks:
            self.refuse(call)
        if loan.spent or loan.writer is not self:
            raise Closed(f"{call}: the loan is spent: it was sent or dropped before")
        if 1 < ndim <= 4:
            for i in range(ndim):
                dims[i] = shape[i]
        if header is not None:
            open_header(header, &head, call)
            header_bytes = <uint64_t>head.len
        try:
            if loan.nbytes + header_bytes + meta_bytes > shmnd_class_bytes(
                    self.b.slots.all[loan.slot].class_):
                raise ValueError(f"{call}: a header of {header_bytes} bytes does not fit behind "
                                 "the loan; pass one that is shorter, or use Publisher.send")
            self.tail(loan.base + loan.nbytes, &head if header is not None else NULL, meta)
            self.fill(&sample, loan.slot, kind, loan.nbytes, ndim,
                      dims if meta is None and ndim <= 4 else NULL, header_bytes, meta_bytes)
            loan.spent = True  # for other threads, too, while this one waits for room
            position = self.publish(&sample, loan.slot, timeout, call)
            sent = True
            self.loans -= 1
            _announce(self, sample.when_ns)
            return position
        finally:
            loan.spent = sent
            loan.writer = None if sent else self  # an array that is kept keeps its memory alone
            if header is not None:
                PyBuffer_Release(&head)

    # -- the end --

    def _shut(self):
        """Close the board: the samples on it stay for those that have it mapped."""
        if self.closed:
            return
        self.closed = True
        if self.born == forks and self.b.head != NULL:
            # SYNC shut: release, pairs with acquire in Source.ended; all samples come before it
            shmnd_release64(&self.b.head.state, SHMND_BOARD_CLOSED)
