# SPDX-License-Identifier: Apache-2.0
"""What the headers of topics declare, for the compiled modules."""

from libc.stdint cimport uint32_t, uint64_t

cdef extern from "wire/atomics.h" nogil:
    ctypedef struct word32 "shmnd_word32":
        pass
    ctypedef struct word64 "shmnd_word64":
        pass
    uint64_t shmnd_relaxed64(const word64 *w)
    uint32_t shmnd_relaxed32(const word32 *w)
    uint64_t shmnd_acquire64(const word64 *w)
    void shmnd_put64(word64 *w, uint64_t v)
    void shmnd_put32(word32 *w, uint32_t v)
    void shmnd_release64(word64 *w, uint64_t v)
    void shmnd_store_then_load()

cdef extern from "wire/cache_lines.h" nogil:
    void shmnd_prefetch_to_own(const void *at)

cdef extern from "wire/copy_bytes.h" nogil:
    void shmnd_copy_bytes(void *to, const void *from_, size_t n)

cdef extern from "wire/clock.h" nogil:
    uint64_t shmnd_now_ns()

cdef extern from "board/board.h" nogil:
    enum:
        SHMND_BOARD_MAGIC
        SHMND_BOARD_VERSION
        SHMND_LINE_WORDS
        SHMND_LINE_INLINE
        SHMND_MOST_SEATS
        SHMND_MOST_HELD
        SHMND_LEAST_LINES_LOG
        SHMND_MOST_LINES_LOG
        SHMND_NO_SLOT
        SHMND_INFO_INLINE
        SHMND_BOARD_OPEN
        SHMND_BOARD_CLOSED
        SHMND_PAGE_OPEN
        SHMND_PAGE_CLOSED
        SHMND_DROP_OLDEST
        SHMND_DROP_NEWEST
        SHMND_CONFLATE
        SHMND_BLOCK
        SHMND_SEAT_EVICTED
    struct shmnd_line:
        pass
    struct shmnd_kept:
        pass
    struct shmnd_seat:
        word64 ident
        word64 dropped
        word32 kept
        word32 state
    struct shmnd_head:
        uint64_t magic
        uint32_t version
        uint32_t seats
        uint64_t history
        word64 written
        word64 where
        word64 state
        word64 blocked
        word64 refused
    struct shmnd_page:
        word64 cursor
        word64 mask
        word64 armed
        word64 state
        word64 early
    uint64_t shmnd_page_bytes(uint32_t most_held)
    uint64_t shmnd_head_bytes(uint32_t seats)
    shmnd_seat *shmnd_head_seats(shmnd_head *head)
    const void *shmnd_head_counter(const shmnd_head *head)

cdef extern from "board/slots.h" nogil:
    const uint64_t SHMND_MOST_SAMPLE
    enum:
        SHMND_SLOT_CLASSES
        SHMND_STORE_FREE
        SHMND_STORE_LOANED
        SHMND_STORE_SHOWN
        SHMND_STORE_PENDING
        SHMND_STORE_RETIRED
    struct shmnd_store:
        unsigned char *base
        uint64_t offset
        uint64_t seen
        uint32_t pool
        uint32_t class_ "class"
        uint32_t next
        uint32_t keeps
        uint32_t state
        uint32_t group
        uint32_t used
    struct shmnd_slots:
        shmnd_store *all
        uint32_t count, period, pending
        uint32_t free[128]
    uint64_t shmnd_class_bytes(uint32_t class_)
    uint32_t shmnd_class_of(uint64_t nbytes)
    void shmnd_slots_free(shmnd_slots *slots, uint32_t slot)
    bint shmnd_slots_idle(const shmnd_slots *slots, uint32_t first, uint32_t since)
    uint32_t shmnd_slots_retire(shmnd_slots *slots, uint32_t first)

cdef extern from "board/reclaim.h" nogil:
    struct shmnd_guest:
        shmnd_page *page
        shmnd_kept *kept
        uint32_t *kept_slots
        uint64_t kept_written, kept_freed
        uint64_t buffer, joined, start, cursor, dropped, rung
        uint32_t kept_mask, most_held, policy
        bint evicted
    struct shmnd_board:
        shmnd_head *head
        shmnd_line *lines
        uint32_t *line_slots
        word64 *sleepers
        shmnd_guest *guests
        shmnd_slots slots
        uint64_t line_mask, next, low, history, count, may_publish, keep_from
        uint32_t guest_count, keepers, present, blockers
    void shmnd_board_count(shmnd_board *b)
    void shmnd_board_reclaim(shmnd_board *b)
    void shmnd_board_reclaim_all(shmnd_board *b)
    uint32_t shmnd_board_take(shmnd_board *b, uint32_t class_)
    uint32_t shmnd_board_squeeze(shmnd_board *b, uint32_t class_)

cdef extern from "board/publish.h" nogil:
    struct shmnd_sample:
        uint64_t when_ns, info
        uint64_t body[5]
    uint64_t shmnd_board_publish(shmnd_board *b, const shmnd_sample *sample, uint32_t slot)
    bint shmnd_board_has_room(shmnd_board *b)
    void shmnd_board_block(shmnd_board *b, bint blocked)
    enum shmnd_sleep:
        SHMND_AWAKE
        SHMND_ASLEEP_AT_BELL
        SHMND_ASLEEP_AT_COUNTER
    shmnd_sleep shmnd_board_sleep(shmnd_board *b, uint32_t seat)
    bint shmnd_board_published(shmnd_board *b, uint64_t now_ns)
    uint32_t shmnd_board_sleepers(shmnd_board *b, uint32_t from_, uint64_t *bits)

cdef extern from "board/guests.h" nogil:
    void shmnd_board_seat(shmnd_board *b, uint32_t seat, const shmnd_guest *guest,
                          uint64_t from_)
    void shmnd_board_admit(shmnd_board *b, uint32_t seat, uint64_t ident, uint32_t kept)
    void shmnd_board_refuse(shmnd_board *b)
    void shmnd_board_leave(shmnd_board *b, uint32_t seat)
    void shmnd_board_evict(shmnd_board *b, uint32_t seat)
    void shmnd_board_move(shmnd_board *b, shmnd_line *lines, uint32_t *line_slots,
                          uint64_t line_mask, uint64_t where)

cdef extern from "board/reading.h" nogil:
    enum:
        SHMND_NEAR
    struct shmnd_near:
        uint64_t number
        const unsigned char *base
        uint64_t nbytes
    struct shmnd_reading:
        shmnd_near near[8]
        shmnd_head *head
        const shmnd_line *lines
        const shmnd_kept *kept
        shmnd_page *page
        word64 *sleepers
        uint32_t *free_holds
        uint64_t line_mask, where
        uint64_t cursor, joined, taken, buffer, lost, armed, own_mask, early, refused, start
        uint64_t uncounted
        uint32_t free_count, most_held, kept_mask, policy, seat
        uint32_t groups[64]
        bint seated, rings
    struct shmnd_found:
        uint64_t position, when_ns, info
        uint64_t body[5]
        uint32_t hold
    enum shmnd_outcome:
        SHMND_OUTCOME_NOTHING
        SHMND_OUTCOME_FOUND
        SHMND_OUTCOME_COPY
        SHMND_OUTCOME_LIMIT
        SHMND_OUTCOME_MOVED
    void shmnd_reading_let_go(shmnd_reading *r, uint32_t hold)
    uint32_t shmnd_reading_hold(shmnd_reading *r, uint32_t slot)

cdef extern from "board/receive.h" nogil:
    void shmnd_reading_advance(shmnd_reading *r, uint64_t cursor)
    shmnd_outcome shmnd_reading_next(shmnd_reading *r, shmnd_found *found)
    bint shmnd_reading_copied(shmnd_reading *r)
    bint shmnd_reading_ready(const shmnd_reading *r)
    uint64_t shmnd_reading_lost(const shmnd_reading *r)
    bint shmnd_reading_find_seat(shmnd_reading *r, uint64_t ident, uint32_t seats)
    void shmnd_reading_begin(shmnd_reading *r)
    bint shmnd_reading_is_refused(const shmnd_reading *r, uint64_t ident, uint32_t seats)
    void shmnd_reading_doze(shmnd_reading *r)
    uint32_t shmnd_reading_arm_counter(shmnd_reading *r)
