/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank waits for, published to the launcher and to tools.
 *
 * The rank writes a note when a wait has lasted through all its polls, and takes it back at its
 * end. One writer, any number of readers, in the line of the rank's block that is the note's.
 *
 * SYNC note: the writer makes `notes` odd, fences, writes the words, then makes `notes` even with
 * release; a reader loads `notes` with acquire, reads the words, fences, loads `notes` again. Two
 * equal even values say that all words are of one note. A death in between leaves an odd value,
 * which a reader takes for no note. Nothing that is read here is an index or a length.
 */
#ifndef SHMPI_WAIT_NOTES_H
#define SHMPI_WAIT_NOTES_H

#include "transport/job.h"

#define SHMPI_OTHERS_END 0x80000000u /* with the count: other ranks may end the wait, too */
#define SHMPI_POLLS 0x40000000u      /* with the count: the rank polls, and does not sleep */
#define SHMPI_SCHEDULE 0x20000000u   /* with the count: it waits in a schedule */

struct shmpi_wait {
    uint32_t count;    /* operations, with the flags above; 0: the rank does not wait */
    int32_t peer, tag; /* rank of the job, or -1: any */
    uint64_t since_ns; /* of CLOCK_MONOTONIC */
    char call[32 + 1]; /* its name */
    char comm[72 + 1]; /* the name of the communicator */
};

static inline uint64_t shmpi_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline void shmpi_put_text(shmnd_word64 *words, size_t n, const char *text)
{
    size_t length = strnlen(text, n * 8);
    for (size_t i = 0; i < n; i++) {
        uint64_t word = 0;
        if (length > i * 8)
            memcpy(&word, text + i * 8, length - i * 8 < 8 ? length - i * 8 : 8);
        shmnd_put64(&words[i], word);
    }
}

static inline void shmpi_get_text(const shmnd_word64 *words, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t word = shmnd_relaxed64(&words[i]);
        memcpy(text + i * 8, &word, 8);
    }
    text[n * 8] = 0;
}

/* Publish the wait of this block's owner. Texts are cut where they are too long. */
static inline void shmpi_note(struct shmpi_rank *me, uint32_t count, int peer, int tag,
                              const char *call, const char *comm)
{
    uint32_t turn = shmnd_relaxed32(&me->notes) & ~1u;
    shmnd_put32(&me->notes, turn + 1);
    shmnd_stores_before(); /* SYNC note: fence of the writer */
    shmnd_put32(&me->count, count);
    shmnd_put32(&me->peer, (uint32_t)peer);
    shmnd_put32(&me->tag, (uint32_t)tag);
    shmnd_put64(&me->since_ns, shmpi_clock_ns());
    shmpi_put_text(me->call, 4, call);
    shmpi_put_text(me->comm, 9, comm);
    shmnd_release32(&me->notes, turn + 2); /* SYNC note: release */
}

/* End the note of this block's owner. A reader of the old words with this count is right too. */
static inline void shmpi_note_end(struct shmpi_rank *me)
{
    shmnd_put32(&me->count, 0);
}

/* Read the note of a rank. Return false if it is being written, or its writer died meanwhile. */
static inline bool shmpi_read_note(const struct shmpi_rank *rank, struct shmpi_wait *w)
{
    for (int tries = 0; tries < 1000; tries++) {
        uint32_t turn = shmnd_acquire32(&rank->notes); /* SYNC note: acquire */
        w->count = shmnd_relaxed32(&rank->count);
        w->peer = (int32_t)shmnd_relaxed32(&rank->peer);
        w->tag = (int32_t)shmnd_relaxed32(&rank->tag);
        w->since_ns = shmnd_relaxed64(&rank->since_ns);
        shmpi_get_text(rank->call, 4, w->call);
        shmpi_get_text(rank->comm, 9, w->comm);
        shmnd_loads_before(); /* SYNC note: fence of the reader */
        if (!(turn & 1) && shmnd_relaxed32(&rank->notes) == turn)
            return true;
        shmnd_pause();
    }
    return false;
}

#endif
