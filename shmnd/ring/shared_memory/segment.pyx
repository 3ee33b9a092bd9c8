# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Shared memory segments: created, committed, sealed, mapped and checked, in this file only.

A segment never has a name: it exists as long as a descriptor or mapping of it. Only a process that
received a descriptor can map it, and no memory is left behind when processes die, at whatever
instruction.

Its size is sealed before another process holds it, and a segment of another process is mapped only
if its size is sealed: an access to a truncated segment would raise SIGBUS. A segment that peers may
only read is sealed against writing too, so that its descriptor cannot be used to write it.
"""

import fcntl
import os
import stat

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINVAL, errno
from libc.stdlib cimport free, malloc
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from shmnd.ring.shared_memory.owners cimport LentDescriptor, given_up, lend, own

from shmnd.ring.shared_memory.bounds import require_room
from shmnd.ring.shared_memory.committing import commit
from shmnd.common.interruption import pass_on
from shmnd.common.shortages import memory_error, remedy, remedy_of_mapping
from shmnd.common.owned import Owned
from shmnd.common.streams import clear_of_streams
from shmnd.status import Status, error
from shmnd.common.steps import step

# MFD_NOEXEC_SEAL and F_SEAL_FUTURE_WRITE, which Python does not define.
_NO_EXEC = 0x08
_SEAL_FUTURE_WRITE = 0x10
_SEALED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
cdef long _TMPFS = 0x01021994

# Bytes of the segments that this process created and still maps.
cdef unsigned long long _held = 0


def _create(label: str, nbytes: int, call: str) -> int:
    """Create an empty shared file of mode 0600 without a name; return its descriptor."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        try:
            fd = os.memfd_create(f"shmnd-{label}", flags | _NO_EXEC)
        except OSError as err:
            pass_on(err)
            if err.errno != EINVAL:
                raise
            fd = os.memfd_create(f"shmnd-{label}", flags)  # a kernel before 6.3
        # A word for a closed stream would lie in the memory. Where none is closed no code of Python
        # runs here, in which a handler of a signal would lose the descriptor.
        if fd <= 2:
            fd = clear_of_streams(fd)
        os.fchmod(fd, 0o600)
        return fd
    except OSError as err:
        pass_on(err)
        what = f"cannot create a shared segment of {nbytes} bytes"
        otherwise = "shmnd doctor examines the limits of the system"
        raise memory_error(call, what, err, otherwise) from err


def _commit(fd: int, committed: int, nbytes: int, call: str) -> None:
    """Commit the memory now: a shortage is an error here instead of a signal later.

    Bytes from `committed` on stay sparse.
    """
    require_room(committed, _held, call)
    try:
        commit(fd, committed)
        if nbytes > committed:
            os.ftruncate(fd, nbytes)
    except OSError as err:
        pass_on(err)
        otherwise = "free some, or raise the limit of the system (vm.overcommit_memory, ulimit)"
        what = f"{nbytes} bytes of shared memory wanted"
        raise memory_error(call, what, err, otherwise) from err


def _require_sealed(fd: int, nbytes: int, committed: int) -> None:
    """Raise unless a descriptor is shared memory of at least `nbytes` bytes with a sealed size.

    Its first `committed` bytes must be committed: uncommitted memory costs its owner nothing, so a
    hostile peer could fill the address space of this process with it.
    """
    cdef c_statfs where
    found = os.fstat(fd)
    size = found.st_size
    if _fstatfs(fd, &where) != 0 or where.f_type != _TMPFS:
        why = "is not shared memory"
    elif not 0 < nbytes <= size:
        why = f"holds {size} bytes, {nbytes} were announced"
    elif not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        why = "could be truncated while it is in use (its size is not sealed)"
    elif found.st_blocks * 512 < committed:
        why = f"holds {size} bytes, of which only {found.st_blocks * 512} are committed"
    else:
        return
    raise error(Status.INTERNAL_ERROR, "Segment.attach", f"descriptor {fd} {why}")


# The mappings that another process can truncate.
cdef FragileRange *_fragile = NULL


cdef bint lies_in_fragile(size_t address, size_t nbytes) noexcept:
    """Return whether another process can truncate memory in this range."""
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
                    "this is not shared memory: neither a file in a tmpfs (/dev/shm) nor a memfd "
                    "of pages of the usual size")
    if found.st_size == 0:
        raise error(Status.INVALID_PARAMETER_1, call,
                    "the shared memory has 0 bytes; its owner sets its size (ftruncate) first")
    missing = found.st_size - found.st_blocks * 512
    if missing > 0 and writable:
        require_room(missing, 0, call)
        try:
            os.posix_fallocate(fd, 0, found.st_size)
        except OSError as err:
            pass_on(err)
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{found.st_size} bytes of shared memory cannot be committed: {err.strerror}; "
                + remedy(err, "enlarge its file system (mount -o remount,size=..., docker "
                              "--shm-size)"),
            ) from err
    return found.st_size, missing <= 0 or writable


cdef object _require_mapped(int failure, size_t nbytes, str call):
    """Raise the error of a mapping that failed with this errno value; 0: it did not fail."""
    if failure:
        raise error(
            Status.INSUFFICIENT_RESOURCES, call,
            f"cannot map {nbytes} bytes: {os.strerror(failure)}; {remedy_of_mapping(failure)}",
        )


cdef class Segment:
    """A shared memory segment, mapped here. Exports its bytes, read-only unless it is writable.

    Other processes map a `sealed` one for reading only.
    """

    def __cinit__(self):
        self.fd = -1
        self.base = NULL

    @staticmethod
    def create(
        nbytes: int, *, label: str, writable: bool = True, call: str = "Segment.create",
        committed: int | None = None,
    ) -> Segment:
        """Create a segment of `nbytes` zeros, mapped, without a name.

        Unless it is `writable`, only this mapping can write. The first `committed` bytes, or all,
        are committed. The rest is sparse: its pages must be committed before they are used.
        """
        cdef Segment self = Segment.__new__(Segment)
        global _held
        if nbytes <= 0 or nbytes > 1 << 46:
            raise error(
                Status.INSUFFICIENT_RESOURCES, call,
                f"{nbytes} bytes wanted; a segment has 1 to {1 << 46}",
            )
        self.fd = _create(label, nbytes, call)
        own(self.fd, <size_t><void *>self)
        step("segment-created")
        try:
            self.counted = nbytes if committed is None else committed
            _commit(self.fd, self.counted, nbytes, call)
            _require_mapped(self._map(nbytes, True), nbytes, call)
            _held += self.counted
            self.sealed = not writable
            seals = _SEALED_SIZE if writable else _SEALED_SIZE | _SEAL_FUTURE_WRITE
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            step("segment-sealed")
        except BaseException:
            self.close_fd()
            raise
        return self

    @staticmethod
    def attach(
        file: Owned | int, nbytes: int, *, writable: bool, committed: int | None = None
    ) -> Segment:
        """Map a segment of another process. Takes over the descriptor, also when it fails.

        From an owner it is taken here: no handler of a signal runs between the two. The first
        `committed` bytes, or all, must be committed.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef int fd = file.detach() if isinstance(file, Owned) else file
        try:
            _require_sealed(fd, nbytes, nbytes if committed is None else committed)
            self.fd = fd
            self.counted = nbytes if committed is None else committed  # of its owner
            _require_mapped(self._map(nbytes, writable), nbytes, "Segment.attach")
            self.sparse = committed is not None
        finally:
            self.counted = 0
            os.close(fd)
            self.fd = -1
        step("segment-attached")
        return self

    @staticmethod
    def adopt(
        file: Owned | int, *, writable: bool, trusted: bool = False, call: str = "Segment.adopt"
    ) -> Segment:
        """Map shared memory that the caller opened. Takes over the descriptor, also when it fails.

        From an owner it is taken here: no handler of a signal runs between the two.
        Unless its size is sealed or its owner `trusted`, it is `fragile`. The descriptor stays open
        where the size is sealed, for peers.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef int fd = file.detach() if isinstance(file, Owned) else file
        self.fd = fd
        own(fd, <size_t><void *>self)
        try:
            nbytes, committed = _require_shared(fd, writable, call)
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            if writable and seals & (fcntl.F_SEAL_WRITE | _SEAL_FUTURE_WRITE):
                raise error(Status.ACCESS_VIOLATION, call,
                            "the shared memory is sealed against writing; pass writable=False")
            self.counted = nbytes if committed else 0
            _require_mapped(self._map(nbytes, writable), nbytes, call)
            self.counted = 0
            self.sealed = not writable
            if not committed or not seals & fcntl.F_SEAL_SHRINK:
                if not trusted:
                    self._enter_fragile()
                self.close_fd()
        except BaseException:
            self.close_fd()
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
        """Map it. Return 0, or the number of the error."""
        cdef int protection = PROT_READ | PROT_WRITE if writable else PROT_READ
        cdef void *at
        if self.counted < nbytes:
            at = shmnd_map_sparse(nbytes, protection, self.fd)
        else:
            at = mmap(NULL, nbytes, protection, MAP_SHARED, self.fd, 0)
        if at == MAP_FAILED:
            return errno
        self.base = <unsigned char *>at
        self.size = nbytes
        self.writable = writable
        return 0

    @property
    def address(self) -> int:
        """Its address in this process; 0 once closed."""
        return <size_t>self.base

    def lend(self) -> LentDescriptor | None:
        """Return the descriptor for a message to another process; None where it is closed.

        Another thread that closes it while the message is under way closes it behind that: the
        number may be that of another file at once.
        """
        return lend(self.fd, <size_t><void *>self)

    def close_fd(self) -> None:
        """Close the descriptor. The memory is unmapped when the last reference is gone."""
        cdef int fd = given_up(self.fd, <size_t><void *>self)
        self.fd = -1
        # By the C library: the interpreter may be shutting down here.
        if fd >= 0:
            with nogil:
                _close(fd)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.base == NULL:
            raise BufferError("a segment is made by Segment.create or Segment.attach")
        PyBuffer_FillInfo(view, self, self.base, self.size, not self.writable, flags)

    cdef void _unmap(self) noexcept:
        global _held
        if self._fragile != NULL:
            self._leave_fragile()
        if self.base != NULL:
            if self.counted or self.sparse:
                # At once: `_held` must be correct, and of a sparse segment most pages do not exist.
                munmap(self.base, self.size)
            else:
                shmnd_unmap_soon(self.base, self.size)
            self.base = NULL
            _held -= self.counted
            self.counted = 0

    def __dealloc__(self):
        self._unmap()
        cdef int fd = given_up(self.fd, <size_t><void *>self)
        # By the C library: the interpreter may be shutting down here.
        if fd >= 0:
            _close(fd)

    def __repr__(self) -> str:
        return f"<Segment {self.size} bytes at {<size_t>self.base:#x}>"


cdef class SparseMapping:
    """The memory of a file whose pages are committed later. The descriptor stays the caller's."""

    cdef void *_base
    cdef size_t _size
    cdef bint _writable

    def __init__(self, int fd, size_t nbytes, *, bint writable, str call):
        if self._base != NULL:
            raise RuntimeError("this mapping is made already")
        cdef int protection = PROT_READ | PROT_WRITE if writable else PROT_READ
        cdef void *at = shmnd_map_sparse(nbytes, protection, fd)
        _require_mapped(errno if at == MAP_FAILED else 0, nbytes, call)
        self._base, self._size, self._writable = at, nbytes, writable

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self._base == NULL:
            raise BufferError("this mapping was not made")
        PyBuffer_FillInfo(view, self, self._base, self._size, not self._writable, flags)

    def __dealloc__(self):
        if self._base != NULL:
            munmap(self._base, self._size)


cdef extern from "wire/unmap.h" nogil:
    void shmnd_unmap_soon(void *base, size_t bytes)

cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)

cdef extern from "sys/statfs.h" nogil:
    ctypedef struct c_statfs "struct statfs":
        long f_type
    int _fstatfs "fstatfs" (int fd, c_statfs *out)
