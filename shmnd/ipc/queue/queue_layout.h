/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a queue: one file that every process which uses the queue maps, for
 * reading and writing.
 *
 * head | a page for each member | a word for each slot | a word for each chunk | chunks
 *
 * A member is a process that uses the queue. It holds a lock of the kernel on byte m of
 * the file as long as it lives: this alone says that it does. The process that holds the
 * lock of a member that died may change the words that only this member changed.
 *
 * All members are processes of one user, and objects pass between them as pickles. Still
 * each index is checked against the reader's own copy of the head before it is used.
 */
#ifndef SHMND_IPC_QUEUE_LAYOUT_H
#define SHMND_IPC_QUEUE_LAYOUT_H

#include "wire/atomics.h"

/* "squeue" and the version of the layout: another one with each change of this file's structs. */
#define SHMND_QUEUE_MAGIC 0x32657565757173ull
#define SHMND_QUEUE_PAGE 4096u
#define SHMND_QUEUE_MEMBERS 1024u
#define SHMND_QUEUE_HOLDS 896u
#define SHMND_QUEUE_ENDED 2048u
#define SHMND_CHUNK_BITS 16u
#define SHMND_CHUNK_BYTES (1u << SHMND_CHUNK_BITS)
#define SHMND_CHUNKS_MOST (1u << 22)
#define SHMND_SLOTS_MOST (1u << 24)

/* Written once, by the maker, before any other process has the file. */
struct shmnd_queue_shape {
    uint64_t magic;
    uint64_t file_bytes;
    uint64_t slots;   /* of the line */
    uint64_t chunks;  /* at most */
    uint64_t limited; /* whether the program set maxsize */
    uint64_t members_off, slots_off, table_off, chunks_off;
};

struct shmnd_queue_head {
    struct shmnd_queue_shape shape;
    char pad0[128 - sizeof(struct shmnd_queue_shape)];
    shmnd_word64 write_pos; /* producers: no later than the truth */
    char pad1[120];
    shmnd_word64 read_pos; /* consumers: no later than the truth */
    char pad2[120];
    shmnd_word32 items; /* gates (gate.h): consumers that sleep, */
    char pad3[60];
    shmnd_word32 room; /* producers that sleep, */
    char pad4[60];
    shmnd_word32 done; /* and those in join */
    char pad5[60];
    shmnd_word64 members; /* one more than the highest member there ever was */
    shmnd_word64 high;    /* one more than the highest chunk that was ever taken */
    char pad6[48];
};

/* Written by its member alone, or by the holder of its lock after its death. */
struct shmnd_queue_member {
    shmnd_word64 joined;   /* 0: nothing of it is left to be taken over */
    shmnd_word64 taking;   /* the block that it takes from the line, plus one */
    shmnd_word64 taken;    /* items it took << 32 | low half of the position of the last */
    shmnd_word64 done;     /* calls of task_done */
    shmnd_word64 forgiven; /* items it took and died with */
    shmnd_word64 behind;   /* items that it keeps until there is room */
    shmnd_word64 others;   /* of `done`, those for items that others took */
    char pad[72];
    char address[32]; /* where it is rung (a descriptor sleeps); its length is in the first byte */
    shmnd_word64 armed;
    char pad1[88];
    shmnd_word32 holds[SHMND_QUEUE_HOLDS];      /* blocks whose memory its program uses, plus one */
    shmnd_word64 ended[SHMND_QUEUE_ENDED / 64]; /* of a service's client: ended.h */
};

_Static_assert(offsetof(struct shmnd_queue_head, write_pos) == 128, "lines two apart");
_Static_assert(offsetof(struct shmnd_queue_head, read_pos) == 256, "lines two apart");
_Static_assert(offsetof(struct shmnd_queue_head, items) == 384, "a line of its own");
_Static_assert(sizeof(struct shmnd_queue_head) == 640, "ABI of a queue");
_Static_assert(offsetof(struct shmnd_queue_member, holds) == 256, "ABI of a queue");
_Static_assert(sizeof(struct shmnd_queue_member) == SHMND_QUEUE_PAGE, "one page");

/* ---- a place of memory ---------------------------------------------------------------- */

/* The header of an item, in front of its bytes. */
struct shmnd_block {
    shmnd_word32 state;
    uint32_t kind;
    uint64_t bytes;   /* of the first part: the pickle, or the bytes themselves */
    uint64_t buffers; /* parts behind it, each with its length in front */
    uint64_t whole;   /* of everything, this header included */
    char pad[32];
};

_Static_assert(sizeof(struct shmnd_block) == 64, "one cache line");

enum { SHMND_BLOCK_FREE, SHMND_BLOCK_LIVE };

#endif
