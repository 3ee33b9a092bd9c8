/* SPDX-License-Identifier: Apache-2.0
 *
 * Every byte that processes share: what lies where, and who writes it.
 *
 * No pointer stands here, only offsets and positions. Positions are 64-bit
 * counts that only grow; they are masked at the access to a slot and nowhere
 * else. Lines written by different processes lie two cache lines apart, for
 * the prefetcher fetches in pairs.
 */
#ifndef SHMND_WIRE_LAYOUT_H
#define SHMND_WIRE_LAYOUT_H

#include "wire/atomics.h"
#include "wire/kill_point.h"

#define SHMND_LAYOUT_VERSION 6u
#define SHMND_LINK_MAGIC 0x6b6e696c646e6d73ull /* "smndlink" */

/* ---- the slot ring: one per direction of a link ------------------------- */

#define SHMND_SLOT_BYTES 64u
#define SHMND_HEAD_PAYLOAD 48u
#define SHMND_TAIL_PAYLOAD 56u
/* Both ends compute how many slots a ring has (shmnd_ring_slots): usually so many, fewer where few
 * messages can be on their way, and more where more can have a receive posted for them. */
#define SHMND_RING_USUAL 256u
#define SHMND_RING_LEAST 32u

/* Bytes of a message that takes so many slots. */
#define SHMND_SLOTS_HOLD(slots) (SHMND_HEAD_PAYLOAD + ((slots) - 1u) * SHMND_TAIL_PAYLOAD)
/* A message that fits in a quarter of the ring can always be written in full
 * once the reader, who returns space a quarter at a time, has caught up. */
#define SHMND_EAGER_MAX (SHMND_HEAD_PAYLOAD + 63u * SHMND_TAIL_PAYLOAD)
/* One that fits in three quarters is written when there is room, and not waited for. */
#define SHMND_EAGER_LONGEST (SHMND_HEAD_PAYLOAD + 191u * SHMND_TAIL_PAYLOAD)

_Static_assert(SHMND_EAGER_MAX == SHMND_SLOTS_HOLD(SHMND_RING_USUAL / 4), "a quarter");
_Static_assert(SHMND_EAGER_LONGEST == SHMND_SLOTS_HOLD(SHMND_RING_USUAL / 4 * 3), "the rest");

enum shmnd_kind {
    SHMND_KIND_EAGER = 1, /* payload in the slots */
    SHMND_KIND_PLACED,    /* already in the memory of the receive it names */
    SHMND_KIND_LARGE,     /* extents of the source; copied by whoever claims a chunk */
    SHMND_KIND_PART,      /* a piece of a message that neither side can reach at the other's */
    SHMND_KIND_LISTED,    /* in no slot: its reader found it in the backlog */
};

enum shmnd_slot_flag {
    SHMND_SLOT_SOLICITED = 1,  /* SEND_AND_SOLICIT_EVENT */
    SHMND_SLOT_ACK = 2,        /* its sender waits for `taken`: wake it */
    SHMND_SLOT_LAST = 4,       /* of a message in parts */
    SHMND_SLOT_INVALIDATE = 8, /* its payload begins with the token of a window at the reader's */
};

/* Of a message with SHMND_SLOT_ACK, one of the two wins: its reader, who has a
 * receive for it, or its sender, who takes it back. */
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

/* The further slots of a message. `ready_pos` is 0, which no reader waits for:
 * payload left from an earlier lap can never look like a published message. */
struct shmnd_tail_slot {
    shmnd_word64 ready_pos;
    uint8_t payload[SHMND_TAIL_PAYLOAD];
};

_Static_assert(sizeof(struct shmnd_slot) == SHMND_SLOT_BYTES, "one cache line");
_Static_assert(sizeof(struct shmnd_tail_slot) == SHMND_SLOT_BYTES, "one cache line");
_Static_assert(offsetof(struct shmnd_slot, payload) == 16, "48 bytes of payload");

/* ---- posted receives, published for a sender that pushes ----------------- */

#define SHMND_PRIVATE_MEMORY 0xffffffffu /* `segment` of memory outside every segment */

/* A stretch of memory as the other side may reach it. In shared memory it is
 * kept as two words, since a Flush may reuse an entry that a sender is reading
 * (it then finds `revision` changed and forgets what it read). */
struct shmnd_extent {
    uint64_t offset; /* in the segment, or the address in private memory */
    uint32_t segment;
    uint32_t length;
};

struct shmnd_shared_extent {
    shmnd_word64 offset;
    shmnd_word64 place; /* segment << 32 | length */
};

/* Followed by the extents; the stride is fixed when the link is made. An entry is
 * used again once its receive was met, perhaps under the eyes of a sender: the
 * number in `capacity` is written first, so one who finds it the same before and
 * after has read one receive. */
struct shmnd_posted {
    /* low half of the receive's number + 1 << 32 | bytes it holds + 1, or 0 when its owner will
     * refuse any message */
    shmnd_word64 capacity;
    shmnd_word64 extents; /* 0: not for pushing, its owner pulls */
};

_Static_assert(sizeof(struct shmnd_extent) == 16, "ABI of a large message");
_Static_assert(sizeof(struct shmnd_shared_extent) == 16, "ABI of the link");
_Static_assert(sizeof(struct shmnd_posted) == 16, "ABI of the link");

/* ---- Sends that wait, listed for a reader that comes first (backlog.h) ------------ */

/* The lowest bits of `word`. */
enum shmnd_listed_state {
    SHMND_LISTED_NOT = 0, /* free, or its sender has it back */
    SHMND_LISTED_OPEN,    /* the side that swaps the word first carries the Send out */
    SHMND_LISTED_TAKEN,   /* by the reader, who copies nothing of it at this moment */
    SHMND_LISTED_COPYING, /* by the reader, who is copying a piece of it */
    SHMND_LISTED_DONE,    /* by the reader, who has all of it */
    SHMND_LISTED_CUT,     /* its sender ends the connection: no further piece */
    SHMND_LISTED_MASK = 7,
};

/* Followed by the extents of its source; the stride is fixed when the link is made. The entry of
 * message k is that of k masked. Its sender writes it but for `word`, which the reader swaps. */
struct shmnd_listed {
    shmnd_word64 word; /* number of the listing << 3 | enum shmnd_listed_state */
    shmnd_word64
        shape; /* token << 32 | low bits of k << 16 | enum shmnd_slot_flag << 8 | extents */
};

_Static_assert(sizeof(struct shmnd_listed) == 16, "ABI of the link");

/* ---- one side of a link: written by the process of that side ------------- */

enum shmnd_link_state {
    SHMND_LINK_ATTACHED = 0,
    SHMND_LINK_OPEN,
    SHMND_LINK_REJECTED,
    SHMND_LINK_CLOSED,
    SHMND_LINK_FAULT,
    SHMND_LINK_DEAD, /* never stored: how a dead process's side is read */
    /* Besides, while the connection lives: Sends of this side are listed. */
    SHMND_LINK_LISTS = 1 << 8,
};

/* The chunks of one large message. */
struct shmnd_share {
    /* Low half of the message number << 32 | chunks claimed from the back << 16 | from the front. */
    shmnd_word64 claim;
    shmnd_word64 done; /* how many chunks are copied */
};

#define SHMND_SHARES 8u

struct shmnd_side {
    /* line 0: quiet. The other side reads it with every message. */
    shmnd_word32 state;        /* enum shmnd_link_state, with SHMND_LINK_LISTS */
    shmnd_word32 closing;      /* set before the last look at the ring */
    shmnd_word32 wants_credit; /* a request here waits for a receive or for ring space */
    shmnd_word32 fault;        /* why the first untaken message failed: a status, or 0 */
    shmnd_word32 reaches;      /* 1: this process can read and write the other's private memory */
    shmnd_word32 opened;       /* it was OPEN once, whatever `state` says now */
    shmnd_word64 cancelled;    /* posted receives that were cancelled before a message met them */
    shmnd_word64 revision;     /* of the posted receives: odd while a Flush decides */
    uint8_t pad0[88];
    /* line 2: what this side, as a reader, has given back. */
    shmnd_word64 read_pos; /* ring positions whose slots may be written again */
    shmnd_word64 taken;    /* messages matched to a receive */
    uint8_t pad1[112];
    /* line 4: receives posted here. */
    shmnd_word64 posted; /* entries ever published */
    uint8_t pad2[120];
    /* line 6: what this side's engine touches at the other right now. */
    shmnd_word64 hazard; /* 0, a token, or SHMND_HAZARD_PUSH */
    uint8_t pad3[120];
    /* line 8: the large messages this side has announced and the other has not
     * yet taken; both sides claim chunks of them. */
    struct shmnd_share shares[SHMND_SHARES];
};

#define SHMND_HAZARD_PUSH (1ull << 32)

_Static_assert(offsetof(struct shmnd_side, read_pos) == 128, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, posted) == 256, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, hazard) == 384, "lines two apart");
_Static_assert(offsetof(struct shmnd_side, shares) == 512, "lines two apart");
_Static_assert(sizeof(struct shmnd_side) == 640, "ABI of the link");

/* ---- the link segment ---------------------------------------------------- */

/* The description that each end has of the other one: of the active side, and of the passive one. */
struct shmnd_link_shape {
    uint32_t receives[2]; /* published entries */
    uint32_t extents[2];  /* per entry */
    uint32_t requests[2]; /* of the initiator queue, and so listed entries */
    uint32_t elements[2]; /* per entry */
    uint32_t slots[2];    /* of the ring that it writes: shmnd_ring_slots() */
};

/* Written by the passive side, which creates the segment, before the active
 * side can map it. Both ends were told the same numbers at rendezvous and use
 * those; the header is only compared with them. */
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

/* ---- the bell of a completion queue: how producers reach its owner -------- */

#define SHMND_READY_WORDS 64u
#define SHMND_READY_BITS (SHMND_READY_WORDS * 64u)

enum shmnd_armed {
    SHMND_ARMED_NOT = 0,
    SHMND_ARMED_ANY = 1,
    SHMND_ARMED_SOLICITED = 2,
    SHMND_ARMED_ASKED = 3, /* its owner sleeps for another event: rung by shmnd_bell_ask() alone */
    SHMND_ARMED_MASK = 3,
};

/* In a segment of the consumer's adapter, which peers hold read-only, so that none of them can
 * have the others leave it in its sleep. Written by the consumer, read by producers after each
 * message. */
struct shmnd_bell {
    shmnd_word64 armed;      /* arming number << 2 | enum shmnd_armed */
    shmnd_word32 use_bitmap; /* too many links to poll each: producers set a bit */
    uint8_t pad[116];
};

/* In another one, which peers write. Set by producers, taken by the consumer. */
struct shmnd_marks {
    shmnd_word64 ready[SHMND_READY_WORDS];
    shmnd_word32 asked; /* a message waits for its reader, who may be polling elsewhere */
    uint8_t pad[124];
};

_Static_assert(sizeof(struct shmnd_bell) == 128, "lines two apart; ABI of the bell");
_Static_assert(sizeof(struct shmnd_marks) == 640, "lines two apart; ABI of the marks");

/* ---- the token table: what peers may touch -------------------------------- */

/* Numbers of segments: data from 0 on, never reused; then marks; and, read-only for peers,
 * tables, then bells. The bells of the n-th segment have their marks in the n-th of those. */
#define SHMND_FIRST_MARKS_SEGMENT (1u << 29)
#define SHMND_FIRST_TABLE_SEGMENT (1u << 30)
#define SHMND_FIRST_BELL_SEGMENT (3u << 29)

#define SHMND_TOKEN_INDEX_BITS 18u
#define SHMND_TOKEN_INDEX_MASK ((1u << SHMND_TOKEN_INDEX_BITS) - 1)
#define SHMND_TABLE_ENTRIES 4096u /* per segment */
#define SHMND_TABLE_SEGMENTS ((1u << SHMND_TOKEN_INDEX_BITS) / SHMND_TABLE_ENTRIES)

#define SHMND_ALLOW_READ 0x08u
#define SHMND_ALLOW_WRITE 0x10u

/* Written by the owner of the memory; peers hold it read-only. Valid while
 * `token` equals the token presented; every use has a new token, so a reader
 * that sees the same token before and after its reads has read one version. */
struct shmnd_grant {
    shmnd_word32 token;  /* 0: nothing granted */
    shmnd_word32 rights; /* SHMND_ALLOW_* */
    shmnd_word64 base;   /* address in the owner's process */
    shmnd_word64 length;
    shmnd_word64 offset; /* in the segment */
    shmnd_word32 segment;
    uint32_t reserved;
    shmnd_word64 connection; /* the one connection a window is bound to, or 0 */
    uint64_t reserved2[2];
};

_Static_assert(sizeof(struct shmnd_grant) == 64, "one cache line");

/* ---- counters: what an adapter tells of itself to whoever may look ---------- */

#define SHMND_COUNTERS_MAGIC 0x796c6174646e6d73ull /* "smndtaly" */
/* Numbers of segments from here on are for tools; peers are not told of them. */
#define SHMND_FIRST_COUNTER_SEGMENT (1u << 31)

/* One queue pair. Written by the process that it is of, and by nobody else: it is
 * never read back for any decision, and everybody else maps it read-only. Counts are
 * of this connection, or of this attempt at one. */
struct shmnd_counters {
    /* line 0: messages and requests. */
    shmnd_word64 sent; /* messages, with those that were taken back */
    shmnd_word64 sent_bytes;
    shmnd_word64 taken; /* messages that met a receive, with those that were taken back */
    shmnd_word64 received_bytes;
    shmnd_word64 posted;      /* receives, from those on that were there when it connected */
    shmnd_word64 unfilled;    /* of these, those that ended without a message */
    shmnd_word64 outstanding; /* initiator requests now */
    shmnd_word64 waiting_ns; /* since then the oldest of them waits for a receive; 0: it does not */
    /* line 1: what is rarer. */
    shmnd_word64 reads;
    shmnd_word64 read_bytes;
    shmnd_word64 writes;
    shmnd_word64 written_bytes;
    shmnd_word64 recalled; /* messages of ours that were taken back */
    shmnd_word64 skipped;  /* messages of the peer's that were taken back */
    shmnd_word64 failures; /* requests that ended otherwise than with ND_SUCCESS */
    shmnd_word64 status;   /* of the last such */
    /* lines 2 and 3: who it is. */
    shmnd_word64 name;          /* 0: free; another one for each use and each attempt to connect */
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

/* The first words of a segment of counters. Only those of an adapter's first are kept. */
struct shmnd_counters_head {
    /* line 0: written before anybody can map it. */
    uint64_t magic;
    uint64_t uid[2]; /* of the adapter */
    uint64_t pid;    /* as its process knows itself */
    uint64_t since_ns;
    uint64_t entries;
    uint64_t number;      /* of the segment, from 0 */
    shmnd_word32 version; /* stored last */
    uint32_t pad0;
    /* line 1: the adapter. */
    shmnd_word64 regions;
    shmnd_word64 region_bytes;
    shmnd_word64 sleepers;    /* threads that sleep in CompletionQueue.wait */
    shmnd_word64 sleeping_ns; /* since when the last of them does */
    shmnd_word64 notifies;    /* completion queues that are armed by Notify */
    shmnd_word64 pad1[3];
    /* lines 2 and 3: where its processes meet, as a number; written with line 0. */
    uint64_t place;
    shmnd_word64 pad2[15];
};

_Static_assert(offsetof(struct shmnd_counters, reads) == 64, "line 1");
_Static_assert(offsetof(struct shmnd_counters, name) == 128, "line 2");
_Static_assert(sizeof(struct shmnd_counters) == 256, "ABI of the counters");
_Static_assert(offsetof(struct shmnd_counters_head, regions) == 64, "line 1");
_Static_assert(sizeof(struct shmnd_counters_head) == 256, "ABI of the counters");

#endif
