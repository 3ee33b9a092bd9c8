# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Shared memory segments: made, committed, sealed, mapped, checked. The only file that does so.

A segment never has a name: it lives by its descriptors and mappings alone, nobody can open it who
was not given a descriptor, and nothing stays behind when processes die, at whatever instruction.

Its size is sealed before anybody else holds it, and a segment of somebody else is mapped only if
its size is sealed: cut short, it would end with SIGBUS whoever touches it. One that peers may only
read is sealed against writing too, so that no trick with its descriptor makes it writable again.
"""

import fcntl
import os

from libc.errno cimport EFBIG, EINVAL, errno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from shmnd.status import Status, error
from shmnd.steps import step

_SHM = "/dev/shm"
# MFD_NOEXEC_SEAL and F_SEAL_FUTURE_WRITE: Python has no names for them.
_NO_EXEC = 0x08
_SEAL_FUTURE_WRITE = 0x10
_SEALED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
cdef long _TMPFS = 0x01021994

# Bytes of the segments that this process made and still maps.
cdef unsigned long long _held = 0


def _create(label: str, nbytes: int, call: str) -> int:
    """A new empty shared file, of mode 0600 and without a name: its descriptor."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        try:
            fd = os.memfd_create(f"shmnd-{label}", flags | _NO_EXEC)
        except OSError as err:
            if err.errno != EINVAL:
                raise
            fd = os.memfd_create(f"shmnd-{label}", flags)  # a kernel before 6.3
        os.fchmod(fd, 0o600)
        return fd
    except OSError as err:
        raise error(
            Status.INSUFFICIENT_RESOURCES, call,
            f"cannot create a shared segment of {nbytes} bytes: {err.strerror or err}",
        ) from err


def _free(path: str) -> int | None:
    """What /dev/shm has left for this process; None where there is none to ask."""
    try:
        shm = os.statvfs(path)
    except OSError:
        return None
    return max(0, shm.f_bavail * shm.f_frsize - <object>_held)


def _commit(fd: int, nbytes: int, call: str) -> None:
    """Take the memory now: too little of it is an error here, not a signal later.

    The kernel sets no limit to memory without a name. The limit that the machine's owner set is
    the size of /dev/shm, so that is kept: what this process holds is counted against it.
    """
    free = _free(_SHM)
    why = "too little is left" if free is not None and nbytes > free else ""
    while not why:
        try:
            os.posix_fallocate(fd, 0, nbytes)
            return
        except InterruptedError:
            continue
        except OSError as err:
            if err.errno == EFBIG:
                raise error(
                    Status.INSUFFICIENT_RESOURCES, call,
                    f"{nbytes} bytes of shared memory wanted, more than a file of this process may "
                    "have; the limit is ulimit -f, LimitFSIZE= in a unit",
                ) from err
            why = err.strerror
    raise error(
        Status.INSUFFICIENT_RESOURCES, call,
        f"{nbytes} bytes of shared memory wanted, {free} free in {_SHM} ({why}); free some, or "
        f"enlarge it: mount -o remount,size=… {_SHM}, docker --shm-size, or a memory-backed "
        f"volume at {_SHM}",
    )


def _require_sealed(fd: int, nbytes: int) -> None:
    """Let pass ordinary shared memory of at least `nbytes` bytes that nobody can cut short.

    It is committed, as all segments are: what costs its owner nothing could be so large, or so
    many, that it fills our address space.
    """
    cdef c_statfs where
    found = os.fstat(fd)
    size = found.st_size
    if _fstatfs(fd, &where) != 0 or where.f_type != _TMPFS:
        why = "is no shared memory"
    elif not 0 < nbytes <= size:
        why = f"holds {size} bytes, {nbytes} were announced"
    elif not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        why = "could be cut short while it is in use (its size is not sealed)"
    elif found.st_blocks * 512 < nbytes:
        why = f"holds {size} bytes, of which only {found.st_blocks * 512} are committed"
    else:
        return
    raise error(Status.INTERNAL_ERROR, "Segment.attach", f"descriptor {fd} {why}")


cdef class Segment:
    """A piece of shared memory, mapped here."""

    def __cinit__(self):
        self.fd = -1
        self.base = NULL

    @staticmethod
    def create(
        nbytes: int, *, label: str, writable: bool = True, call: str = "Segment.create"
    ) -> Segment:
        """Make a segment of `nbytes` zeros, committed, mapped, without a name.

        Unless it is `writable`, only this mapping of it ever writes.
        """
        cdef Segment self = Segment.__new__(Segment)
        global _held
        if nbytes <= 0 or nbytes > 1 << 46:
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{nbytes} bytes wanted; a segment has 1 to {1 << 46}",
            )
        self.fd = _create(label, nbytes, call)
        step("segment-created")
        try:
            _commit(self.fd, nbytes, call)
            self._map(nbytes, True)
            self.counted = nbytes
            _held += self.counted
            seals = _SEALED_SIZE if writable else _SEALED_SIZE | _SEAL_FUTURE_WRITE
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            step("segment-sealed")
        except BaseException:
            self.close()
            raise
        return self

    @staticmethod
    def attach(fd: int, nbytes: int, *, writable: bool) -> Segment:
        """Map a segment of another process. Takes the descriptor over, also when it fails."""
        cdef Segment self = Segment.__new__(Segment)
        try:
            _require_sealed(fd, nbytes)
            self.fd = fd
            self._map(nbytes, writable)
        finally:
            os.close(fd)
            self.fd = -1
        step("segment-attached")
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

    def close_fd(self) -> None:
        """Close the descriptor; the mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """Unmap it. Only for its owner object, when nothing refers into it any more."""
        self._unmap()
        self.close_fd()

    cdef void _unmap(self) noexcept:
        global _held
        if self.base != NULL:
            munmap(self.base, self.size)
            self.base = NULL
            _held -= self.counted
            self.counted = 0

    def __dealloc__(self):
        self._unmap()
        # By the C library: the interpreter may be half gone here.
        if self.fd >= 0:
            _close(self.fd)

    def __repr__(self) -> str:
        return f"<Segment {self.size} bytes at {<size_t>self.base:#x}>"


cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)

cdef extern from "sys/statfs.h" nogil:
    ctypedef struct c_statfs "struct statfs":
        long f_type
    int _fstatfs "fstatfs" (int fd, c_statfs *out)
