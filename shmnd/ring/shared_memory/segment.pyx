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
import stat

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EFBIG, EINVAL, errno
from libc.stdlib cimport free, malloc
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from shmnd.ring.shared_memory.bounds import require_room
from shmnd.status import Status, error
from shmnd.common.steps import step

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


def _commit(fd: int, nbytes: int, call: str) -> None:
    """Take the memory now: too little of it is an error here, not a signal later."""
    require_room(nbytes, _held, call)
    while True:
        try:
            os.posix_fallocate(fd, 0, nbytes)
            return
        except InterruptedError:
            continue
        except OSError as err:
            limit = "a limit of the system (vm.overcommit_memory, ulimit)"
            remedy = "free some, or raise that limit"
            if err.errno == EFBIG:
                limit = "more than a file of this process may have"
                remedy = "the limit is ulimit -f, LimitFSIZE= in a unit"
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{nbytes} bytes of shared memory wanted, {limit}: {err.strerror}; {remedy}",
            ) from err


def _require_sealed(fd: int, nbytes: int) -> None:
    """Let pass ordinary shared memory of at least `nbytes` bytes that nobody can cut short.

    It is committed, as all segments are: what costs its owner nothing could be so large, or so
    many, that it fills our address space.
    """
    cdef c_statfs where
    found = os.fstat(fd)
    size = found.st_size
    if _fstatfs(fd, &where) != 0 or where.f_type != _TMPFS:
        why = "is not shared memory"
    elif not 0 < nbytes <= size:
        why = f"holds {size} bytes, {nbytes} were announced"
    elif not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        why = "could be cut short while it is in use (its size is not sealed)"
    elif found.st_blocks * 512 < nbytes:
        why = f"holds {size} bytes, of which only {found.st_blocks * 512} are committed"
    else:
        return
    raise error(Status.INTERNAL_ERROR, "Segment.attach", f"descriptor {fd} {why}")


# Mappings that another process can truncate, for as long as they are there.
cdef FragileRange *_fragile = NULL


cdef bint lies_in_fragile(size_t address, size_t nbytes) noexcept:
    """Does this range touch memory that another process can truncate?"""
    cdef FragileRange *range_ = _fragile
    while range_ != NULL:
        if address < range_.base + range_.size and range_.base < address + nbytes:
            return True
        range_ = range_.next
    return False


def _require_shared(fd: int, writable: bool, call: str) -> tuple[int, bool]:
    """Return the bytes of shared memory that a caller attaches, and whether all are committed."""
    cdef c_statfs where
    found = os.fstat(fd)
    if _fstatfs(fd, &where) != 0 or where.f_type != _TMPFS or not stat.S_ISREG(found.st_mode):
        raise error(Status.INVALID_PARAMETER_1, call,
                    f"descriptor {fd} is not shared memory: it does not lie in a tmpfs")
    if found.st_size == 0:
        raise error(Status.INVALID_PARAMETER_1, call,
                    "the shared memory has 0 bytes; its owner sets its size (ftruncate) first")
    missing = found.st_size - found.st_blocks * 512
    if missing > 0 and writable:
        require_room(missing, 0, call)
        try:
            os.posix_fallocate(fd, 0, found.st_size)
        except OSError as err:
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{found.st_size} bytes of shared memory cannot be committed: {err.strerror}; "
                "enlarge its file system (mount -o remount,size=..., docker --shm-size)",
            ) from err
    return found.st_size, missing <= 0 or writable


cdef class Segment:
    """A piece of shared memory, mapped here. Exports its bytes, read-only unless it is writable.

    One that its maker has `sealed` is mapped by others for reading only.
    """

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
            self.sealed = not writable
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

    @staticmethod
    def adopt(
        fd: int, *, writable: bool, trusted: bool = False, call: str = "Segment.adopt"
    ) -> Segment:
        """Map shared memory that the caller opened. Takes the descriptor over, also when it fails.

        Unless its size is sealed or its owner `trusted`, it is `fragile`. The descriptor stays open
        where the size is sealed, for peers.
        """
        cdef Segment self = Segment.__new__(Segment)
        self.fd = fd
        try:
            nbytes, committed = _require_shared(fd, writable, call)
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            if writable and seals & (fcntl.F_SEAL_WRITE | _SEAL_FUTURE_WRITE):
                raise error(Status.ACCESS_VIOLATION, call,
                            "the shared memory is sealed against writing; pass writable=False")
            self._map(nbytes, writable)
            self.sealed = not writable
            if not committed or not seals & fcntl.F_SEAL_SHRINK:
                if not trusted:
                    self._enter_fragile()
                self.close_fd()
        except BaseException:
            self.close()
            raise
        return self

    cdef _enter_fragile(self):
        global _fragile
        self._fragile = <FragileRange *>malloc(sizeof(FragileRange))
        if self._fragile == NULL:
            raise MemoryError
        self._fragile.base = <size_t>self.base
        self._fragile.size = self.size
        self._fragile.next = _fragile
        _fragile = self._fragile

    cdef void _leave_fragile(self) noexcept:
        global _fragile
        cdef FragileRange **at = &_fragile
        while at[0] != self._fragile:
            at = &at[0].next
        at[0] = self._fragile.next
        free(self._fragile)
        self._fragile = NULL

    @property
    def fragile(self) -> bool:
        """Whether another process can truncate it."""
        return self._fragile != NULL

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
        """Close the descriptor. It is unmapped when nothing refers to it any more."""
        self.close_fd()

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.base == NULL:
            raise BufferError("a segment is made by create or attach")
        PyBuffer_FillInfo(view, self, self.base, self.size, not self.writable, flags)

    cdef void _unmap(self) noexcept:
        global _held
        if self._fragile != NULL:
            self._leave_fragile()
        if self.base != NULL:
            if self.counted:
                munmap(self.base, self.size)  # our own: gone when the count says so
            else:
                shmnd_unmap_soon(self.base, self.size)
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


cdef extern from "wire/unmap.h" nogil:
    void shmnd_unmap_soon(void *base, size_t bytes)

cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)

cdef extern from "sys/statfs.h" nogil:
    ctypedef struct c_statfs "struct statfs":
        long f_type
    int _fstatfs "fstatfs" (int fd, c_statfs *out)
