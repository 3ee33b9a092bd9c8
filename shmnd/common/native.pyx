# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Calls of the system that Python 3.11 does not have, and methods that it calls directly.

Not by ctypes: on import its library may open a descriptor, which in a process that has closed its
standard streams gets the number of one of them.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from cpython.object cimport PyObject, PyTypeObject

from types import MethodDescriptorType

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        pass

    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method

    object PyDescr_NewMethod(object type, PyMethodDef *method)
    void PyType_Modified(PyTypeObject *type)

cdef extern from "<time.h>" nogil:
    enum:
        CLOCK_MONOTONIC

    struct timespec:
        long tv_sec, tv_nsec

cdef extern from "<sys/timerfd.h>" nogil:
    enum:
        TFD_CLOEXEC
        TFD_NONBLOCK
        TFD_TIMER_ABSTIME

    struct itimerspec:
        timespec it_interval, it_value

    int c_timerfd_create "timerfd_create"(int clock, int flags)
    int c_timerfd_settime "timerfd_settime"(
        int fd, int flags, const itimerspec *value, itimerspec *before)

cdef extern from "<sys/prctl.h>" nogil:
    enum:
        PR_SET_PDEATHSIG

    int prctl(int option, unsigned long value)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
        MSG_PEEK

    ssize_t c_send "send"(int fd, const void *data, size_t nbytes, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t nbytes, int flags)

cdef double _LATEST = 2.0 ** 62
cdef long long _NANOSECONDS = 1_000_000_000


def timerfd() -> int:
    """Return the descriptor of a new timer of `time.monotonic()`."""
    cdef int fd = c_timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)
    if fd < 0:
        PyErr_SetFromErrno(OSError)
    return fd


def set_timerfd(int fd, double when) -> None:
    """Let a timer become readable at a moment. Another descriptor is left alone."""
    cdef long long whole = <long long>min(max(when * _NANOSECONDS, 1.0), _LATEST)  # 0 is never
    cdef itimerspec value
    value.it_interval.tv_sec = value.it_interval.tv_nsec = 0
    value.it_value.tv_sec = whole // _NANOSECONDS
    value.it_value.tv_nsec = whole % _NANOSECONDS
    c_timerfd_settime(fd, TFD_TIMER_ABSTIME, &value, NULL)


def send_byte(int fd) -> None:
    """Send a zero byte by a socket, if it has room and a reader.

    An object of Python for the socket would own the number: where the handler of a signal raises,
    it is dropped and closes it.
    """
    cdef char byte = 0
    c_send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL)


def has_byte(int fd) -> bool:
    """Return whether a socket has a byte to read. It stays there."""
    cdef char byte
    return c_recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0


def die_with_parent(int signal) -> None:
    """Ask the kernel for a signal to this process when the thread that forked it ends."""
    prctl(PR_SET_PDEATHSIG, <unsigned long>signal)


def address_of(memory) -> int:
    """Return the address of a buffer that can be written to."""
    cdef Py_buffer view
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    cdef size_t address = <size_t>view.buf
    PyBuffer_Release(&view)
    return address


def direct_calls(cls: type) -> type:
    """Make the compiled methods that a class inherits its own, and return it.

    The interpreter calls such a method directly only at an object of the very class that it is of.
    One that is set in a base class later has no effect on it, and one of a class that a program
    puts behind it among the bases has none, either.
    """
    cdef PyTypeObject *made = <PyTypeObject *>cls
    cdef dict names = <dict>made.tp_dict
    seen = set(names)
    for base in cls.__mro__[1:]:
        for name, method in base.__dict__.items():
            if name not in seen and type(method) is MethodDescriptorType and name[:2] != "__":
                names[name] = PyDescr_NewMethod(
                    cls, (<PyMethodDescrObject *><PyObject *>method).d_method)
            seen.add(name)
    PyType_Modified(made)
    return cls
