# SPDX-License-Identifier: Apache-2.0

"""What the headers of queues declare, for the compiled modules."""

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.common.gate_c cimport cbool, word32, word64

cdef extern from "wire/copy_bytes.h" nogil:
    void shmnd_copy_bytes(void *to, const void *from_, size_t n)

cdef extern from "blocks.h" nogil:
    uint64_t SHMND_QUEUE_MAGIC
    uint32_t SHMND_QUEUE_PAGE, SHMND_QUEUE_MEMBERS, SHMND_QUEUE_HOLDS
    uint32_t SHMND_CHUNK_BYTES, SHMND_CHUNK_BITS, SHMND_CHUNKS_MOST, SHMND_SLOTS_MOST
    uint32_t SHMND_CHUNK_RUN, SHMND_CHUNK_MORE, SHMND_CLASSES
    int SHMND_MPMC_OK, SHMND_MPMC_FULL, SHMND_MPMC_NOTHING, SHMND_MPMC_BUSY, SHMND_MPMC_HELD
    int SHMND_BLOCK_LIVE, SHMND_BLOCK_FREE

    struct shmnd_queue_shape:
        uint64_t magic, file_bytes, slots, chunks, limited
        uint64_t members_off, slots_off, table_off, chunks_off

    struct shmnd_queue_head:
        shmnd_queue_shape shape
        word64 write_pos, read_pos
        word32 items, room, done
        word64 members, high

    struct shmnd_queue_member:
        word64 joined, taking, taken, done, forgiven, behind, armed
        char address[32]
        word32 holds[896]

    uint64_t SHMND_QUEUE_ENDED

    struct shmnd_block:
        word32 state
        uint32_t kind
        uint64_t bytes, buffers, whole

    struct shmnd_mpmc:
        word64 *write_pos
        word64 *read_pos
        word64 *slots
        uint64_t count

    uint32_t shmnd_mpmc_value(uint64_t word)
    uint32_t shmnd_mpmc_state(uint64_t word)
    int shmnd_mpmc_ahead(const shmnd_mpmc *q, uint64_t word, uint64_t pos)
    int shmnd_mpmc_push(shmnd_mpmc *q, uint32_t value, uint64_t *pos_p, uint32_t *held_p)
    int shmnd_mpmc_peek(shmnd_mpmc *q, uint64_t *pos_p, uint64_t *word_p)
    cbool shmnd_mpmc_take(shmnd_mpmc *q, uint64_t pos, uint64_t word, uint32_t member)
    cbool shmnd_mpmc_settle(shmnd_mpmc *q, uint64_t pos, uint32_t member)
    uint64_t shmnd_mpmc_waiting_at(const shmnd_mpmc *q, uint64_t index)
    uint64_t shmnd_mpmc_written(shmnd_mpmc *q)
    uint64_t shmnd_mpmc_size_guess(shmnd_mpmc *q)

    uint64_t shmnd_chunk_word(uint32_t owner, uint32_t kind, uint64_t run)
    cbool shmnd_chunk_is_of(uint64_t word, uint32_t owner)
    uint32_t shmnd_chunk_kind(uint64_t word)
    uint64_t shmnd_chunk_run(uint64_t word)
    uint32_t shmnd_block_ref(uint64_t chunk, uint32_t index)
    void shmnd_block_want(shmnd_queue_member *me, uint32_t ref)
    void shmnd_block_hold(shmnd_queue_member *me, uint32_t at, uint32_t ref)
    void shmnd_block_unhold(shmnd_queue_member *me, uint32_t at)
    void shmnd_block_pass(shmnd_queue_member *me)
    void shmnd_block_free(shmnd_block *block)
    cbool shmnd_block_is_free(const shmnd_block *block)
    uint64_t shmnd_member_holds(const shmnd_queue_member *page, uint32_t at)
    void shmnd_member_report(word64 *count, uint64_t value)
    int shmnd_member_open(const shmnd_queue_member *page)
    void shmnd_member_done(shmnd_queue_member *me)
    uint64_t shmnd_member_reported(const shmnd_queue_member *page, uint64_t *lost_p)
    void shmnd_member_count(shmnd_queue_member *me, uint64_t pos)
    void shmnd_member_count_dead(shmnd_queue_member *page, uint64_t pos)
    bint shmnd_member_took(shmnd_queue_member *page, uint64_t pos)

cdef extern from "ended.h" nogil:
    void shmnd_stream_mark(shmnd_queue_member *me, uint64_t number, cbool ended)
    cbool shmnd_stream_is_marked(const shmnd_queue_member *page, uint64_t number)
