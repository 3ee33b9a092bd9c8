# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Words, cells, signals and gates in shared memory: what events and blackboards are made of.

Each call gives an offset, which is checked against the memory.
"""

from threading import Lock

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.common.limits cimport LONG_COPY
from shmnd.ring.process.forks cimport forks

__all__ = ["LONG", "SIGNALS", "Words", "cell_bytes"]

cdef extern from "cell.h" nogil:
    struct shmnd_cell:
        pass
    uint64_t shmnd_cell_words(uint64_t nbytes)
    uint64_t shmnd_cell_bytes(uint64_t nbytes)
    uint64_t shmnd_cell_write(shmnd_cell *cell, const uint64_t *value, uint64_t words,
                              uint64_t stride)
    uint64_t shmnd_cell_read(const shmnd_cell *cell, uint64_t *value, uint64_t words,
                             uint64_t stride)
    uint64_t shmnd_cell_version(const shmnd_cell *cell)

cdef extern from "signals.h" nogil:
    struct shmnd_signals:
        pass
    uint32_t SHMND_SIGNALS
    void shmnd_signal(shmnd_signals *s, uint32_t number)
    uint64_t shmnd_signals_marked(shmnd_signals *s)
    uint64_t shmnd_signals_take(shmnd_signals *s, uint32_t word)

SIGNALS = SHMND_SIGNALS
"""How many numbers a listener has."""
LONG = LONG_COPY
"""During a copy of more bytes other threads run."""
cdef uint32_t MOST_TRIES = 100000, LEAST_TRIES = 16


def cell_bytes(uint64_t nbytes) -> int:
    """Return the bytes of a cell for a value of so many bytes."""
    return shmnd_cell_bytes(nbytes)


cdef class Words:
    """Mapped memory."""

    cdef Py_buffer view
    cdef bint filled
    cdef readonly bint writable
    cdef object writing
    cdef uint32_t born

    def __cinit__(self, memory, bint writable=True):
        PyObject_GetBuffer(memory, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.filled = True
        self.born = forks
        self.writable = writable
        self.writing = Lock()

    def __dealloc__(self):
        if self.filled:
            PyBuffer_Release(&self.view)

    def __len__(self) -> int:
        return self.view.len

    cdef char *at(self, uint64_t offset, uint64_t nbytes, bint write) except NULL:
        cdef uint64_t size = self.view.len
        if offset % 8 or nbytes > size or offset > size - nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} of {size} in shared memory")
        if write and not self.writable:
            raise ValueError("this shared memory is mapped for reading")
        return <char *>self.view.buf + offset

    # -- words --

    def load(self, uint64_t offset) -> int:
        """Return a word, and see all that was written before it."""
        return shmnd_acquire64(<word64 *>self.at(offset, 8, False))

    def store(self, uint64_t offset, uint64_t value) -> None:
        """Write a word behind all that was written before."""
        shmnd_release64(<word64 *>self.at(offset, 8, True), value)

    def set_bits(self, uint64_t offset, uint64_t bits) -> None:
        """Set bits of a word that other processes set too."""
        shmnd_set_bits(<word64 *>self.at(offset, 8, True), bits)

    def bits(self, uint64_t offset, uint32_t words) -> list:
        """Return the numbers of the bits that are set in some words, each loaded once."""
        cdef uint64_t *at = <uint64_t *>self.at(offset, 8 * <uint64_t>words, False)
        cdef uint64_t found
        cdef uint32_t word, bit
        numbers = []
        for word in range(words):
            found = shmnd_acquire64(<word64 *>&at[word])
            for bit in range(64 if found else 0):
                if found >> bit & 1:
                    numbers.append(word * 64 + bit)
        return numbers

    def joined(self) -> None:
        """Publish all earlier stores before the addresses of sleepers are loaded."""
        shmnd_gate_joined()

    def copy(self, uint64_t offset, uint64_t nbytes) -> bytes:
        """Return a private copy of some bytes."""
        return PyBytes_FromStringAndSize(self.at(offset, nbytes, False), nbytes)

    def write(self, uint64_t offset, bytes data) -> None:
        """Write bytes that no other process reads yet."""
        memcpy(self.at(offset, len(data), True), PyBytes_AS_STRING(data), len(data))

    # -- cells --

    def write_cell(self, uint64_t offset, value) -> int:
        """Write the next version of a value; return its number."""
        cdef Py_buffer found
        cdef uint64_t version, words, stride
        cdef shmnd_cell *cell
        PyObject_GetBuffer(value, &found, PyBUF_SIMPLE)
        try:
            if <size_t>found.buf % 8 or found.len % 8:
                raise ValueError("a value is written from whole words")
            cell = <shmnd_cell *>self.at(offset, shmnd_cell_bytes(found.len), True)
            words, stride = found.len // 8, shmnd_cell_words(found.len)
            if found.len <= LONG_COPY:
                version = shmnd_cell_write(cell, <const uint64_t *>found.buf, words, stride)
            else:
                with self.writing, nogil:  # a cell has one writer
                    version = shmnd_cell_write(cell, <const uint64_t *>found.buf, words, stride)
        finally:
            PyBuffer_Release(&found)
        return version

    def read_cell(self, uint64_t offset, value, double longest=1.0) -> int:
        """Copy the newest version of a value; return its number, 0 for none.

        -1 where it was written anew during each of many readings, or for `longest` seconds.
        """
        cdef Py_buffer found
        cdef uint64_t version, words, stride, begun
        cdef uint64_t most_ns = <uint64_t>(min(max(longest, 0.0), 1.0) * 1e9)
        cdef uint32_t tries
        cdef shmnd_cell *cell
        PyObject_GetBuffer(value, &found, PyBUF_WRITABLE)
        try:
            if <size_t>found.buf % 8 or found.len % 8:
                raise ValueError("a value is read to whole words")
            cell = <shmnd_cell *>self.at(offset, shmnd_cell_bytes(found.len), False)
            words, stride = found.len // 8, shmnd_cell_words(found.len)
            begun = shmnd_now_ns()
            for tries in range(MOST_TRIES):
                if tries > LEAST_TRIES and shmnd_now_ns() - begun > most_ns:
                    break
                if found.len <= LONG_COPY:
                    version = shmnd_cell_read(cell, <uint64_t *>found.buf, words, stride)
                else:
                    with nogil:
                        version = shmnd_cell_read(cell, <uint64_t *>found.buf, words, stride)
                    PyErr_CheckSignals()
                if version != <uint64_t>-1:
                    return version
        finally:
            PyBuffer_Release(&found)
        return -1

    def cell_version(self, uint64_t offset) -> int:
        """Return the number of the newest version; 0 for none."""
        return shmnd_cell_version(<shmnd_cell *>self.at(offset, 128, False))

    # -- signals --

    def signal_each(self, list offsets, uint32_t number) -> None:
        """Signal a number at each of these, to all of them; the list is empty then."""
        for offset in offsets:
            self.at(offset, 576, True)
        for offset in offsets:
            shmnd_signal(<shmnd_signals *>self.at(offset, 576, True), number)
        offsets.clear()

    def signalled(self, uint64_t offset) -> bool:
        """Return whether there is a number to take."""
        return shmnd_relaxed64(<word64 *>self.at(offset, 576, False)) != 0

    def take_signals(self, uint64_t offset, set found) -> None:
        """Take all numbers that were signalled into a set; none in a child, which has its parent's.
        """
        if self.born != forks:
            return
        cdef shmnd_signals *s = <shmnd_signals *>self.at(offset, 576, True)
        cdef uint64_t marked = shmnd_signals_marked(s), bits
        cdef uint32_t word, bit
        for word in range(64):
            if not marked >> word & 1:
                continue
            bits = shmnd_signals_take(s, word)
            for bit in range(64):
                if bits >> bit & 1:
                    found.add(word * 64 + bit)

    def clear(self, uint64_t offset, uint64_t nbytes) -> None:
        """Set bytes to zero that no other process uses."""
        memset(self.at(offset, nbytes, True), 0, nbytes)

    # -- gates --

    def arm(self, uint64_t offset, bint descriptor=False) -> int:
        """Arm a gate; return its word. The caller polls once more before it sleeps."""
        return shmnd_gate_arm(<word32 *>self.at(offset, 8, True),
                              SHMND_GATE_DESCRIPTOR if descriptor else SHMND_GATE_SLEEPER)

    def sleep(self, uint64_t offset, uint32_t word, double seconds) -> None:
        """Sleep at an armed gate until it opens, and at most a tenth of a second."""
        cdef word32 *gate = <word32 *>self.at(offset, 8, False)
        cdef uint64_t pause = SHMND_GATE_NS
        if seconds <= 0:
            return
        if seconds < 0.1:
            pause = <uint64_t>(seconds * 1e9) + 1
        with nogil:
            shmnd_futex_sleep(gate, word, pause)
        PyErr_CheckSignals()

    def open(self, uint64_t offset) -> int:
        """Open a gate after a change: wake all its sleepers. Return 0, or the word with which to
        call `rung` once the caller has rung the descriptors."""
        cdef word32 *gate = <word32 *>self.at(offset, 8, True)
        cdef uint32_t word = shmnd_gate_open(gate)
        if word & SHMND_GATE_SLEEPER and shmnd_futex_wake(gate, 1 << 30) == 0:
            shmnd_gate_clear(gate, word, SHMND_GATE_SLEEPER)
            word &= ~SHMND_GATE_SLEEPER
        return word if word & SHMND_GATE_DESCRIPTOR else 0

    def rung(self, uint64_t offset, uint32_t word) -> None:
        """Clear the bit of the descriptors after they were rung."""
        shmnd_gate_clear(<word32 *>self.at(offset, 8, True), word, SHMND_GATE_DESCRIPTOR)
