/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a publisher and its subscribers share: its layout, and the writer of each part.
 *
 * A publisher has a head, a board of lines and a pool of slots, in segments that are sealed
 * against all other processes; next to them a bitmap of sleepers, which its subscribers write. Each
 * subscriber has a page for each publisher, which it alone writes. Positions are 64-bit counts of
 * samples that only grow. Counts, free lists and whatever else a death could leave wrong are
 * private memory of the process that uses them.
 *
 * A line is whole when its stamp is its position + 1. With SHMND_WITHDRAWN in it the line is not
 * to be read: its sample was given up, or the next one is being written there.
 */
#ifndef SHMND_IPC_BOARD_H
#define SHMND_IPC_BOARD_H

#include "wire/atomics.h"
#include "wire/cache_lines.h"
#include "wire/kill_point.h"

#define SHMND_BOARD_MAGIC 0x64726f62646e6d73ull /* "smndbord" */
#define SHMND_BOARD_VERSION 4u

#define SHMND_LINE_WORDS 5u
#define SHMND_LINE_INLINE 40u
#define SHMND_WITHDRAWN (1ull << 63)
#define SHMND_MOST_SEATS 4096u
#define SHMND_MOST_HELD 4096u
#define SHMND_LEAST_LINES_LOG 6u
#define SHMND_MOST_LINES_LOG 20u
#define SHMND_NO_SLOT 0xFFFFFFFFu

/* One sample. Written by the publisher. */
struct shmnd_line {
    shmnd_word64 stamp;
    shmnd_word64 when_ns;
    shmnd_word64 info;
    shmnd_word64 body[SHMND_LINE_WORDS]; /* the bytes of a small sample, or where they lie */
};
_Static_assert(sizeof(struct shmnd_line) == 64, "a sample is a cache line");

/* `info`: kind 8 bits, dimensions 7, inline 1, bytes of the description 16, of the header 32. */
#define SHMND_INFO_INLINE (1ull << 15)

/* The body of a sample in a slot: 0 slot | pool segment << 32, 1 offset in it, 2 bytes of the
 * payload, 3 and 4 up to four dimensions of 32 bits. The payload comes first in the slot; the
 * header and the description follow it. */

/* A line of the queue of one subscriber that keeps the first samples. Written by the publisher. */
struct shmnd_kept {
    struct shmnd_line line; /* its stamp counts the samples kept for this subscriber */
    shmnd_word64 position;
    uint64_t pad[7];
};
_Static_assert(sizeof(struct shmnd_kept) == 128, "two cache lines");

enum shmnd_seat_state { SHMND_SEAT_FREE, SHMND_SEAT_TAKEN, SHMND_SEAT_EVICTED };

/* What the publisher grants a subscriber. Written by the publisher. */
struct shmnd_seat {
    shmnd_word64 ident; /* written last: the mark of the subscriber (seats.py) */
    shmnd_word64 dropped;
    shmnd_word64 start; /* the first position that is kept for it */
    shmnd_word32 kept;  /* segment of its queue + 1, or 0 */
    shmnd_word32 state;
};
_Static_assert(sizeof(struct shmnd_seat) == 32, "two to a cache line");

enum shmnd_board_state { SHMND_BOARD_OPEN = 1, SHMND_BOARD_CLOSED };

/* Written by the publisher. */
struct shmnd_head {
    uint64_t magic;
    uint32_t version;
    uint32_t seats;
    uint64_t history; /* how many samples are kept for those that come late */
    uint64_t pad0[5];
    /* changes with each sample */
    shmnd_word64 written; /* how many samples were published; subscribers sleep at its low half */
    uint64_t pad1[7];
    /* changes rarely */
    shmnd_word64 where; /* of the lines: segment << 8 | log2 of their number */
    shmnd_word64 state;
    shmnd_word64 blocked;  /* the publisher sleeps until a subscriber receives */
    shmnd_word64 admitted; /* how many subscribers were given a seat so far */
    shmnd_word64 refused;  /* how often there was none */
    uint64_t pad2[3];
    uint64_t pad3[8];
};
_Static_assert(sizeof(struct shmnd_head) == 256, "four cache lines");

enum shmnd_page_state { SHMND_PAGE_OPEN = 1, SHMND_PAGE_CLOSED };

/* Written by the subscriber; `held` follows, one word for each sample that it may hold. */
struct shmnd_page {
    shmnd_word64 cursor; /* the next position that it receives */
    shmnd_word64 mask;   /* bit h % 64 is set while held[h] may be */
    uint64_t pad0[6];
    /* changes rarely, and is read after each publication */
    shmnd_word64 armed; /* grows with each sleep; odd: at the counter of the publisher */
    shmnd_word64 state;
    shmnd_word64 early; /* keeps the first samples: up to where it has received without a seat */
    uint64_t pad1[5];
};
_Static_assert(sizeof(struct shmnd_page) == 128, "two cache lines");

static inline uint64_t shmnd_page_bytes(uint32_t most_held)
{
    return sizeof(struct shmnd_page) + (4ull * most_held + 63) / 64 * 64;
}

static inline shmnd_word32 *shmnd_page_held(struct shmnd_page *page)
{
    return (shmnd_word32 *)(page + 1);
}

/* Return where the half of `written` lies that changes with each sample: the word of a futex. */
static inline const void *shmnd_head_counter(const struct shmnd_head *head)
{
    return (const char *)&head->written + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0);
}

static inline struct shmnd_seat *shmnd_head_seats(struct shmnd_head *head)
{
    return (struct shmnd_seat *)(head + 1);
}

static inline uint64_t shmnd_head_bytes(uint32_t seats)
{
    return sizeof(struct shmnd_head) + (uint64_t)seats * sizeof(struct shmnd_seat);
}

/* How a subscriber reads when it falls behind. */
enum shmnd_policy {
    SHMND_DROP_OLDEST,
    SHMND_DROP_NEWEST,
    SHMND_CONFLATE,
    SHMND_BLOCK,
};

#endif
