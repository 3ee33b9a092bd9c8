/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of all memory that processes share, and the writer of each field.
 *
 * The layout has no pointers, only offsets and positions. A position is a 64-bit
 * count that only grows; it is masked where a slot is accessed and nowhere else.
 * Cache lines that different processes write are at least two lines apart,
 * because the hardware prefetches lines in pairs.
 */
#ifndef SHMND_WIRE_LAYOUT_H
#define SHMND_WIRE_LAYOUT_H

#include "wire/atomics.h"
#include "wire/cache_lines.h"
#include "wire/kill_point.h"

/* Of this layout, and of the division of a large message, which each side computes (chunks_of). */
#define SHMND_LAYOUT_VERSION 10u
#define SHMND_LINK_MAGIC 0x6b6e696c646e6d73ull /* "smndlink" */

/* ---- the slot ring: one per direction of a link ------------------------- */

#define SHMND_SLOT_BYTES 64u
#define SHMND_HEAD_PAYLOAD 48u
#define SHMND_TAIL_PAYLOAD 56u
/* Both ends compute the number of slots of a ring (shmnd_ring_slots): SHMND_RING_USUAL in most
 * cases, fewer where few messages can be in flight, more where more receives can be posted. */
#define SHMND_RING_USUAL 256u
#define SHMND_RING_LEAST 32u

/* The payload bytes that `slots` slots hold. */
#define SHMND_SLOTS_HOLD(slots) (SHMND_HEAD_PAYLOAD + ((slots) - 1u) * SHMND_TAIL_PAYLOAD)
/* A message that fits in a quarter of the ring can always be written in full once the reader has
 * consumed all earlier messages, since the reader returns space a quarter at a time. */
#define SHMND_EAGER_MAX (SHMND_HEAD_PAYLOAD + 63u * SHMND_TAIL_PAYLOAD)
/* A message that fits in three quarters is written only if there is room at once. */
#define SHMND_EAGER_LONGEST (SHMND_HEAD_PAYLOAD + 191u * SHMND_TAIL_PAYLOAD)

_Static_assert(SHMND_EAGER_MAX == SHMND_SLOTS_HOLD(SHMND_RING_USUAL / 4), "a quarter");
_Static_assert(SHMND_EAGER_LONGEST == SHMND_SLOTS_HOLD(SHMND_RING_USUAL / 4 * 3), "the rest");

enum shmnd_kind {
    SHMND_KIND_EAGER = 1, /* payload in the slots */
    SHMND_KIND_PLACED,    /* payload already written to the receive whose number it carries */
    SHMND_KIND_LARGE,     /* extents of the source; each side copies the chunks that it claims */
    SHMND_KIND_PART,      /* one part of a message whose memory neither side can access remotely */
    SHMND_KIND_LISTED,    /* in no slot: the reader took it from the backlog */
    SHMND_KIND_BOUNCED,   /* payload in the sender's bounce area, at the offset in the slot */
};

enum shmnd_slot_flag {
    SHMND_SLOT_SOLICITED = 1,  /* SEND_AND_SOLICIT_EVENT */
    SHMND_SLOT_ACK = 2,        /* the sender waits for `taken`: wake it */
    SHMND_SLOT_LAST = 4,       /* the last part of a message */
    SHMND_SLOT_INVALIDATE = 8, /* the payload begins with the token of a reader's window */
};

/* The outcome for a message with SHMND_SLOT_ACK: either the reader claims it, when a receive is
 * posted for it, or the sender recalls it. */
#define SHMND_POS_CLAIMED (1ull << 62)
#define SHMND_POS_RECALLED (1ull << 63)

/* The first slot of a message. Written by the sender of this direction. */
struct shmnd_slot {
    shmnd_word64 ready_pos; /* position + 1 once the message may be read */
    uint32_t length;        /* bytes of the message (of the part) */
    uint8_t kind;
    uint8_t flags;
    uint16_t reserved;
    uint8_t payload[SHMND_HEAD_PAYLOAD];
};

/* A further slot of a message. Its `ready_pos` is 0, a value that no reader waits for, so payload
 * left from an earlier lap cannot be mistaken for a published message. */
struct shmnd_tail_slot {
    shmnd_word64 ready_pos;
    uint8_t payload[SHMND_TAIL_PAYLOAD];
};

_Static_assert(sizeof(struct shmnd_slot) == SHMND_SLOT_BYTES, "one cache line");
_Static_assert(sizeof(struct shmnd_tail_slot) == SHMND_SLOT_BYTES, "one cache line");
_Static_assert(offsetof(struct shmnd_slot, payload) == 16, "48 bytes of payload");

/* ---- the bounce area: one per direction of a link ------------------------------- */

/* Messages too long for the ring whose receive, or source, is private memory: the sender copies
 * them into this area and the receiver out of it (bounce.h). Both areas are the sparse end of the
 * link: a sender commits pages of its own area when it first needs them. */
#define SHMND_BOUNCE_BYTES (4u << 20)

/* ---- posted receives, advertised to a sender that pushes ------------------ */

#define SHMND_PRIVATE_MEMORY 0xffffffffu /* `segment` of memory outside every segment */

/* A range of memory as the other side can access it. In shared memory it is stored as two words,
 * since a Flush may reuse an entry while a sender reads it (the sender then finds `revision`
 * changed and discards the values it read). */
struct shmnd_extent {
    uint64_t offset; /* in the segment, or the address in private memory */
    uint32_t segment;
    uint32_t length;
};

struct shmnd_shared_extent {
    shmnd_word64 offset;
    shmnd_word64 place; /* segment << 32 | length */
};

/* One receive, followed by its extents; the stride is fixed when the link is created. Written by
 * the owner of the receives. An entry is reused once its receive was matched, possibly while a
 * sender reads it. The number in `capacity` is written first, so a sender that finds the same
 * number before and after has read a single receive (SYNC entry). */
struct shmnd_posted {
    /* low half of the receive's number + 1 << 32 | its capacity in bytes + 1, or 0 in the lower
     * half when its owner will refuse any message */
    shmnd_word64 capacity;
    shmnd_word64 extents; /* 0: no push; the owner copies by itself */
};

_Static_assert(sizeof(struct shmnd_extent) == 16, "ABI of a large message");
_Static_assert(sizeof(struct shmnd_shared_extent) == 16, "ABI of the link");
_Static_assert(sizeof(struct shmnd_posted) == 16, "ABI of the link");

/* ---- pending Sends, listed for the reader (backlog.h) ----------------------------- */

/* The lowest bits of `word`. */
enum shmnd_listed_state {
    SHMND_LISTED_NOT = 0, /* free, or reclaimed by the sender */
    SHMND_LISTED_OPEN,    /* the side that swaps the word first executes the Send */
    SHMND_LISTED_TAKEN,   /* claimed by the reader, which copies no piece at this moment */
    SHMND_LISTED_COPYING, /* claimed by the reader, which is copying a piece */
    SHMND_LISTED_DONE,    /* the reader has copied all of it */
    SHMND_LISTED_CUT,     /* the sender ends the connection: no further piece may begin */
    SHMND_LISTED_MASK = 7,
};

/* Followed by the extents of the source; the stride is fixed when the link is created. Message k
 * uses entry k masked. The sender writes the entry; the reader only swaps `word`. */
struct shmnd_listed {
    shmnd_word64 word; /* number of the listing << 3 | enum shmnd_listed_state */
    /* token << 32 | low 16 bits of k << 16 | enum shmnd_slot_flag << 8 | number of extents */
    shmnd_word64 shape;
};

_Static_assert(sizeof(struct shmnd_listed) == 16, "ABI of the link");

/* ---- one side of a link: written by the process at that side -------------- */

enum shmnd_link_state {
    SHMND_LINK_ATTACHED = 0,
    SHMND_LINK_OPEN,
    SHMND_LINK_REJECTED,
    SHMND_LINK_CLOSED,
    SHMND_LINK_FAULT,
    SHMND_LINK_DEAD, /* never stored: stands for the side of a process that died */
    /* A flag while the connection is open: Sends of this side are listed in the backlog. */
    SHMND_LINK_LISTS = 1 << 8,
};

/* The chunks of one large message. */
struct shmnd_share {
    /* Low half of the message number << 32 | chunks claimed from the back << 16 | from the front */
    shmnd_word64 claim;
    shmnd_word64 done; /* number of chunks copied */
};

#define SHMND_SHARES 8u

struct shmnd_side {
    /* line 0: rarely written. The other side reads it with every message. */
    shmnd_word32 state;        /* enum shmnd_link_state, with SHMND_LINK_LISTS */
    shmnd_word32 closing;      /* set before the ring is checked for the last time */
    shmnd_word32 wants_credit; /* a request of this side waits for a receive or for ring space */
    shmnd_word32 fault;        /* why the first untaken message failed: a status, or 0 */
    shmnd_word32 reaches;      /* 1: this process can read and write the other's private memory */
    shmnd_word32 opened;       /* this side was OPEN once, whatever `state` is now */
    shmnd_word64 cancelled;    /* posted receives cancelled before a message matched them */
    shmnd_word64 revision;     /* of the posted receives: odd while a Flush is in progress */
    uint8_t pad0[88];
    /* line 2: space and receives that this side, as a reader, has returned or matched. */
    shmnd_word64 read_pos; /* slots before this position may be written again */
    shmnd_word64 taken;    /* messages matched to a receive */
    uint8_t pad1[112];
    /* line 4: receives posted at this side. */
    shmnd_word64 posted; /* entries ever advertised */
    uint8_t pad2[120];
    /* line 6: the memory of the other side that this side is accessing now. */
    shmnd_word64 hazard; /* 0, a token, or SHMND_HAZARD_PUSH */
    uint8_t pad3[120];
    /* line 8: the large messages that this side has announced and the other side has not taken
     * yet; both sides claim chunks of them. */
    struct shmnd_share shares[SHMND_SHARES];
};

#define SHMND_HAZARD_PUSH (1ull << 32)

_Static_assert(offsetof(struct shmnd_side, read_pos) == 128, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, posted) == 256, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, hazard) == 384, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, shares) == 512, "lines two apart");
_Static_assert(sizeof(struct shmnd_side) == 640, "ABI of the link");

/* ---- the link segment ---------------------------------------------------- */

/* The sizes that both ends agreed on, of the active side and of the passive side. */
struct shmnd_link_shape {
    uint32_t receives[2]; /* entries for advertised receives */
    uint32_t extents[2];  /* per such entry */
    uint32_t requests[2]; /* depth of the initiator queue, and number of backlog entries */
    uint32_t elements[2]; /* extents per backlog entry */
    uint32_t slots[2];    /* of the ring that this side writes: shmnd_ring_slots() */
};

/* Written by the passive side, which creates the segment, before the active side can map it. Both
 * ends received the same numbers at rendezvous and use those; the header is only compared with
 * them. */
struct shmnd_link_header {
    uint64_t magic;
    uint64_t bytes;
    struct shmnd_link_shape shape;
    uint64_t connection;  /* random; names this connection in grants */
    shmnd_word32 version; /* stored last */
    uint8_t pad[60];
};

_Static_assert(sizeof(struct shmnd_link_header) == 128, "ABI of the link");

enum { SHMND_ACTIVE = 0, SHMND_PASSIVE = 1 };

/* ---- the bell of a completion queue: how producers wake its owner --------- */

#define SHMND_READY_WORDS 64u
#define SHMND_READY_BITS (SHMND_READY_WORDS * 64u)

enum shmnd_armed {
    SHMND_ARMED_NOT = 0,
    SHMND_ARMED_ANY = 1,
    SHMND_ARMED_SOLICITED = 2,
    /* The owner sleeps for another event: only shmnd_bell_request_poll() rings. */
    SHMND_ARMED_ASKED = 3,
    SHMND_ARMED_MASK = 3,
    /* With ANY: the owner sleeps at `rings` of its marks, which a ring has to change. */
    SHMND_ARMED_AT_WORD = 4,
};

/* In a segment of the consumer's adapter that peers map read-only, so that no peer can keep the
 * others from waking the consumer. Written by the consumer, read by producers after a message. */
struct shmnd_bell {
    shmnd_word64 armed;      /* arming number << 3 | enum shmnd_armed */
    shmnd_word32 use_bitmap; /* too many links to poll each one: producers set a bit */
    uint8_t pad[116];
};

/* In another segment, which peers write. Set by producers, cleared by the consumer. */
struct shmnd_marks {
    shmnd_word64 ready[SHMND_READY_WORDS];
    shmnd_word32 asked; /* a message waits for its reader, which may be polling another queue */
    shmnd_word32 rings; /* counts the rings of an owner that sleeps at this word */
    uint8_t pad[120];
};

_Static_assert(sizeof(struct shmnd_bell) == 128, "lines two apart; ABI of the bell");
_Static_assert(sizeof(struct shmnd_marks) == 640, "lines two apart; ABI of the marks");

/* ---- the token table: the memory that peers may access --------------------- */

/* Segment numbers: data segments from 0 on, never reused; then marks; then, read-only for peers,
 * tables and bells. The n-th marks segment has the marks of the n-th bell segment. */
#define SHMND_FIRST_MARKS_SEGMENT (1u << 29)
#define SHMND_FIRST_TABLE_SEGMENT (1u << 30)
#define SHMND_FIRST_BELL_SEGMENT (3u << 29)

#define SHMND_TOKEN_INDEX_BITS 18u
#define SHMND_TOKEN_INDEX_MASK ((1u << SHMND_TOKEN_INDEX_BITS) - 1)
#define SHMND_TABLE_ENTRIES 4096u /* per segment */
#define SHMND_TABLE_SEGMENTS ((1u << SHMND_TOKEN_INDEX_BITS) / SHMND_TABLE_ENTRIES)

#define SHMND_ALLOW_READ 0x08u
#define SHMND_ALLOW_WRITE 0x10u

/* Written by the owner of the memory; peers map it read-only. Valid while `token` equals the token
 * presented. Every use of an entry has a new token, so a reader that finds the same token before
 * and after its reads has read one version. */
struct shmnd_grant {
    shmnd_word32 token;  /* 0: no access granted */
    shmnd_word32 rights; /* SHMND_ALLOW_* */
    shmnd_word64 base;   /* address in the owner's process */
    shmnd_word64 length;
    shmnd_word64 offset; /* in the segment */
    shmnd_word32 segment;
    uint32_t reserved;
    shmnd_word64 connection; /* the connection that a window is bound to, or 0 */
    uint64_t reserved2[2];
};

_Static_assert(sizeof(struct shmnd_grant) == 64, "one cache line");

/* ---- counters: statistics of an adapter, for other processes to read --------- */

#define SHMND_COUNTERS_MAGIC 0x796c6174646e6d73ull /* "smndtaly" */
/* Segment numbers from here on are for tools; peers do not receive them. */
#define SHMND_FIRST_COUNTER_SEGMENT (1u << 31)

/* The counters of one queue pair. Written only by the process that owns it, which never reads them
 * back for a decision; all other processes map them read-only. They count from the beginning of
 * the current connection or connection attempt. */
struct shmnd_counters {
    /* line 0: messages and requests. */
    shmnd_word64 sent; /* messages, including recalled ones */
    shmnd_word64 sent_bytes;
    shmnd_word64 taken; /* messages matched to a receive, and recalled ones */
    shmnd_word64 received_bytes;
    shmnd_word64 posted;      /* receives, including those outstanding when it connected */
    shmnd_word64 unfilled;    /* receives that ended without a message */
    shmnd_word64 outstanding; /* initiator requests now */
    shmnd_word64 waiting_ns; /* since when the oldest of them waits for a receive; 0: not waiting */
    /* line 1: rarer events. */
    shmnd_word64 reads;
    shmnd_word64 read_bytes;
    shmnd_word64 writes;
    shmnd_word64 written_bytes;
    shmnd_word64 recalled; /* messages that this side sent and recalled */
    shmnd_word64 skipped;  /* messages that the peer sent and recalled */
    shmnd_word64 failures; /* requests that ended with another status than ND_SUCCESS */
    shmnd_word64 status;   /* of the last such request */
    /* lines 2 and 3: identity. */
    shmnd_word64 name;          /* 0: free; a new one for each use and each attempt to connect */
    shmnd_word64 state;         /* enum shmnd_qp_state */
    shmnd_word64 role;          /* enum shmnd_counters_role */
    shmnd_word64 connection;    /* as in the link's header: the same number at both ends */
    shmnd_word64 since_ns;      /* of this use; wall clock */
    shmnd_word64 receive_depth; /* SHMND_COUNTERS_SHARED with a shared receive queue */
    shmnd_word64 initiator_depth;
    shmnd_word64 peer_pid;
    shmnd_word64 local[3]; /* address: two words of IP, then family << 16 | port */
    shmnd_word64 remote[3];
    shmnd_word64 reserved[2];
};

#define SHMND_COUNTERS_SHARED (1ull << 32)

enum shmnd_counters_role {
    SHMND_COUNTERS_ALONE = 0, /* not connected yet */
    SHMND_COUNTERS_ACTIVE,
    SHMND_COUNTERS_PASSIVE,
};

/* The first words of a counter segment. Line 1 is maintained in an adapter's first segment only. */
struct shmnd_counters_head {
    /* line 0: written before any other process can map it. */
    uint64_t magic;
    uint64_t uid[2]; /* of the adapter */
    uint64_t pid;    /* in the PID namespace of the process */
    uint64_t since_ns;
    uint64_t entries;
    uint64_t number;      /* of the segment, from 0 */
    shmnd_word32 version; /* stored last */
    uint32_t pad0;
    /* line 1: the adapter. */
    shmnd_word64 regions;
    shmnd_word64 region_bytes;
    shmnd_word64 sleepers;    /* threads that sleep in CompletionQueue.wait */
    shmnd_word64 sleeping_ns; /* when the last of them began or ended its sleep */
    shmnd_word64 notifies;    /* completion queues that are armed by Notify */
    shmnd_word64 pad1[3];
    /* lines 2 and 3: a number for the place where the processes of its namespace meet; written
     * with line 0. */
    uint64_t place;
    shmnd_word64 pad2[15];
};

_Static_assert(offsetof(struct shmnd_counters, reads) == 64, "line 1");
_Static_assert(offsetof(struct shmnd_counters, name) == 128, "line 2");
_Static_assert(sizeof(struct shmnd_counters) == 256, "ABI of the counters");
_Static_assert(offsetof(struct shmnd_counters_head, regions) == 64, "line 1");
_Static_assert(sizeof(struct shmnd_counters_head) == 256, "ABI of the counters");

#endif
