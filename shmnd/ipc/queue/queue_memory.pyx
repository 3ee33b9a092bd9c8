# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The memory of a queue: which member has which part of it.

One file without a name, which all processes of the queue map whole. Its size is that of the
machine's memory and costs nothing; each part is committed before it is touched. The memory of a
member that died goes to the next one that searches.

The interpreter's lock is held in all that changes the lists of this process; `slow` besides, where
the system is asked.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.queue.queue_c cimport *
from shmnd.ipc.queue.queue_members cimport QueueMembers
from shmnd.ipc.common.refs cimport Refs, append, take_first, take_last

from shmnd.common.steps import step
from shmnd.ipc.common import limits
from shmnd.ipc.queue.queue_file import commit
from shmnd.status import Status, error

cdef uint32_t NONE = 0xFFFFFFFF
cdef int MOST_TRIES = 4096
cdef uint32_t CLASS_BITS = 7
cdef uint64_t UNIT = limits.COMMIT_UNIT
_PUNCH = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


cdef class QueueMemory(QueueMembers):
    """This process's part in a queue."""

    def __cinit__(self, int fd, *args):
        self._join()

    def __dealloc__(self):
        for kind in range(6):
            free(self.flight[kind].items)
            free(self.spare[kind].items)
        free(self.runs)

    cdef void forget_lists(self) noexcept:
        for kind in range(6):
            self.flight[kind].count = self.spare[kind].count = 0
        self.run_count = 0
        self.searched_at = 0
        self.cursor = 0
        QueueMembers.forget_lists(self)

    # -- places --

    cdef shmnd_block *block_at(self, uint32_t ref, size_t *room) noexcept:
        """Return the block of a name, and its bytes; NULL for a name that makes no sense."""
        cdef uint64_t chunk = ref >> 9, word
        cdef uint32_t index = ref & 511, kind
        if chunk >= self.shape.chunks:
            return NULL
        word = shmnd_relaxed64(&self.table[chunk])
        kind = shmnd_chunk_kind(word)
        if kind < SHMND_CLASSES:
            room[0] = <size_t>1 << (CLASS_BITS + kind)
            if (index + 1) * room[0] > SHMND_CHUNK_BYTES:
                return NULL
        elif kind == SHMND_CHUNK_RUN and index == 0:
            room[0] = shmnd_chunk_run(word) * SHMND_CHUNK_BYTES
            if chunk + shmnd_chunk_run(word) > self.shape.chunks:
                return NULL
        else:
            return NULL
        return <shmnd_block *>(
            self.base + self.shape.chunks_off + chunk * SHMND_CHUNK_BYTES
            + index * (<size_t>1 << (CLASS_BITS + (kind if kind < SHMND_CLASSES else 0)))
        )

    cdef uint64_t allocate(self, size_t nbytes) except? 0xFFFFFFFFFFFFFFFF:
        """Return a block of `nbytes` bytes, header included, that no other process uses.

        Its kind stands above its reference. The table, which other processes can write, does not
        say where a block of this process lies.
        """
        cdef uint32_t kind = 0, ref
        cdef uint64_t chunks
        if nbytes > 128 << (SHMND_CLASSES - 1):
            chunks = (nbytes + SHMND_CHUNK_BYTES - 1) // SHMND_CHUNK_BYTES
            kind = SHMND_CHUNK_RUN
            ref = self._find_run(chunks)
            if ref == NONE:
                ref = self._new_run(chunks, nbytes)
        else:
            while (<size_t>128 << kind) < nbytes:
                kind += 1
            ref = self._find_small(kind)
            while ref == NONE:
                self._new_chunk(kind)
                ref = self._find_small(kind)
        shmnd_put32(&self._place(ref, kind).state, SHMND_BLOCK_LIVE)
        return <uint64_t>kind << 32 | ref

    cdef shmnd_block *_place(self, uint32_t ref, uint32_t kind) noexcept:
        """Return where a block of this process lies."""
        cdef size_t room
        room = (ref & 511) * (<size_t>1 << (CLASS_BITS + kind)) if kind < SHMND_CLASSES else 0
        return <shmnd_block *>(
            self.base + self.shape.chunks_off + (<size_t>ref >> 9) * SHMND_CHUNK_BYTES
            + room % SHMND_CHUNK_BYTES
        )

    cdef uint32_t _find_small(self, uint32_t kind) noexcept:
        """Return a block that came back, the one sent longest ago first, or a spare one; else
        NONE."""
        cdef Refs *flight = &self.flight[kind]
        cdef uint32_t ref
        for _ in range(4 if flight.count > 4 else flight.count):
            ref = take_first(flight)
            if shmnd_block_is_free(self._place(ref, kind)):
                return ref
            flight.items[(flight.first + flight.count) & (flight.room - 1)] = ref
            flight.count += 1
        if self.spare[kind].count:
            return take_last(&self.spare[kind])
        return NONE

    cdef uint32_t _find_run(self, uint64_t chunks) noexcept:
        cdef size_t at
        for at in range(self.run_count):
            if (
                chunks <= self.runs[at].chunks <= 2 * chunks and not self.runs[at].building
                and self._run_is_free(at)
            ):
                self.runs[at].building = True
                return self.runs[at].chunk << 9
        return NONE

    cdef bint _run_is_free(self, size_t at) noexcept:
        return shmnd_block_is_free(self._place(self.runs[at].chunk << 9, SHMND_CHUNK_RUN))

    cdef void sent(self, uint64_t packed) noexcept:
        """Note that a block was sent: its line has it now."""
        cdef uint32_t kind = <uint32_t>(packed >> 32), ref = <uint32_t>packed
        cdef size_t at
        if kind < SHMND_CLASSES:
            append(&self.flight[kind], ref)
            return
        for at in range(self.run_count):
            if self.runs[at].chunk == ref >> 9:
                self.runs[at].building = False

    cdef void unsent(self, uint64_t packed) noexcept:
        """Note that a block was not sent: it can be used again."""
        cdef uint32_t kind = <uint32_t>(packed >> 32), ref = <uint32_t>packed
        shmnd_block_free(self._place(ref, kind))
        if kind < SHMND_CLASSES:
            append(&self.spare[kind], ref)
        else:
            self.sent(packed)

    # -- chunks --

    def _new_chunk(self, kind: int) -> None:
        """Divide one more chunk into blocks, unless some came back."""
        cdef uint32_t index, ref
        cdef uint64_t chunk
        cdef Refs *flight = &self.flight[kind]
        with self.slow():
            for _ in range(flight.count):
                ref = take_first(flight)
                if shmnd_block_is_free(self._place(ref, kind)):
                    append(&self.spare[kind], ref)
                else:
                    append(flight, ref)
            if self.spare[kind].count:
                return
            chunk = self._claim(1, kind)
            for index in reversed(range(SHMND_CHUNK_BYTES >> (CLASS_BITS + kind))):
                append(&self.spare[kind], shmnd_block_ref(chunk, index))

    def _new_run(self, chunks: int, nbytes: int) -> int:
        if chunks > self.shape.chunks:
            raise error(
                Status.INSUFFICIENT_RESOURCES, "Queue.put",
                f"an item of {nbytes} bytes; the machine's memory, or ulimit -v or -f of the "
                "process that made the queue, bounds it to "
                f"{self.shape.chunks * SHMND_CHUNK_BYTES}",
            )
        with self.slow():
            self._shrink()
            chunk = self._claim(chunks, SHMND_CHUNK_RUN)
            self._add_run(chunk, chunks, True)
            return shmnd_block_ref(chunk, 0)

    cdef int _add_run(self, uint64_t chunk, uint64_t chunks, bint building) except -1:
        cdef Run *more
        if self.run_count == self.run_room:
            more = <Run *>realloc(self.runs, (self.run_room * 2 + 16) * sizeof(Run))
            if more == NULL:
                raise MemoryError
            self.runs = more
            self.run_room = self.run_room * 2 + 16
        self.runs[self.run_count] = Run(chunk, chunks, building)
        self.run_count += 1
        return 0

    def _shrink(self) -> None:
        """Release free runs of other sizes, when they are more than those in use."""
        cdef size_t at = 0
        cdef uint64_t idle = 0, used = 0
        for at in range(self.run_count):
            if not self.runs[at].building and self._run_is_free(at):
                idle += self.runs[at].chunks
            else:
                used += self.runs[at].chunks
        if idle <= used or idle * SHMND_CHUNK_BYTES < 16 << 20:
            return
        at = 0
        while at < self.run_count:
            if not self.runs[at].building and self._run_is_free(at):
                run = self.runs[at]
                self.run_count -= 1
                self.runs[at] = self.runs[self.run_count]
                self._release(run.chunk, run.chunks)
            else:
                at += 1

    def _release(self, first: int, chunks: int) -> None:
        """Release memory to the system, and its chunks to all members."""
        _punch(self.fd, self.shape.chunks_off + first * SHMND_CHUNK_BYTES,
               chunks * SHMND_CHUNK_BYTES)
        step("queue-punched")
        self._give_up(first, chunks)

    cdef void _give_up(self, uint64_t first, uint64_t chunks) noexcept:
        cdef uint64_t at
        for at in range(chunks):
            shmnd_put64(&self.table[first + chunks - 1 - at], 0)

    def _claim(self, chunks: int, kind: int) -> int:
        """Take free chunks in a row, committed: some that were given back, or new ones."""
        cdef uint64_t high = shmnd_relaxed64(&self.head.high), count = chunks
        cdef int64_t found
        high = high if high < self.shape.chunks else self.shape.chunks  # others write it
        found = self._claim_free(min(self.cursor, high), high, count, kind)
        if found < 0 and high // 2 >= self.searched_at:
            self.searched_at = high if high > 64 else 64
            self.reap()
            self._find_lost()
            found = self._claim_free(0, high, count, kind)
        tries = 0
        while found < 0:
            tries += 1
            if tries > MOST_TRIES:
                raise error(Status.INTERNAL_ERROR, "Queue.put",
                            "the queue's memory is damaged: no chunk can be taken")
            high = shmnd_relaxed64(&self.head.high)
            if high > self.shape.chunks or count > self.shape.chunks - high:
                self.reap()
                self._find_lost()
                self._shrink()
                found = self._claim_free(0, self.shape.chunks, count, kind)
                if found < 0:
                    raise error(
                        Status.INSUFFICIENT_RESOURCES, "Queue.put",
                        f"the queue holds {self.shape.chunks * SHMND_CHUNK_BYTES} bytes, as much "
                        "as the machine has, or ulimit -v or -f of the process that made it "
                        "leaves; take items from it, or set a maxsize",
                    )
                break
            commit(self.fd, self.shape.table_off + high * 8, count * 8, "Queue.put")
            if shmnd_swap64(&self.head.high, &high, high + count):
                found = self._claim_free(high, high + count, count, kind)
        self.cursor = found + count
        try:
            commit(self.fd, self.shape.chunks_off + found * SHMND_CHUNK_BYTES,
                   count * SHMND_CHUNK_BYTES, "Queue.put")
        except BaseException:
            self._give_up(found, count)
            raise
        step("queue-claimed")
        return found

    cdef int64_t _claim_free(self, uint64_t first, uint64_t last, uint64_t chunks, uint32_t kind):
        """Take the first free row between two chunks; -1 when there is none."""
        cdef uint64_t at = first, row = 0, free_word, word
        while at < last:
            row = row + 1 if shmnd_relaxed64(&self.table[at]) == 0 else 0
            at += 1
            if row < chunks:
                continue
            for row in range(chunks):
                free_word = 0
                word = shmnd_chunk_word(self.me, SHMND_CHUNK_MORE if row else kind, chunks)
                if not shmnd_swap64(&self.table[at - chunks + row], &free_word, word):
                    self._give_up(at - chunks, row)
                    row = 0
                    break
            else:
                return at - chunks
        return -1

    # -- what the dead had --

    def _live(self) -> set:
        """Return the blocks in the line or of a living member: the slots are read before the
        pages."""
        cdef uint64_t index, found
        cdef uint32_t number, at
        cdef uint64_t members = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        live = set()
        for index in range(self.slots_in_use()):
            found = shmnd_mpmc_waiting_at(&self.line, index)
            if found:
                live.add(found - 1)
        for number in range(members):
            if not shmnd_relaxed64(&self.member(number).joined):
                continue
            for at in range(SHMND_QUEUE_HOLDS + 1):
                found = shmnd_member_holds(self.member(number), at)
                if found:
                    live.add(found - 1)
        return live

    def _find_lost(self) -> int:
        """Free blocks of this member that their consumers died with; return how many."""
        cdef size_t at
        cdef uint32_t ref, kind
        found = 0
        flying = [
            (kind, self.flight[kind].items[
                (self.flight[kind].first + at) & (self.flight[kind].room - 1)])
            for kind in range(6) for at in range(self.flight[kind].count)
        ]
        flying += [(SHMND_CHUNK_RUN, self.runs[at].chunk << 9) for at in range(self.run_count)
                   if not self.runs[at].building]
        live = self._live()
        for kind, ref in flying:
            if ref not in live and not shmnd_block_is_free(self._place(ref, kind)):
                shmnd_block_free(self._place(ref, kind))
                found += 1
        return found

    def inherit(self, number: int) -> None:
        """Take over the chunks of a dead member, whose lock is held."""
        cdef uint64_t at = 0, high = min(shmnd_relaxed64(&self.head.high), self.shape.chunks)
        cdef uint64_t word, run
        cdef uint32_t index, ref
        live = None
        while at < high:
            word = shmnd_relaxed64(&self.table[at])
            if not shmnd_chunk_is_of(word, number):
                at += 1
                continue
            if live is None:
                live = self._live()
            kind = shmnd_chunk_kind(word)
            if kind < SHMND_CLASSES:
                shmnd_put64(&self.table[at], shmnd_chunk_word(self.me, kind, 1))
                for index in range(SHMND_CHUNK_BYTES >> (CLASS_BITS + kind)):
                    ref = shmnd_block_ref(at, index)
                    if ref in live:
                        append(&self.flight[kind], ref)
                    else:
                        append(&self.spare[kind], ref)
                at += 1
            elif kind == SHMND_CHUNK_RUN and shmnd_block_ref(at, 0) in live:
                run = shmnd_chunk_run(word)
                run = run if run else 1
                run = run if run < high - at else high - at
                for index in range(1, run):
                    shmnd_put64(&self.table[at + index],
                                shmnd_chunk_word(self.me, SHMND_CHUNK_MORE, run))
                shmnd_put64(&self.table[at], shmnd_chunk_word(self.me, kind, run))
                self._add_run(at, run, False)
                at += run
            else:  # a run that no member has, or that was being taken or given back
                self._release(at, 1)
                at += 1

    cdef int prepare_slots(self) except -1:
        """Commit the slots that the next items go to, a little ahead."""
        cdef uint64_t whole = self.shape.slots * 8
        cdef uint64_t wanted = (
            shmnd_relaxed64(&self.head.write_pos) % self.shape.slots * 8 + 4096
        )
        if wanted <= self.slots_committed or self.slots_committed >= whole:
            return 0
        if shmnd_relaxed64(&self.head.write_pos) >= self.shape.slots:
            wanted = whole
        wanted = (wanted + UNIT - 1) // UNIT * UNIT
        wanted = wanted if wanted < whole else whole
        with self.slow():
            commit(self.fd, self.shape.slots_off, wanted, "Queue.put")
            self.slots_committed = wanted
        return 0


cdef extern from "fcntl.h" nogil:
    int fallocate(int fd, int mode, long at, long nbytes)


def _punch(fd: int, at: int, nbytes: int) -> None:
    """Release memory to the system; where that fails it stays committed, and is used again."""
    fallocate(fd, _PUNCH, at, nbytes)
