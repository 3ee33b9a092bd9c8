/* SPDX-License-Identifier: Apache-2.0
 *
 * Small collectives by lines: each member writes one entry, and the others read it there.
 *
 * Each of the first communicators of a job has a slot, and in it each rank a ring of entries that
 * it alone writes. The blocking small collectives of a communicator are counted: MPI demands the
 * same order of all members, so that entry k of every ring belongs to the same call. A call that
 * is not small is counted too, and writes nothing.
 *
 * SYNC entry: the writer fills its entry, then stores its mark with release; a reader loads the
 * mark with acquire. Marks of earlier laps are smaller.
 * SYNC reuse: a member stores `finished` = k with release after its last load from entries k. A
 * writer loads the `finished` of all others with acquire and overwrites entry k only when all are
 * at k or beyond. A mark says as much: a member that has shown entry k + 1 has finished k, and its
 * release comes after the loads, so that a collective in which all write needs no load of
 * `finished`. The loads of marks and of `finished` are in shmpi_arrived() of job.h.
 * SYNC bell: a waiter writes `asleep`, which says for whose word it sleeps, fences, and loads the
 * word again. The writer stores the word, fences, then loads the `asleep` of the members. At least
 * one sees the other.
 *
 * Nothing here waits, or makes a system call but that of a bell. A member that dies leaves its
 * entry shown whole or not at all. A mark is compared with what the reader expects; no index and no
 * length is taken from it. A member that has finished k without an entry k is in a call of another
 * kind or length.
 */
#ifndef SHMPI_LINES_H
#define SHMPI_LINES_H

#include "transport/job.h"
#include "wire/cache_lines.h"
#include "wire/kill_point.h"

enum {
    SHMPI_LINE_MEMBERS = 16, /* the largest communicator */
    SHMPI_MARK_SHIFT = 12,   /* of a mark: kind << 8 | bytes below, the number above */
};

enum shmpi_line_kind {
    SHMPI_LINE_BARRIER = 1,
    SHMPI_LINE_BCAST,
    SHMPI_LINE_REDUCE,
    SHMPI_LINE_ALLREDUCE,
    SHMPI_LINE_GATHER,
    SHMPI_LINE_ALLGATHER,
    /* Barriers that are other calls: a rank in one of them is not in another. */
    SHMPI_LINE_FENCE,
    SHMPI_LINE_WIN_FREE,
    SHMPI_LINE_KINDS,
};

/* One communicator, seen from one of its members. Private to its process. */
struct shmpi_lines {
    uint64_t number; /* of the last collective that this rank began */
    uint64_t safe;   /* all members have finished the collectives up to here */
    int size, place;
    uint32_t rank[SHMPI_LINE_MEMBERS]; /* of the job */
    struct shmpi_ring *ring[SHMPI_LINE_MEMBERS];
    struct shmpi_rank *block[SHMPI_LINE_MEMBERS];
};

/* Return whether the members of a communicator have rings: the same for all of them. */
static inline bool shmpi_lines_fit(uint32_t context, int size)
{
    return size > 1 && size <= SHMPI_LINE_MEMBERS && context % 8 == 0 &&
           context / 8 < SHMPI_LINE_SLOTS;
}

/* Return the lines of a communicator, seen from the member at `place`; NULL without memory. */
static inline struct shmpi_lines *shmpi_lines_new(struct shmpi_job *job, uint32_t job_size,
                                                  uint32_t context, int size, int place,
                                                  const int *ranks)
{
    struct shmpi_lines *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->size = size;
    l->place = place;
    for (int i = 0; i < size; i++) {
        l->rank[i] = (uint32_t)ranks[i];
        l->ring[i] = shmpi_job_ring(job, job_size, context / 8, l->rank[i]);
        l->block[i] = shmpi_job_rank(job, l->rank[i]);
    }
    return l;
}

static inline struct shmpi_entry *shmpi_lines_entry(const struct shmpi_lines *l, uint64_t k,
                                                    int place)
{
    return &l->ring[place]->entries[k % SHMPI_LINE_ENTRIES];
}

/* ---- waiting -------------------------------------------------------------------------------- */

static inline struct shmpi_awaited shmpi_await_entry(const struct shmpi_lines *l, uint64_t k,
                                                     int place)
{
    return (struct shmpi_awaited){&shmpi_lines_entry(l, k, place)->mark, k << SHMPI_MARK_SHIFT,
                                  SHMPI_ASLEEP_ENTRY(l->rank[place])};
}

/* Return the word to wait for before entry k: a member's count of finished entries. */
static inline struct shmpi_awaited shmpi_await_room(const struct shmpi_lines *l, uint64_t k,
                                                    int place)
{
    return (struct shmpi_awaited){&l->ring[place]->finished, k - SHMPI_LINE_ENTRIES,
                                  SHMPI_ASLEEP_ROOM(l->rank[place])};
}

/* Return the place of the first member that keeps entry k from being written; -1 if none does. */
static inline int shmpi_lines_full(struct shmpi_lines *l, uint64_t k)
{
    if (k <= l->safe + SHMPI_LINE_ENTRIES)
        return -1;
    uint64_t safe = k - 1;
    for (int i = 0; i < l->size; i++) {
        uint64_t finished = i == l->place ? k : shmnd_acquire64(&l->ring[i]->finished);
        if (k > finished + SHMPI_LINE_ENTRIES) /* SYNC reuse: acquire */
            return i;
        safe = finished < safe ? finished : safe;
    }
    l->safe = safe;
    return -1;
}

/* Return whether a member has ended collective k without an entry. */
static inline bool shmpi_lines_elsewhere(const struct shmpi_lines *l, uint64_t k, int place)
{
    if (shmnd_acquire64(&l->ring[place]->finished) < k) /* SYNC reuse: acquire */
        return false;
    struct shmpi_awaited a = shmpi_await_entry(l, k, place);
    return !shmpi_arrived(&a);
}

/* ---- a collective --------------------------------------------------------------------------- */

static inline void shmpi_lines_wake(const struct shmpi_lines *l, bool shown, bool finished)
{
    uint32_t me = l->rank[l->place];
    shmnd_store_then_load(); /* SYNC bell: fence of the writer */
    for (int i = 0; i < l->size; i++) {
        uint32_t asleep = shmnd_relaxed32(&l->block[i]->asleep);
        if (asleep && (asleep == SHMPI_ASLEEP_ALL || (shown && asleep == SHMPI_ASLEEP_ENTRY(me)) ||
                       (finished && asleep == SHMPI_ASLEEP_ROOM(me))))
            shmpi_ring_bell(l->block[i]);
    }
}

/* Write and show the entry of collective k, for which there is room. With `last` this rank reads no
 * entry of it. */
static inline void shmpi_lines_show(struct shmpi_lines *l, uint64_t k, uint32_t kind,
                                    const void *data, uint64_t bytes, bool last)
{
    struct shmpi_entry *entry = shmpi_lines_entry(l, k, l->place);
    if (bytes)
        memcpy(entry->data, data, bytes);
    SHMND_KILL_POINT("entry-filled");
    /* SYNC entry: release, pairs with acquire in shmpi_arrived() */
    shmnd_release64(&entry->mark, k << SHMPI_MARK_SHIFT | kind << 8 | bytes);
    SHMND_KILL_POINT("entry-shown");
    if (last)
        shmnd_release64(&l->ring[l->place]->finished, k); /* SYNC reuse: release */
    shmpi_lines_wake(l, true, last);
}

/* Return the bytes of an entry that was awaited; -1 if it is of another kind. */
static inline int shmpi_lines_bytes(const struct shmpi_lines *l, uint64_t k, int place,
                                    uint32_t kind)
{
    uint64_t mark = shmnd_relaxed64(&shmpi_lines_entry(l, k, place)->mark);
    uint64_t bytes = mark - (k << SHMPI_MARK_SHIFT | kind << 8);
    return bytes <= SHMPI_LINE_MOST ? (int)bytes : -1;
}

/* Note that this rank reads no entry of collective k any more. With `all` every member has shown
 * one. */
static inline void shmpi_lines_finish(struct shmpi_lines *l, uint64_t k, bool all)
{
    SHMND_KILL_POINT("entries-read");
    /* SYNC reuse: release, pairs with acquire in shmpi_lines_full() */
    shmnd_release64(&l->ring[l->place]->finished, k);
    SHMND_KILL_POINT("finished");
    if (all && l->safe < k - 1)
        l->safe = k - 1;
    shmpi_lines_wake(l, false, true);
    /* The others have it since a lap of the ring; one that is faster may poll it already. */
    shmnd_prefetch_to_own(shmpi_lines_entry(l, k + 1, l->place));
}

/* Reduce n rows with the brackets of a tree of neighbours, as schedules do. Return the result,
 * which is one of the rows. */
static inline char *shmpi_lines_reduce(char **row, int n,
                                       void (*kernel)(const void *, const void *, void *, size_t),
                                       size_t items)
{
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step) {
            kernel(row[i], row[i + step], row[i + step], items);
            row[i] = row[i + step];
        }
    return row[0];
}

#endif
