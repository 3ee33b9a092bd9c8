# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A remote adapter as this process sees it, and the link to one of its queue pairs."""

import os

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.shared_memory.segment cimport Segment

from shmnd.status import Status, error
from shmnd.common.steps import step

_PROBE_BYTES = 16
_BELL_SEGMENTS = 1 << 29


cdef bint _reaches(c.shmnd_process *process, object probe) except -1:
    """Return whether this process may copy another's private memory, by copying some."""
    cdef c.shmnd_spans to, from_
    cdef unsigned char got[16]
    if not isinstance(probe, (list, tuple)) or len(probe) != 2:
        return False
    address, nonce = probe
    if not isinstance(address, int) or not isinstance(nonce, str) or not 0 < address < 1 << 63:
        return False
    memset(got, 0, sizeof(got))
    c.shmnd_spans_clear(&to)
    c.shmnd_spans_clear(&from_)
    c.shmnd_spans_add(&to, <size_t>&got[0], sizeof(got))
    c.shmnd_spans_add_remote(&from_, address, sizeof(got))
    if c.shmnd_vm_copy(process, &to, &from_) != 0:
        return False
    return bytes(got[:_PROBE_BYTES]).hex() == nonce


cdef class PeerAdapter:
    """A remote adapter: its segments mapped here, its doorbell, and whether it is alive."""

    def __cinit__(self):
        self._segments = {}
        self._retired = []
        self.raw.doorbell = -1
        self.raw.process.pidfd = -1

    def __init__(self, uid: str, pid: int, doorbell_fd: int, pidfd: int, table: dict,
                 same_user: bool = False) -> None:
        """Store the parts. With a `pidfd` of -1 its private memory is never accessed."""
        if self.uid is not None:
            raise TypeError("a peer adapter is made once")
        self.uid = uid
        self.pid = pid
        self.same_user = same_user
        self.raw.process.pid = pid
        self.raw.process.pidfd = pidfd
        self.raw.doorbell = doorbell_fd
        self.raw.vm = pidfd >= 0 and _reaches(&self.raw.process, table.get("probe"))

    @property
    def dead(self) -> bool:
        """Its process has died."""
        return self.raw.dead

    @property
    def vm(self) -> bool:
        """Whether this process can copy its private memory; a real copy was tried."""
        return self.raw.vm

    def add_segment(self, seg: int, Segment segment not None) -> None:
        """Add one of its segments, which is mapped here."""
        cdef c.shmnd_mapping mapping
        mapping.base = (<Segment>segment).base
        mapping.bytes = (<Segment>segment).size
        if seg in self._segments:
            raise error(Status.INTERNAL_ERROR, "PeerAdapter.add_segment",
                        f"segment {seg} of adapter {self.uid} came twice")
        mapping.read_only = not segment.writable
        if c.SHMND_FIRST_MARKS_SEGMENT <= seg < c.SHMND_FIRST_TABLE_SEGMENT and mapping.read_only:
            # Tables and bells are only read, and data may be; a store to read-only marks would end
            # this process.
            raise error(Status.INTERNAL_ERROR, "PeerAdapter.add_segment",
                        f"segment {seg} of adapter {self.uid} cannot be written to")
        if c.SHMND_FIRST_TABLE_SEGMENT <= seg < c.SHMND_FIRST_BELL_SEGMENT:
            self._add_table(seg - c.SHMND_FIRST_TABLE_SEGMENT, mapping)
        elif seg < c.SHMND_FIRST_MARKS_SEGMENT:
            self._add_data(seg, mapping)
        self._segments[seg] = segment

    cdef _add_table(self, uint64_t table, c.shmnd_mapping mapping):
        if table >= c.SHMND_TABLE_SEGMENTS \
                or mapping.bytes < c.SHMND_TABLE_ENTRIES * sizeof(c.shmnd_grant):
            raise error(Status.INTERNAL_ERROR, "PeerAdapter.add_segment",
                        f"table {table} of {mapping.bytes} bytes is malformed")
        self.raw.tables[table] = mapping

    cdef _add_data(self, uint32_t seg, c.shmnd_mapping mapping):
        cdef size_t places = 16
        cdef c.shmnd_mapping *table
        mapping.segment = seg
        if c.shmnd_peer_is_crowded(&self.raw):
            if self.raw.data != NULL:
                places = <size_t>2 * (self.raw.data_mask + 1)
            table = <c.shmnd_mapping *>PyMem_RawCalloc(places, sizeof(mapping))
            if table == NULL:
                raise MemoryError
            PyMem_RawFree(c.shmnd_peer_move_segments(&self.raw, table, <uint32_t>places))
        c.shmnd_peer_add_segment(&self.raw, &mapping)

    def remove_segment(self, seg: int) -> None:
        """Unmap a segment that its owner released, once no copy of this process may be in it."""
        # Bells, marks and tables stay: queue pairs keep pointers into them.
        segment = self._segments.pop(seg, None) if seg < c.SHMND_FIRST_MARKS_SEGMENT else None
        if segment is None:
            return
        c.shmnd_peer_remove_segment(&self.raw, seg)
        self.raw.unmapped += 1  # prepared copies resolve their addresses again before they run
        self._retired.append(segment)
        if self.jobs == 0:
            self._retired.clear()

    cdef Segment data_segment(self, uint32_t seg):
        """Return its data segment of this number that is mapped here now; None without one."""
        return self._segments.get(seg) if seg < c.SHMND_FIRST_MARKS_SEGMENT else None

    def mark_dead(self) -> None:
        """Record that its process is dead: all operations that wait for it end."""
        self.raw.dead = True

    def ring(self) -> None:
        """Wake the waiters in its process. Never waits."""
        c.shmnd_ring_doorbell(self.raw.doorbell)

    def segment(self, seg: int):
        """Return its data segment of this number that is mapped here now; None without one."""
        return self._segments.get(seg) if 0 <= seg < c.SHMND_FIRST_MARKS_SEGMENT else None

    def mute(self) -> None:
        """Stop ringing its process: the doorbell was closed."""
        self.raw.doorbell = -1

    cdef c.shmnd_bell *bell(self, object place) except NULL:
        """Return the bell that the other end names in its description, after checks."""
        return <c.shmnd_bell *>self._place_of(place, c.SHMND_FIRST_BELL_SEGMENT,
                                              sizeof(c.shmnd_bell))

    cdef c.shmnd_marks *marks(self, object place) except NULL:
        """Return the marks of that bell, after checks."""
        return <c.shmnd_marks *>self._place_of(place, c.SHMND_FIRST_MARKS_SEGMENT,
                                               sizeof(c.shmnd_marks))

    cdef unsigned char *_place_of(self, object place, uint32_t first, size_t size) except NULL:
        """Return the address of a bell or its marks, named by segment number and index in it."""
        if not isinstance(place, (list, tuple)) or len(place) != 2 \
                or not all(isinstance(number, int) for number in place):
            raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                        f"the peer names a bell by {place!r}")
        number, index = place
        segment = self._segments.get(first + number) if 0 <= number < _BELL_SEGMENTS else None
        if segment is None:
            raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                        f"the peer names bell segment {number}, which it did not announce")
        if not 0 <= index < (<Segment>segment).size // size:
            raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                        f"the peer names bell {index} of {(<Segment>segment).size // size}")
        return (<Segment>segment).base + <size_t>index * size

    def __dealloc__(self):
        PyMem_RawFree(self.raw.data)


cdef tuple _SHAPES = ("receives", "extents", "requests", "elements")


cdef int _shape(tuple end, int part) except -1:
    """Return a number by which a side shapes the layout of a link, after checks."""
    most = c.SHMND_MAX_SGE if part in (EXTENTS, ELEMENTS) else 1 << 16
    value = end[part] if part < len(end) else None
    if not isinstance(value, int) or not 0 <= value <= most:
        raise error(Status.INTERNAL_ERROR, "Link",
                    f"the peer describes itself with {_SHAPES[part]}={value!r}, at most {most}")
    return value


cdef class Link:
    """The segment that two connected queue pairs share."""

    @staticmethod
    def create(local: tuple, remote: tuple) -> Link:
        """Create a link and return it. For the passive side, when it accepts."""
        cdef Link self = Link.__new__(Link)
        self._size(local, remote, False)
        self.segment = Segment.create(self.map.bytes, label="link", call="Connector.accept",
                                      committed=self.map.committed)
        step("link-made")
        cdef c.shmnd_link_header *header = <c.shmnd_link_header *>self.segment.base
        header.magic = c.SHMND_LINK_MAGIC
        header.bytes = self.map.bytes
        header.connection = self.connection = int.from_bytes(os.urandom(8), "little") >> 1 | 1
        header.shape = self.shape
        # SYNC link-made: release, pairs with acquire in Link.attach()
        c.shmnd_release32(&header.version, c.SHMND_LAYOUT_VERSION)
        step("link-written")
        return self

    @staticmethod
    def attach(fd: int, size: int, local: tuple, remote: tuple) -> Link:
        """Map a link and return it. For the active side. The descriptor stays the caller's."""
        cdef Link self = Link.__new__(Link)
        self._size(local, remote, True)
        if size < self.map.bytes:
            raise error(Status.INTERNAL_ERROR, "Link.attach",
                        f"the peer's link has {size} bytes, {self.map.bytes} needed")
        self.segment = Segment.attach(os.dup(fd), self.map.bytes, writable=True,
                                      committed=self.map.committed)
        cdef c.shmnd_link_header *header = <c.shmnd_link_header *>self.segment.base
        # SYNC link-made: acquire, pairs with release in Link.create()
        version = c.shmnd_acquire32(&header.version)
        if header.magic != c.SHMND_LINK_MAGIC or version != c.SHMND_LAYOUT_VERSION:
            raise error(Status.INTERNAL_ERROR, "Link.attach",
                        f"the peer's link has layout {version}, this process has "
                        f"{c.SHMND_LAYOUT_VERSION}: run the same shmnd in both")
        self.connection = header.connection
        return self

    cdef _size(self, tuple local, tuple remote, bint active):
        cdef int i
        cdef tuple end
        for i in range(2):
            end = local if active == (i == 0) else remote
            self.shape.receives[i] = _shape(end, RECEIVES)
            self.shape.extents[i] = _shape(end, EXTENTS)
            self.shape.requests[i] = _shape(end, REQUESTS)
            self.shape.elements[i] = _shape(end, ELEMENTS)
        self.me = c.SHMND_ACTIVE if active else c.SHMND_PASSIVE
        c.shmnd_link_rings(&self.shape)
        self.map = c.shmnd_link_map(&self.shape)

    cdef bint fits(self, tuple ours, tuple theirs) except -1:
        """Return whether its layout is that of this queue pair and this peer."""
        return (self.segment is not None and self.segment.base != NULL
                and self._has(self.me, ours) and self._has(1 - self.me, theirs))

    cdef bint _has(self, int side, tuple end) except -1:
        return (len(end) == PARTS
                and self.shape.receives[side] == end[RECEIVES]
                and self.shape.extents[side] == end[EXTENTS]
                and self.shape.requests[side] == end[REQUESTS]
                and self.shape.elements[side] == end[ELEMENTS])

    @property
    def fd(self) -> int:
        """The descriptor, on the side that created it; -1 without one."""
        return -1 if self.segment is None else self.segment.fd

    @property
    def size(self) -> int:
        """Bytes of the shared file; its end is sparse."""
        return 0 if self.segment is None else self.segment.size

    @property
    def committed(self) -> int:
        """Bytes of memory that the connection takes before anything is sent."""
        return 0 if self.segment is None else self.map.committed

    def close_fd(self) -> None:
        """Close the descriptor; the memory stays mapped."""
        if self.segment is not None:
            self.segment.close_fd()


cdef class Probe:
    """Bytes in private memory that another process copies to find out whether it can."""

    cdef unsigned char _bytes[16]

    def __init__(self) -> None:
        cdef int i
        nonce = os.urandom(_PROBE_BYTES)
        for i in range(16):
            self._bytes[i] = nonce[i]

    @property
    def address(self) -> int:
        """Their address."""
        return <size_t>&self._bytes[0]

    @property
    def nonce(self) -> str:
        """Their value, in hexadecimal."""
        return bytes(self._bytes[:_PROBE_BYTES]).hex()


cdef object _reachable = None


def private_memory_is_reachable() -> bool:
    """Return whether other processes of this user can copy this process's private memory.

    A forked child tries it once, as a peer would. Where a security module requires the consent of
    the process that is copied from, this function grants it: a program that registers private
    memory for remote access consents to such copies.
    """
    global _reachable
    if _reachable is None:
        c.prctl(c.PR_SET_PTRACER, c.PR_SET_PTRACER_ANY, 0, 0, 0)
        _reachable = _try_in_child()
    return _reachable


cdef bint _try_in_child():
    cdef unsigned char secret[16]
    cdef unsigned char got[16]
    cdef c.shmnd_spans to, from_
    cdef c.shmnd_process parent = c.shmnd_this_process()
    cdef c.pid_t child
    cdef int status = 0
    memset(secret, 0x5A, sizeof(secret))
    c.shmnd_spans_clear(&to)
    c.shmnd_spans_clear(&from_)
    c.shmnd_spans_add(&to, <size_t>&got[0], sizeof(got))
    c.shmnd_spans_add_remote(&from_, <size_t>&secret[0], sizeof(secret))
    with nogil:
        child = c.fork()
        if child == 0:  # nothing here but system calls
            memset(got, 0, sizeof(got))
            c._exit(0 if c.shmnd_vm_copy(&parent, &to, &from_) == 0 and got[15] == 0x5A else 1)
        while child > 0 and c.waitpid(child, &status, 0) < 0 and c.errno == c.EINTR:
            pass
    return child > 0 and status == 0
