# SPDX-License-Identifier: Apache-2.0
"""The standard streams, where the caller has closed one, or nothing takes output."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import sys
from typing import TYPE_CHECKING

from shmnd.common.interruption import pass_on

if TYPE_CHECKING:
    import socket


def clear_of_streams(fd: int) -> int:
    """Return the same open file under a number that is none of the standard streams'.

    A program may have closed its standard streams and still write to their numbers; and a child
    process gets other files under these numbers. A caller in which a signal handler must lose no
    descriptor calls this only for numbers up to 2.
    """
    if fd > 2:
        return fd
    try:
        return duplicate(fd)
    finally:
        os.close(fd)


def duplicate(fd: int) -> int:
    """Return a duplicate whose number is none of the standard streams'."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def socket_clear_of_streams(made: socket.socket) -> socket.socket:
    """Return the same socket, under a number that is none of the standard streams'."""
    return made if made.fileno() > 2 else type(made)(fileno=clear_of_streams(made.detach()))


def new_epoll() -> select.epoll:
    """Return a new epoll whose number is none of the standard streams'."""
    made = select.epoll()
    if made.fileno() > 2:
        return made
    try:
        return select.epoll.fromfd(duplicate(made.fileno()))
    finally:
        made.close()


def close_epoll(epoll: select.epoll) -> None:
    """Close it, also where the program has closed its number: CPython 3.15 raises for that."""
    try:
        epoll.close()
    except OSError as exc:
        if exc.errno != errno.EBADF:
            raise


def open_streams() -> None:
    """Open the standard streams that the caller has closed; their output is dropped.

    Otherwise the next file would get their numbers, and the output of a child process.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as exc:
            pass_on(exc)
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may have any character


def discard_output() -> None:
    """Drop buffered output that nothing takes; it must not raise again at the interpreter's end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as exc:
            pass_on(exc)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
