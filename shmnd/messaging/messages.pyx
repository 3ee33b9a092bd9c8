# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Messages of any length over one queue pair: fragments, posted receives, credits.

Both sides post as many receives as the other may have fragments under way, and some for words
without a fragment. A side sends a fragment only when it has a credit, a receive of the other, so
every Send is over when its call returns: nothing waits for a sender that computes, and a message
that was not sent in time was not sent at all. Credits travel in the fragments of the opposite
direction, or in a message of their own when half of them are due.

A fragment begins with one word:

    bits 0..15   what it is: `FIRST` or one of the next three
    bits 16..27  credits: receives posted again since the last word that counted them
    bits 28..63  bytes of the message from this fragment on, this one included

A first fragment discards a message that was cut short: its sender ran out of time, or was
interrupted. A message without such a word was posted by the peer's program itself, on the queue
pair, and is delivered as it is.

It is compiled because a message costs a fraction of a microsecond below, and calls only what a
program may call too: post a Send, post a Receive, poll, wait.

Threads: every change of this state happens under the interpreter's lock, in one piece. Posting and
polling may let other threads run, so two rules hold. `pumping` is set from the poll until the last
of its results is taken: a thread that finds it set leaves the queue alone, and results keep their
order. A Send takes its place, its credit and its word before it is posted. Memory that the peer can
write is read once.
"""

from cpython.buffer cimport (PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_Release,
                             PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from collections import deque

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.posting cimport PostingCore
from shmnd.ring.queues.reasons cimport refuse

from shmnd.common.arguments import seconds
from shmnd.common.objects import holds_objects
from shmnd.memory_region import Sge
from shmnd.status import MrFlag, OpFlag, Status

cdef enum:
    FIRST = 0x5D10
    NEXT = 0x5D11
    CREDITS = 0x5D12
    GOODBYE = 0x5D13
    WORD = 8
    LINE = 64
    OTHERS = 3  # receives that carry no fragment: two returns of credits, and the goodbye
    BATCH = 64
    LEAST_PIECE = 1024
    MOST_PIECE = 1 << 16
    MOST_DEPTH = 2048


cdef object _SUCCESS = Status.SUCCESS
cdef uint32_t _FULL = Status.NO_MORE_ENTRIES
cdef uint32_t _SILENT = OpFlag.SILENT_SUCCESS
cdef uint32_t _INLINE = OpFlag.SILENT_SUCCESS | OpFlag.INLINE
cdef str _OVER = "the connection ended"


cdef class Slot:
    """The context of one of these receives: where its memory is."""


cdef class Messages:
    """Both directions of one connection."""

    def __cinit__(self, *args, **kwargs):
        self.shut = True  # until both sides agree

    def __init__(self, adapter, int nbytes, int depth) -> None:
        cdef Slot slot
        if self.slots is not None:
            raise TypeError("messages are made once")
        if not 0 < depth <= MOST_DEPTH or nbytes <= 0:
            raise ValueError(f"messages of {nbytes} bytes in {depth} pieces")
        self.depth = depth
        self.piece = min(MOST_PIECE, max(LEAST_PIECE, nbytes // depth // LINE * LINE))
        self.receives = depth + OTHERS
        self.places = depth
        self.memory = adapter.allocate((self.receives + depth) * self.piece + LINE)
        self.region = adapter.create_memory_region()
        self.region.register(self.memory, MrFlag.ALLOW_LOCAL_WRITE).result()
        self.address = self.region.address
        self.token = self.region.local_token
        self.base = <unsigned char *><size_t>self.address
        self.outgoing = <uint64_t>self.receives * self.piece  # where fragments to send lie
        self.word = self.outgoing + <uint64_t>depth * self.piece  # and a word alone
        self.inbox = deque()
        self.slots = []
        for at in range(self.receives):
            slot = Slot.__new__(Slot)
            slot.begin = <uint64_t>at * self.piece
            self.slots.append(slot)
        self.ended = ""

    def post(self, PostingCore qp not None, CompletionCore cq not None) -> None:
        """Post all receives, which complete on `cq`, before the connection is made."""
        cdef Slot slot
        if self.slots is None or self.qp is not None:
            raise TypeError("receives are posted once")
        self.qp, self.cq = qp, cq
        for slot in self.slots:
            qp.receive(self.region.sge(slot.begin, self.piece), slot)

    def agree(self, int depth, int piece) -> None:
        """Take the lesser of what both sides offer."""
        if not (0 < depth <= MOST_DEPTH and piece >= LEAST_PIECE) or self.qp is None:
            raise ValueError(f"the peer offers {depth} pieces of {piece} bytes")
        self.depth = self.credits = min(self.depth, depth)
        self.most = min(self.piece, piece) - WORD
        self.due = (self.depth + 1) // 2
        self.shut = False

    # -- sending --

    def send_now(self, data, timeout=None) -> bool:
        """Send a message of one fragment, if that is possible at once; return whether it was sent.

        It is not when the message is longer, credits are missing, there is an error to raise, or
        `data` has no buffer of bytes: `Connection` continues then. A wrong `timeout` raises.
        """
        cdef Py_buffer view
        if timeout is not None and not (type(timeout) is float and timeout >= 0):
            seconds("Connection.send_bytes", 0, "timeout", timeout)
        if self.shut or self.busy:
            return False
        if not self.pumping and not self.inbox and self.cq._something():
            self.poll()
        if self.goodbye or self.ended:
            return False
        if type(data) is bytes:
            return self.whole(<unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        try:
            PyObject_GetBuffer(data, &view, PyBUF_ND | PyBUF_FORMAT)
        except (TypeError, BufferError, ValueError):
            return False
        try:
            if view.format != NULL and holds_objects(view.format.decode(), data):
                return False
            return self.whole(<unsigned char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef bint whole(self, const unsigned char *data, uint64_t nbytes) except -1:
        if nbytes > self.most or not self.credits:
            return False
        return self.fragment(FIRST, nbytes, data, nbytes)

    def push(self, out) -> bool:
        """Send fragments as far as credits go; return whether the last one was sent."""
        cdef Py_buffer view
        cdef uint64_t total, sent, length
        PyObject_GetBuffer(out.data, &view, PyBUF_SIMPLE)
        try:
            total = view.len
            while self.credits and not self.shut:
                sent = out.sent
                length = min(total - sent, self.most)
                if not self.fragment(NEXT if out.begun else FIRST, total - sent,
                                     <unsigned char *>view.buf + sent, length):
                    return False
                out.begun = True
                out.sent = sent + length
                if sent + length == total:
                    return True
        finally:
            PyBuffer_Release(&view)
        return False

    cdef bint fragment(self, uint64_t what, uint64_t left, const unsigned char *data,
                       uint64_t nbytes) except -1:
        """Send one fragment; return False when there is no connection any more."""
        cdef c.shmnd_sge sge
        cdef uint64_t begin
        cdef uint32_t status
        cdef int owed
        if self.qp.born != forks or c.shmnd_pace_due(&self.qp.pace):
            self.qp.do_periodic_work("send")  # other threads may run here
            if self.shut or not self.credits:
                return False
        owed = self.owed
        begin = self.outgoing + <uint64_t>self.place * self.piece
        (<uint64_t *>(self.base + begin))[0] = what | <uint64_t>owed << 16 | left << 28
        c.shmnd_copy_bytes(self.base + begin + WORD, data, nbytes)
        sge.address = self.address + begin
        sge.length = <uint32_t>(nbytes + WORD)
        sge.token = self.token
        self.owed = 0
        self.credits -= 1
        self.place = self.place + 1 if self.place + 1 < self.places else 0
        status = self.qp.post_send(None, &sge, 1, _SILENT)
        if status == 0:
            return True
        self.owed += owed
        self.credits += 1
        self.place = (self.place or self.places) - 1
        if status == _FULL:
            refuse(self.qp, "send", status, Sge(sge.address, sge.length, sge.token), _SILENT)
        self.ended = self.ended or _OVER
        return False

    def say_goodbye(self) -> None:
        """Send the peer the end of all messages. Everything sent before arrives before."""
        if self.qp is None:
            raise TypeError("a goodbye is sent once the receives are posted")
        self.say(GOODBYE)

    cdef int say(self, uint64_t what) except -1:
        """Send one word. No Python runs here, as in a Send that makes progress elsewhere: if the
        handler of a signal raised there, a peer that waits for these credits would have to wait
        until the next poll of this side."""
        cdef c.shmnd_sge sge
        cdef int owed = self.owed
        if self.qp.born != forks:
            return 0
        (<uint64_t *>(self.base + self.word))[0] = what | <uint64_t>owed << 16
        sge.address = self.address + self.word
        sge.length = WORD
        sge.token = self.token
        self.owed = 0
        if self.qp.post_send(None, &sge, 1, _INLINE):
            self.owed += owed  # there is no connection any more; the receives say so
        return 0

    # -- receiving --

    def __iter__(self):
        """Yield the messages, waiting `patience` for each.

        The caller takes a message by a step of a loop: behind a call, the interpreter runs handlers
        of signals, which may raise, and the message would be lost.
        """
        return self

    def __next__(self) -> bytes:
        """Stop when the time ends first (`late`), and when there is something else to do: another
        thread waits already, or no message comes any more."""
        if self.next_is_there("Connection.recv_bytes"):
            return self.inbox.popleft()
        raise StopIteration

    cdef bint next_is_there(self, str call) except -1:
        """Wait `patience` for a message; return False when the iteration stops."""
        cdef uint64_t end = 0, now
        timeout = self.patience
        self.late = False
        if timeout is not None and not (type(timeout) is float and timeout >= 0):
            timeout = seconds(call, 0, "timeout", timeout)
        if self.shut:
            return False  # also with messages left: they are not for a child, or after the end
        if self.inbox:
            return True
        if self.pumping:
            return False
        self.poll()
        if timeout is not None and not self.inbox:
            end = c.shmnd_now_ns() + <uint64_t>(min(<double>timeout, 1e9) * 1e9)
        while not self.inbox:
            if self.goodbye or self.ended or self.shut or self.pumping:
                return False
            if end:
                now = c.shmnd_now_ns()
                timeout = (end - now) * 1e-9 if now < end else 0.0
            if not self.pump(timeout) and end and c.shmnd_now_ns() >= end:
                self.late = True
                return False
        return True

    def pump(self, timeout=None) -> bool:
        """Wait for results and take them; return False when the time ends first.

        It returns False at once while another thread waits, and after the end.
        """
        cdef list results
        if self.pumping or self.shut:
            return False
        self.pumping = True
        try:
            results = self.cq.wait(BATCH, timeout)
            self.take(results)
        finally:
            self.idle()
        return bool(results)

    def ready(self) -> bool:
        """Return whether a message is there, or the end, or a poll may find one. It only reads."""
        if self.inbox or self.goodbye or self.ended or self.shut:
            return True
        return not self.pumping and self.cq._something()

    def progress(self) -> None:
        """Take all results that are there, without waiting, unless another thread does that."""
        if not self.pumping and not self.shut:
            self.poll()

    cdef int poll(self) except -1:
        self.pumping = True
        try:
            self.take(self.cq.poll_results(BATCH))
        finally:
            self.idle()
        return 0

    cdef int idle(self) except -1:
        """Another thread may wait for the queue now."""
        self.pumping = False
        if self.followers:
            self.wake()
        if self.watch is not None:
            self.watch()
        return 0

    cdef int take(self, list results) except -1:
        """Take what arrived into the inbox, post the receives again, and count credits."""
        cdef Py_ssize_t taken = 0
        try:
            for result in results:
                self.take_one(result)
                taken += 1
        finally:
            if taken < len(results):  # no memory for a message: it is kept for the next poll
                del results[:taken]
                self.cq.give_back(results)
        if self.owed >= self.due and not self.shut:
            self.say(CREDITS)
        return 0

    cdef int take_one(self, Result result) except -1:
        """Take what one Receive holds. Where no memory is left for it, nothing has changed."""
        cdef Slot slot
        cdef c.shmnd_sge sge
        cdef uint64_t word = 0, what, nbytes
        if result.status is not _SUCCESS:
            self.ended = self.ended or _OVER
            return 0
        if self.shut or type(result.request_context) is not Slot:
            return 0  # the program's own Receive; its result goes with it
        slot = <Slot>result.request_context
        nbytes = result.bytes
        if nbytes >= WORD:
            word = c.shmnd_relaxed64(<const c.word64 *>(self.base + slot.begin))
        what = word & 0xFFFF
        if what == FIRST and word >> 28 == nbytes - WORD:
            self.inbox.append(PyBytes_FromStringAndSize(
                <char *>self.base + slot.begin + WORD, nbytes - WORD))
            self.partial = None
            self.owed += 1
        elif FIRST <= what <= GOODBYE:
            self.other(what, word >> 28, slot.begin + WORD, nbytes - WORD)
        else:
            self.inbox.append(PyBytes_FromStringAndSize(<char *>self.base + slot.begin, nbytes))
            word = 0
        sge.address = self.address + slot.begin
        sge.length = self.piece
        sge.token = self.token
        if self.qp.post_receive(slot, &sge, 1):
            self.ended = self.ended or _OVER
        self.credits = min(self.depth, self.credits + <int>(word >> 16 & 0xFFF))
        return 0

    cdef int other(self, uint64_t what, uint64_t left, uint64_t begin, uint64_t nbytes) except -1:
        """Take a part of a message, credits, or the goodbye."""
        if what == GOODBYE:
            self.goodbye = True
            return 0
        if what == CREDITS:
            return 0
        if what == FIRST:
            self.begin(left)
        if self.partial is None or left != self.left or nbytes > left:
            self.partial = None
            self.ended = "the peer sent fragments that do not fit together"
            return 0
        c.shmnd_copy_bytes(
            PyBytes_AS_STRING(self.partial) + (PyBytes_GET_SIZE(self.partial) - left),
            self.base + begin, nbytes)
        if nbytes == left:
            self.inbox.append(self.partial)
            self.partial = None
        self.left -= nbytes
        self.owed += 1
        return 0

    cdef int begin(self, uint64_t length) except -1:
        """Begin a message, in the memory that it needs in the end."""
        self.partial = None  # one that was cut short
        try:
            self.partial = PyBytes_FromStringAndSize(NULL, length)
        except MemoryError:
            raise MemoryError(
                f"no memory is left for a message of {length} bytes (ulimit -v); it stays, and the "
                "next call may take it"
            ) from None
        self.left = length
        return 0

    # -- the end --

    def refuse(self) -> None:
        """Send and receive nothing any more."""
        self.shut = True

    def close(self) -> None:
        """Release the memory."""
        self.shut = True
        self.region.close()

    def __repr__(self) -> str:
        return f"{self.depth} pieces of {self.piece} bytes a side"
