/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one job: what all its ranks map, laid out by the launcher.
 *
 * A head, one block for each rank, the rings of small collectives, one lane for each ordered pair
 * of ranks, then an arena for each rank (arena.h), if there are any. All ranks are processes of one
 * user that one launcher started. Every position and length that is read here is
 * checked against the local layout before it is used (invariant 1), and read once.
 *
 * A rank sleeps at its bell, a futex. Argument for SYNC bell: the sleeper writes `asleep`, fences,
 * then reads the marks of its lanes for the last time; the producer publishes, fences, then reads
 * `asleep`. At least one sees the other, so that no rank sleeps with a record before it.
 */
#ifndef SHMPI_JOB_H
#define SHMPI_JOB_H

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "wire/atomics.h"

enum {
    SHMPI_LAYOUT = 7,
    SHMPI_MOST_RANKS = 1024,
    SHMPI_LINE = 64,
    SHMPI_SHARES = 16,     /* messages of one lane that both sides copy at a time */
    SHMPI_LINE_SLOTS = 64, /* communicators whose small collectives go by lines */
    SHMPI_LINE_ENTRIES = 8,
    SHMPI_LINE_MOST = 248,     /* bytes of an entry */
    SHMPI_ARENAS_AT = 1 << 21, /* arenas begin at a multiple of it: a huge page */
};

#define SHMPI_MAGIC 0x62736f6a2d69706dull

struct shmpi_job {
    uint64_t magic; /* the launcher writes this line, before any rank starts */
    uint32_t layout, size;
    uint64_t lane_bytes; /* a power of two */
    uint64_t bytes;
    uint32_t crowded; /* more ranks than cores */
    uint32_t spare;
    uint64_t arena_bytes; /* of each rank, a multiple of SHMPI_ARENAS_AT; 0: there are none */
    uint32_t spare2[2];
    char gap[72];
    shmnd_word32 failures;   /* the launcher counts deaths here: SYNC death, release */
    shmnd_word32 aborted;    /* a rank that calls Abort */
    shmnd_word64 departures; /* grows with each `left` of a rank, after it: leaving.h */
    char gap2[112];
    shmnd_word32 contexts; /* the next context id that no communicator has */
    char rest[124];
};

struct shmpi_rank {
    shmnd_word32 bell;   /* producers add to it, the owner sleeps at it */
    shmnd_word32 asleep; /* the owner: 0, or SHMPI_ASLEEP and what for */
    char gap[120];
    shmnd_word32 dead;     /* the launcher, before it counts: the number of the death */
    shmnd_word32 pid;      /* the owner; 0 again before others may have it: the launcher */
    shmnd_word32 left;     /* the owner, or the launcher at its end: leaving.h */
    shmnd_word32 released; /* the launcher, once: leaving.h */
    char gap2[112];
    shmnd_word32 notes; /* the owner writes this line, see wait_notes.h; odd: it is at it */
    shmnd_word32 count; /* of operations that it waits for, and a flag; 0: it does not wait */
    shmnd_word32 peer, tag;
    shmnd_word64 since_ns;
    shmnd_word64 call[4], comm[9];
};

struct shmpi_lane {
    shmnd_word64 read_pos; /* the receiver */
    char gap[120];
    shmnd_word32 wants_room; /* the sender; the receiver clears it */
    char rest[124];
    shmnd_word64 shares[SHMPI_SHARES]; /* both sides, see shared_copy.h */
    shmnd_word64 placed[SHMPI_SHARES]; /* the sender, see shared_copy.h */
};

/* The part of one member of a communicator in a collective: collectives/lines.h. */
struct shmpi_entry {
    shmnd_word64 mark;
    char data[SHMPI_LINE_MOST];
};

/* One member's, of one communicator: it alone writes here. */
struct shmpi_ring {
    struct shmpi_entry entries[SHMPI_LINE_ENTRIES];
    shmnd_word64 finished; /* the last collective of which it needs no entry any more */
    char rest[120];
};

_Static_assert(sizeof(struct shmpi_ring) % 128 == 0, "rings share no pair of lines");
_Static_assert(sizeof(struct shmpi_job) == 384, "the head of a job");
_Static_assert(sizeof(struct shmpi_rank) == 384, "the block of a rank");
_Static_assert(sizeof(struct shmpi_lane) == 512, "the head of a lane");

/* Return the bytes that a job takes without its arenas. */
static inline uint64_t shmpi_job_bytes(uint32_t size, uint64_t lane_bytes)
{
    uint64_t lanes = (uint64_t)size * size * (sizeof(struct shmpi_lane) + lane_bytes);
    uint64_t rings = (uint64_t)size * SHMPI_LINE_SLOTS * sizeof(struct shmpi_ring);
    return sizeof(struct shmpi_job) + size * sizeof(struct shmpi_rank) + rings + lanes;
}

static inline struct shmpi_rank *shmpi_job_rank(struct shmpi_job *job, uint32_t rank)
{
    return (struct shmpi_rank *)(job + 1) + rank;
}

static inline struct shmpi_ring *shmpi_job_ring(struct shmpi_job *job, uint32_t size, uint32_t slot,
                                                uint32_t rank)
{
    struct shmpi_ring *rings = (struct shmpi_ring *)shmpi_job_rank(job, size);
    return rings + (uint64_t)slot * size + rank;
}

static inline struct shmpi_lane *shmpi_job_lane(struct shmpi_job *job, uint32_t size,
                                                uint64_t lane_bytes, uint32_t from, uint32_t to)
{
    struct shmpi_ring *rings = (struct shmpi_ring *)shmpi_job_rank(job, size);
    char *lanes = (char *)(rings + (uint64_t)size * SHMPI_LINE_SLOTS);
    uint64_t stride = sizeof(struct shmpi_lane) + lane_bytes;
    return (struct shmpi_lane *)(lanes + ((uint64_t)to * size + from) * stride);
}

/* Return where the arena of a rank begins, in bytes from the beginning of the job's memory. */
static inline uint64_t shmpi_arena_at(uint32_t size, uint64_t lane_bytes, uint64_t arena_bytes,
                                      uint32_t rank)
{
    uint64_t at = shmpi_job_bytes(size, lane_bytes) + SHMPI_ARENAS_AT - 1;
    return (at & ~(uint64_t)(SHMPI_ARENAS_AT - 1)) + rank * arena_bytes;
}

/* Lay out a job on zeroed memory. For the launcher. */
static inline void shmpi_job_lay_out(struct shmpi_job *job, uint32_t size, uint64_t lane_bytes,
                                     bool crowded)
{
    job->layout = SHMPI_LAYOUT;
    job->size = size;
    job->lane_bytes = lane_bytes;
    job->bytes = shmpi_job_bytes(size, lane_bytes);
    job->crowded = crowded;
    shmnd_put32(&job->contexts, 16);
    job->magic = SHMPI_MAGIC;
}

/* Add the arenas, for which the memory has room. For the launcher, before any rank starts. */
static inline void shmpi_job_add_arenas(struct shmpi_job *job, uint64_t arena_bytes)
{
    job->arena_bytes = arena_bytes;
    job->bytes = shmpi_arena_at(job->size, job->lane_bytes, arena_bytes, job->size);
}

/* Return whether `bytes` of memory hold a valid job. */
static inline bool shmpi_job_fits(const struct shmpi_job *job, uint64_t bytes)
{
    if (bytes < sizeof *job || job->magic != SHMPI_MAGIC || job->layout != SHMPI_LAYOUT)
        return false;
    uint64_t lane = job->lane_bytes;
    if (job->size < 1 || job->size > SHMPI_MOST_RANKS || lane < 4096 || lane > 1 << 30)
        return false;
    uint64_t arena = job->arena_bytes;
    if (lane & (lane - 1) || arena > 1ull << 34 || arena & (SHMPI_ARENAS_AT - 1))
        return false;
    return (arena ? shmpi_arena_at(job->size, lane, arena, job->size)
                  : shmpi_job_bytes(job->size, lane)) <= bytes;
}

/* ---- bells -------------------------------------------------------------------------------- */

/* What a rank sleeps for. Records wake it in any case; an entry or room of a ring wakes only the
 * rank that waits for it, so that a collective of many ranks does not wake each of them each
 * time. */
enum { SHMPI_ASLEEP = 1 };
#define SHMPI_ASLEEP_ENTRY(rank) (2 + 2 * (uint32_t)(rank))
#define SHMPI_ASLEEP_ROOM(rank) (3 + 2 * (uint32_t)(rank))
#define SHMPI_ASLEEP_LEFT (UINT32_MAX - 1) /* a rank at its end: for others to leave */
#define SHMPI_ASLEEP_ALL UINT32_MAX        /* several threads of the rank sleep */

/* A word of another rank that a wait is for, and what it must reach. */
struct shmpi_awaited {
    const shmnd_word64 *word;
    uint64_t least;
    uint32_t asleep;
};

static inline bool shmpi_arrived(const struct shmpi_awaited *a)
{
    return shmnd_acquire64(a->word) >= a->least; /* SYNC entry, SYNC reuse: acquire */
}

static inline void shmpi_ring_bell(struct shmpi_rank *rank)
{
    shmnd_put32(&rank->asleep, 0);
    shmnd_add32(&rank->bell, 1);
    syscall(SYS_futex, &rank->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Wake the rank that owns this block, after a publication for it. */
static inline void shmpi_wake(struct shmpi_rank *rank)
{
    shmnd_store_then_load(); /* SYNC bell: fence of the producer */
    if (shmnd_relaxed32(&rank->asleep))
        shmpi_ring_bell(rank);
}

/* Sleep until the bell leaves `seen`, at most `most_ns`. For the owner of the block. */
static inline void shmpi_sleep(struct shmpi_rank *rank, uint32_t seen, uint64_t most_ns)
{
    struct timespec most = {(time_t)(most_ns / 1000000000), (long)(most_ns % 1000000000)};
    syscall(SYS_futex, &rank->bell, FUTEX_WAIT, seen, &most, NULL, 0);
}

#endif
