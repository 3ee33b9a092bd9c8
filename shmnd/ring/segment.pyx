# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, freethreading_compatible=False
"""Shared memory segments: made, committed, mapped, checked. The only file that does so.

A segment has a name for the instant between its creation and its unlinking, both in
`Segment.create`. From then on it lives by its descriptors and mappings alone: nobody can open it
by name, and nothing stays behind when processes die. It is never told to Python's resource
tracker, which deletes what others still use.
"""

import os
import secrets
import stat

import posix_ipc

from libc.errno cimport errno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from shmnd.status import Status, error

_TRIES = 16


def _create_unlinked(label: str, nbytes: int, call: str) -> tuple:
    """A new empty shared file of mode 0600: a descriptor to write it, one to read it."""
    for _ in range(_TRIES):
        name = f"/shmnd-{os.getuid()}-{label}-{secrets.token_hex(16)}"
        try:
            made = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600)
        except posix_ipc.ExistentialError:
            continue
        except OSError as err:
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"cannot create a shared segment of {nbytes} bytes: {err.strerror or err}",
            ) from err
        try:
            os.fchmod(made.fd, 0o600)  # the umask may have taken bits away
            # The open read-only descriptor is what peers of a read-only segment get.
            readonly = posix_ipc.SharedMemory(name, 0, read_only=True).fd
        except BaseException:
            os.close(made.fd)
            raise
        finally:
            posix_ipc.unlink_shared_memory(name)
        return made.fd, readonly
    raise error(Status.INSUFFICIENT_RESOURCES, call, f"{_TRIES} random names were taken")


def _commit(fd: int, nbytes: int, call: str) -> None:
    """Take the memory now: a full /dev/shm is an error here, not a signal later."""
    while True:
        try:
            os.posix_fallocate(fd, 0, nbytes)
            return
        except InterruptedError:
            continue
        except OSError as err:
            shm = os.statvfs("/dev/shm")
            free = shm.f_bavail * shm.f_frsize
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{nbytes} bytes of shared memory wanted, {free} free in /dev/shm "
                f"({err.strerror}); free some, or enlarge it: mount -o remount,size=… /dev/shm, "
                "docker --shm-size, or a memory-backed volume at /dev/shm",
            ) from err


cdef class Segment:
    """A piece of shared memory, mapped here."""

    def __cinit__(self):
        self.fd = -1
        self._readonly = -1
        self.base = NULL

    @staticmethod
    def create(nbytes: int, *, label: str, call: str = "Segment.create") -> Segment:
        """Make a segment of `nbytes` zeros, committed, mapped, without a name."""
        cdef Segment self = Segment.__new__(Segment)
        if nbytes <= 0 or nbytes > 1 << 46:
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{nbytes} bytes wanted; a segment has 1 to {1 << 46}",
            )
        self.fd, self._readonly = _create_unlinked(label, nbytes, call)
        try:
            _commit(self.fd, nbytes, call)
            self._map(nbytes, True)
        except BaseException:
            self.close()
            raise
        return self

    @staticmethod
    def attach(fd: int, nbytes: int, *, writable: bool) -> Segment:
        """Map a segment of another process. Takes the descriptor over, also when it fails."""
        cdef Segment self = Segment.__new__(Segment)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not 0 < nbytes <= status.st_size:
                raise error(
                    Status.INTERNAL_ERROR, "Segment.attach",
                    f"descriptor {fd} holds {status.st_size} bytes, {nbytes} were announced",
                )
            self.fd = fd
            self._map(nbytes, writable)
        finally:
            os.close(fd)
            self.fd = -1
        return self

    cdef _map(self, size_t nbytes, bint writable):
        cdef int protection = PROT_READ | PROT_WRITE if writable else PROT_READ
        cdef void *at = mmap(NULL, nbytes, protection, MAP_SHARED, self.fd, 0)
        cdef int failure = errno
        if at == MAP_FAILED:
            raise error(
                Status.INSUFFICIENT_RESOURCES, "Segment.map",
                f"cannot map {nbytes} bytes: {os.strerror(failure)}; see the limits of the "
                "address space (ulimit -v) and of mappings (vm.max_map_count)",
            )
        self.base = <unsigned char *>at
        self.size = nbytes
        self.writable = writable

    @property
    def address(self) -> int:
        """Where it lies in this process; 0 once closed."""
        return <size_t>self.base

    def readonly_fd(self) -> int:
        """Give a descriptor that can only be mapped for reading. It belongs to the segment."""
        return self._readonly

    def close_fd(self) -> None:
        """Close the descriptors; the mapping stays."""
        for fd in (self.fd, self._readonly):
            if fd >= 0:
                os.close(fd)
        self.fd = self._readonly = -1

    def close(self) -> None:
        """Unmap it. Only for its owner object, when nothing refers into it any more."""
        if self.base != NULL:
            munmap(self.base, self.size)
            self.base = NULL
        self.close_fd()

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)
            self.base = NULL
        # Descriptors by the C library: the interpreter may be half gone here.
        if self.fd >= 0:
            _close(self.fd)
        if self._readonly >= 0:
            _close(self._readonly)

    def __repr__(self) -> str:
        return f"<Segment {self.size} bytes at {<size_t>self.base:#x}>"


cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)
