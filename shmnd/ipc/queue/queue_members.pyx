# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Who uses a queue: a member is a process, and its page says what it takes and holds.

The kernel takes a lock from a process that dies, which shows its death; what it had goes to the
member that finds that out.
"""

import fcntl
import os
import struct
import threading

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from posix.mman cimport MAP_FAILED, PROT_READ, PROT_WRITE, munmap
from posix.stat cimport fstat, struct_stat

from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.queue.queue_c cimport *
from shmnd.ipc.queue.queue_file cimport read_shape
from shmnd.ipc.common.refs cimport append, take_first
from shmnd.ring.process.forks cimport forks
from shmnd.ring.shared_memory.segment cimport shmnd_map_sparse

from shmnd.common.steps import step
from shmnd.ipc.queue.queue_file import commit
from shmnd.status import Status, error

_LOCK = "hhqqi4x"  # struct flock

cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)


cdef class QueueMembers:
    """This process's membership of a queue.

    It takes over the descriptor, which is closed with it, also where it cannot be made.
    """

    def __cinit__(self, int fd, *args):
        cdef void *at
        self.fd = -1
        if fstat(fd, &self.file):
            raise OSError(errno, os.strerror(errno))
        self.fd = fd
        self.me = -1
        self.slow()
        read_shape(fd, &self.shape)
        at = shmnd_map_sparse(self.shape.file_bytes, PROT_READ | PROT_WRITE, fd)
        if at == MAP_FAILED:
            raise error(
                Status.INSUFFICIENT_RESOURCES, "Queue",
                f"cannot map {self.shape.file_bytes} bytes: {os.strerror(errno)}; a queue takes "
                "address space as large as the machine's memory, or a sixteenth of the limit "
                "(ulimit -v) of the process that made it; a program that locks its memory needs as "
                "much of that (ulimit -l)",
            )
        self.base = <unsigned char *>at
        self.head = <shmnd_queue_head *>at
        self.line.write_pos = &self.head.write_pos
        self.line.read_pos = &self.head.read_pos
        self.line.slots = <word64 *>(self.base + self.shape.slots_off)
        self.line.count = self.shape.slots
        self.table = <word64 *>(self.base + self.shape.table_off)

    def keep_open(self, fd: int) -> None:
        """Keep another descriptor of the file: to close one would end the locks of all."""
        append(&self.more_fds, fd)

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.shape.file_bytes)
        if self.fd >= 0:
            while self.more_fds.count:
                self._close_own(take_first(&self.more_fds))
            self._close_own(self.fd)
        free(self.more_fds.items)

    cdef void _close_own(self, int fd) noexcept:
        """Close a descriptor, unless a child that inherited it has another file there."""
        cdef struct_stat found
        if fstat(fd, &found) == 0 and (
            found.st_ino == self.file.st_ino and found.st_dev == self.file.st_dev
        ):
            _close(fd)

    cdef shmnd_queue_member *member(self, uint32_t number) noexcept:
        return <shmnd_queue_member *>(
            self.base + self.shape.members_off + <size_t>number * SHMND_QUEUE_PAGE
        )

    cdef object slow(self):
        """Return the lock of this process: at a fork another thread may have had its parent's."""
        if self._slow is None or self.slow_born != forks:
            made = threading.RLock()
            if self._slow is None or self.slow_born != forks:  # no other thread made it meanwhile
                self._slow = made
                self.slow_born = forks
        return self._slow

    # -- the members --

    cdef int check(self) except -1:
        """Join again in a child that was forked off."""
        if self.born != forks:
            self._join()
            self.announce()  # not in the first _join: what a subclass adds is not made yet
        return 0

    cdef void forget_lists(self) noexcept:
        self.free_hold_count = 0
        for at in range(SHMND_QUEUE_HOLDS):
            self.free_holds[self.free_hold_count] = SHMND_QUEUE_HOLDS - 1 - at
            self.free_hold_count += 1

    def _join(self) -> None:
        """Join as the first free member."""
        cdef uint64_t high
        self.forget_lists()
        self.born = forks
        self.me = -1
        for number in range(SHMND_QUEUE_MEMBERS):
            # Before the lock: a search of members up to this number misses none that has it.
            high = shmnd_relaxed64(&self.head.members)
            while high <= <uint64_t>number:
                if shmnd_swap64(&self.head.members, &high, <uint64_t>number + 1):
                    break
            if self._lock(number):
                break
        else:
            raise error(
                Status.INSUFFICIENT_RESOURCES, "Queue",
                f"{SHMND_QUEUE_MEMBERS} processes use this queue, which is the most; close it in "
                "some of them",
            )
        self.me = number
        self.page = self.member(number)
        commit(self.fd, self.shape.members_off + number * SHMND_QUEUE_PAGE, SHMND_QUEUE_PAGE,
               "Queue")
        step("queue-joined")
        self._take_over(number)
        shmnd_put64(&self.page.joined, os.getpid())
        self.slots_committed = 0

    def announce(self) -> None:
        """Ring those that sleep: they watch this process from now on."""

    def _lock(self, number: int) -> bool:
        """Take a member for this process; return whether it was free."""
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def lives(self, number: int) -> bool:
        """Return whether a member lives."""
        if number == self.me:
            return True
        with self.slow():
            if not self._lock(number):
                return True
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, number)
            return False

    def pids(self) -> set:
        """Return the processes of the other members; 0 for one that this one cannot name."""
        # A member that is not found here, because it raises `members` later, finds this process's
        # address and rings it (SYNC join).
        cdef uint64_t high = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        found = set()
        with self.slow():
            for number in range(high):
                if <int>number != self.me:
                    holder = self._holder(number)
                    if holder is not None:
                        found.add(holder)
        return found

    def _holder(self, number: int):
        """Return the process that has a member's lock; None for none, 0 for an unnamed one."""
        wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
        state = struct.unpack(_LOCK, fcntl.fcntl(self.fd, fcntl.F_GETLK, wanted))
        return None if state[0] == fcntl.F_UNLCK else max(0, state[4])

    def lives_as(self, number: int, pid: int) -> bool:
        """Return whether a process still is this member; 0 is one that cannot be named here."""
        # Not by taking the lock: while another process has it, to take over what the dead one
        # left, or because it is the next member of this number, that would say yes.
        if number == self.me:
            return True
        if not 0 <= number < SHMND_QUEUE_MEMBERS:
            return False
        with self.slow():
            holder = self._holder(number)
        return holder is not None and (holder == pid or not holder or not pid)

    def taker(self, uint64_t pos) -> int:
        """Return the member whose last item is the one at a position; -1 if there is none."""
        cdef uint64_t high = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        cdef uint32_t number
        for number in range(high):
            if shmnd_member_took(self.member(number), pos):
                return number
        return -1

    def reap(self) -> int:
        """Take over what members that died have left; return how many there were."""
        cdef uint64_t high = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        found = 0
        with self.slow():
            for number in range(high):
                if number != self.me and shmnd_relaxed64(&self.member(number).joined):
                    found += self.reap_one(number)
        return found

    def reap_one(self, number: int) -> bool:
        """Take over what one member left, if it is dead."""
        if number == self.me or not 0 <= number < SHMND_QUEUE_MEMBERS:
            return False
        with self.slow():
            if not self._lock(number):
                return False
            try:
                self._take_over(number)
            finally:
                fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, number)
            self.reaped()
        return True

    def reaped(self) -> None:
        """Wake the waiters for what a dead member had: they may have polled before."""

    def _take_over(self, number: int) -> None:
        """Take over all that a dead member had. Its lock is held, and each step may be the last
        one: the next process to hold the lock does the rest."""
        cdef shmnd_queue_member *page = self.member(number)
        cdef uint64_t slots = min(self.shape.slots, self.slots_in_use())
        cdef uint64_t word, pos, index
        if not shmnd_relaxed64(&page.joined):
            return
        for index in range(slots):
            word = shmnd_relaxed64(&self.line.slots[index])
            if shmnd_mpmc_state(word) == 2 and shmnd_mpmc_value(word) == <uint32_t>number:
                pos = self._position(word, index)
                shmnd_member_count_dead(page, pos)
                shmnd_mpmc_settle(&self.line, pos, number)
        shmnd_put64(&page.behind, 0)
        shmnd_put64(&page.armed, 0)
        if shmnd_member_open(page) > 0:
            shmnd_member_report(
                &page.forgiven, shmnd_relaxed64(&page.forgiven) + shmnd_member_open(page)
            )
        shmnd_put64(&page.taking, 0)
        for index in range(SHMND_QUEUE_HOLDS):
            shmnd_put32(&page.holds[index], 0)
        step("queue-cleared")
        self.inherit(number)
        if number != self.me:
            shmnd_put64(&page.joined, 0)

    cdef uint64_t slots_in_use(self) noexcept:
        """Return how many slots were ever used: those beyond were touched at no lap."""
        cdef uint64_t pos = shmnd_relaxed64(&self.head.write_pos)
        return self.shape.slots if pos >= self.shape.slots else pos + 1

    cdef uint64_t _position(self, uint64_t word, uint64_t index) noexcept:
        """Return the position near read_pos that has this lap and index."""
        cdef uint64_t lap = shmnd_relaxed64(&self.head.read_pos) // self.line.count
        cdef int ahead = shmnd_mpmc_ahead(&self.line, word, lap * self.line.count)
        return (lap + ahead) * self.line.count + index

    cdef int64_t _unreported(self, uint64_t *lost) noexcept:
        """Return how many items were put and not reported as done; add those that died to
        `lost`."""
        cdef uint64_t members = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        cdef uint64_t over = 0, behind = 0
        cdef uint32_t number
        for number in range(members):
            behind += shmnd_relaxed64(&self.member(number).behind)
        for number in range(members):
            over += shmnd_member_reported(self.member(number), lost)
        return <int64_t>(shmnd_mpmc_written(&self.line) + behind - over)

    def inherit(self, number: int) -> None:
        """Take the memory of a dead member, whose lock is held, where a class knows its parts."""

    # -- items that were taken for callers that were interrupted --

    cdef int keep_again(self, tuple item) except -1:
        if self.kept is None or self.kept_born != forks:
            self.kept = []
            self.kept_born = forks
        self.kept.append(item)
        return 0

    cdef size_t has_kept(self):
        """Return how many items are kept, without those of the process that forked this one."""
        return 0 if self.kept is None or self.kept_born != forks else len(self.kept)

    # -- streams of answers, in the queue of a client --

    def forget_stream(self, uint64_t number) -> None:
        """Note that the number of a stream that was ended may be used again."""
        if self.born == forks:
            shmnd_stream_mark(self.page, number, False)

    def stream_ended(self, uint64_t member, uint64_t number) -> bool:
        """Return whether a member has ended the stream of a request."""
        return member < SHMND_QUEUE_MEMBERS and shmnd_stream_is_marked(self.member(member), number)
