# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The rings of doorbells and of the timer, as a poll or a sleep finds them on the epoll."""

import os

from libc.errno cimport EAGAIN, errno

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void *buffer, size_t nbytes, int flags)
    enum: MSG_DONTWAIT

cdef extern from "unistd.h" nogil:
    ssize_t read(int fd, void *buffer, size_t nbytes)

cdef enum:
    _RINGS = 256  # bytes read at once from a doorbell, one for each ring
    _REPEATS = 16  # rings of one doorbell in a row, after which the epoll is asked for others


cdef class RingsCore:
    """An epoll, and its descriptors that are handled here."""

    def __cinit__(self):
        self.epoll = self.own = self.nudge = self.rang = -1
        self._doorbells = {}

    def ready(self, list found=None, bint woken=False) -> tuple:
        """Return whether a doorbell or the timer is readable now, and which other descriptors.

        Doorbells and the timer are drained. `found` is what a sleep has just found. A caller that
        is `woken` has found the epoll readable, and calls again while it is.
        """
        cdef list others = []
        cdef bint rung = False
        if woken and self.rings_again():
            return True, others
        if found is None:
            found = []
            rung = self.poll_epoll(found)
        if found:
            rung = self._read_doorbells(found, others) or rung
        return rung, others

    cdef bint poll_epoll(self, list others) except -1:
        """Poll the epoll without waiting, and read the doorbells that are ready.

        Return whether one rang; append the other descriptors that are ready to `others`.
        """
        cdef epoll_event events[MOST_EVENTS]
        cdef int n = epoll_wait(self.epoll, events, MOST_EVENTS, 0)
        if n < 0:
            raise OSError(errno, os.strerror(errno))
        return self.read_doorbells(events, n, others)

    cdef bint read_doorbells(self, epoll_event *events, int n, list others) except -1:
        """Read the doorbells among `n` descriptors that are ready.

        Return whether one rang; append the rest to `others`.
        """
        cdef int i
        cdef bint rung = False
        if n == 1 and events[0].data.fd == self.rang:
            self.repeats = self.repeats % _REPEATS + 1
        elif n > 0:
            self.rang, self.repeats = events[0].data.fd if n == 1 else -1, 0
        for i in range(n):
            if events[i].data.fd == self.nudge:
                continue  # left to the leader, which takes it under its lock
            if self.read_rings(events[i].data.fd):
                rung = True
            else:
                others.append((events[i].data.fd, events[i].events))
        return rung

    cdef bint rings_again(self) noexcept:
        """Read the doorbell that rang the last times; return whether it has rung again.

        An event loop found the epoll readable, most often by the same peer as before: this does not
        ask the kernel which descriptor it was. All others that are ready keep the epoll readable
        for the next turn of the loop; a doorbell that always rings delays them by `_REPEATS` turns.
        """
        cdef char rings[_RINGS]
        if not 0 < self.repeats < _REPEATS or self.rang not in self._doorbells:
            return False
        if recv(self.rang, rings, _RINGS, MSG_DONTWAIT) <= 0:
            self.repeats = 0
            return False
        self.repeats += 1
        return True

    cdef int read_rings(self, int fd) noexcept:
        """Read the rings of a doorbell; return False if the descriptor is none, or was closed."""
        cdef char rings[_RINGS]
        cdef ssize_t taken
        if fd == self.own:
            taken = read(fd, rings, 8)
            return True
        if fd not in self._doorbells:
            return False
        taken = recv(fd, rings, _RINGS, MSG_DONTWAIT)
        return taken > 0 or (taken < 0 and errno == EAGAIN)
