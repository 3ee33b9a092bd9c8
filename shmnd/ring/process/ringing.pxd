# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t


cdef extern from "sys/epoll.h" nogil:
    union epoll_data:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)

cdef enum:
    MOST_EVENTS = 64  # taken at once


cdef class RingsCore:
    cdef public dict _doorbells
    cdef int epoll, own, nudge
    cdef int rang  # the descriptor that alone was ready last; -1: none, or several
    cdef int repeats  # how often it was that one again

    cdef bint poll_epoll(self, list others) except -1
    cdef bint read_doorbells(self, epoll_event *events, int n, list others) except -1
    cdef bint rings_again(self) noexcept
    cdef int read_rings(self, int fd) noexcept
