/* SPDX-License-Identifier: Apache-2.0
 *
 * The private state of the data plane's objects. Nothing here is shared with
 * another process; the pointers into shared memory are named in `struct
 * shmnd_link_end`.
 *
 * Threads. All functions on a queue pair or completion queue are called by one
 * thread at a time (under the interpreter's lock), except shmnd_tx_run() and
 * shmnd_rx_run(), which copy much and run without it: `tx_busy` and `rx_busy`
 * stand for them, and every other function leaves what they guard alone.
 *
 * A run copies a piece of a long job at most (SHMND_PIECE in access.h). The rest stays
 * prepared (`tx_busy` without `tx_started`, or a kind of `rx_job`), and the next poll of the
 * queue pair runs it; between two runs nothing is touched and no hazard word stands.
 *
 * Memory is the caller's: no function allocates. A completion queue's ring has
 * room for all that the queue pairs on it can still complete, so no completion
 * is ever lost for want of room (invariant 5; the argument is in completion_queue.h).
 */
#ifndef SHMND_ENGINE_OBJECTS_H
#define SHMND_ENGINE_OBJECTS_H

#include "wire/bell.h"
#include "wire/link_map.h"
#include "wire/slots.h"
#include "wire/scattered_copy.h"
#include "engine/counters.h"
#include "wire/tokens.h"
#include "wire/process_memory.h"

/* ---- statuses (the numbers of the interface) ---------------------------------- */

enum shmnd_status {
    SHMND_SUCCESS = 0x00000000,
    SHMND_PENDING = 0x00000103,
};
#define SHMND_BUFFER_OVERFLOW 0x80000005u
#define SHMND_NO_MORE_ENTRIES 0x8000001Au
#define SHMND_ACCESS_VIOLATION 0xC0000005u
#define SHMND_INVALID_DEVICE_REQUEST 0xC0000010u
#define SHMND_DATA_OVERRUN 0xC000003Cu
#define SHMND_IO_TIMEOUT 0xC00000B5u
#define SHMND_INTERNAL_ERROR 0xC00000E5u
#define SHMND_INVALID_PARAMETER_4 0xC00000F2u
#define SHMND_INVALID_PARAMETER_6 0xC00000F4u
#define SHMND_CANCELED 0xC0000120u
#define SHMND_REMOTE_ERROR 0xC000013Du
#define SHMND_CONNECTION_INVALID 0xC000023Au

enum shmnd_op_flag {
    SHMND_OP_SILENT_SUCCESS = 0x01,
    SHMND_OP_READ_FENCE = 0x02,
    SHMND_OP_SOLICIT = 0x04,
    SHMND_OP_INLINE = 0x20,
    SHMND_OP_INVALIDATE = 0x40, /* of ours: a Send that carries `remote_token` */

    /* What each request may have. */
    SHMND_READ_FLAGS = SHMND_OP_SILENT_SUCCESS | SHMND_OP_READ_FENCE,
    SHMND_WRITE_FLAGS = SHMND_READ_FLAGS | SHMND_OP_INLINE,
    SHMND_SEND_FLAGS = SHMND_WRITE_FLAGS | SHMND_OP_SOLICIT,
    SHMND_INVALIDATE_FLAGS = SHMND_READ_FLAGS,
    SHMND_BIND_FLAGS = SHMND_READ_FLAGS | SHMND_ALLOW_READ | SHMND_ALLOW_WRITE,
};

enum shmnd_request {
    SHMND_RECEIVE = 0,
    SHMND_SEND,
    SHMND_BIND,
    SHMND_INVALIDATE,
    SHMND_READ,
    SHMND_WRITE,
};

/* ---- completions --------------------------------------------------------------- */

enum shmnd_cqe_flag {
    SHMND_CQE_SOLICITED = 1, /* satisfies a SOLICITED notify */
};

struct shmnd_cqe {
    void *context;
    void *qp_context;
    uint32_t status;
    uint32_t bytes;
    uint32_t type;
    uint32_t flags;
};

struct shmnd_qp;

#define SHMND_HOT_LINKS 4u
/* Polling each link beats the bitmap up to about here. */
#define SHMND_DIRECT_LINKS 4u

struct shmnd_cq {
    struct shmnd_cqe *ring;
    uint64_t mask;
    uint64_t write_pos;
    uint64_t read_pos;
    uint64_t limit;         /* requests stop completing here, and no message is taken any more */
    uint64_t bound;         /* order and flushes may go on; beyond, no post is accepted */
    uint64_t triggered_pos; /* entries before it have woken somebody already */
    struct shmnd_arming arming;
    struct shmnd_qp **links; /* connected queue pairs, polled by this queue */
    uint32_t link_count;
    struct shmnd_qp **active; /* those that want every poll: waiting requests, going down */
    uint32_t active_count;
    uint32_t active_turn;    /* where the next poll begins with them */
    uint32_t parked_count;   /* those whose requests wait for the peer, which marks them */
    uint32_t unsettled;      /* both together */
    uint64_t parked_look_ns; /* when those were last tended though no mark came */
    struct shmnd_qp **by_bit;
    struct shmnd_qp *hot[SHMND_HOT_LINKS]; /* polled although the bitmap is in use */
    uint32_t hot_next;
    uint32_t turn;      /* where the next poll begins with the links, or the hot ones */
    uint32_t bit_words; /* words of the bitmap in use */
    uint32_t polls;     /* since the last sweep */
};

/* ---- what a queue pair knows of the other side ---------------------------------- */

struct shmnd_mapping {
    uint8_t *base;
    uint64_t bytes;
    bool read_only; /* sealed against writing by us: a store would end this process */
};

struct shmnd_peer {
    struct shmnd_mapping *data;
    uint32_t data_count;
    struct shmnd_mapping tables[SHMND_TABLE_SEGMENTS];
    int doorbell;
    struct shmnd_process process;
    bool vm; /* its private memory was reached by a real copy */
    bool dead;
    uint32_t unmapped; /* segments given up so far: what was aimed before is aimed anew */
};

/* The two sides of a link as seen from one end. */
struct shmnd_link_end {
    struct shmnd_side *mine;
    struct shmnd_side *theirs;
    uint8_t *my_posted; /* receives published by this end */
    uint32_t my_posted_mask, my_posted_stride, my_extents;
    const uint8_t *their_posted;
    uint32_t their_posted_mask, their_posted_stride, their_extents;
    uint8_t *my_listed; /* Sends listed by this end */
    uint32_t my_listed_mask, my_listed_stride;
    uint8_t *their_listed; /* of which words are swapped, and nothing else is written */
    uint32_t their_listed_mask, their_listed_stride, their_elements;
    const struct shmnd_bell *receive_bell; /* of the peer's queues; NULL until attached */
    const struct shmnd_bell *initiator_bell;
    struct shmnd_marks *receive_marks, *initiator_marks;
    uint32_t receive_bit, initiator_bit;
    uint64_t receive_rung, initiator_rung;
    uint64_t connection;
    bool their_srq;
};

/* ---- requests -------------------------------------------------------------------- */

enum shmnd_wqe_state {
    SHMND_WQE_QUEUED = 0,
    SHMND_WQE_SENT, /* a Send that waits for the other side */
    SHMND_WQE_DONE,
};

struct shmnd_wqe {
    void *context; /* NULL once a completion carries it */
    uint64_t length;
    uint64_t message; /* its number, once issued */
    uint64_t moved;   /* bytes of it already sent in parts */
    uint64_t remote_address;
    uint64_t since_ns; /* waiting for a receive since; 0: not waiting */
    uint64_t listing;  /* the word of its entry in the backlog as it was listed; 0: it is not */
    uint32_t withheld; /* chunks of a large one that nobody will copy */
    uint32_t remote_token;
    uint32_t status;
    uint16_t sges;
    uint8_t type;
    uint8_t flags;
    uint8_t state;
    uint8_t share; /* of a large message */
    bool large;
    bool proven;       /* a receive that holds it was posted */
    bool sure;         /* and the other side, should it close, still takes it */
    bool pushed;       /* no chunk of it was left to claim */
    bool pulled;       /* its reader has it from the backlog */
    bool told;         /* it completed while its copy had still to return */
    bool cut;          /* of one in parts: the last was taken back, and stays in the way */
    uint64_t slot_pos; /* where its message begins in the ring; its last part, if in parts */
    uint64_t recalled; /* messages recalled before it: they met no receive */
};

struct shmnd_rqe {
    void *context;
    uint64_t capacity;
    uint32_t sges;
    bool pinned; /* published for pushing: its regions count it in `posted` */
};

/* A receive queue: of one queue pair, or shared by several. */
struct shmnd_receives {
    struct shmnd_rqe *entries;
    struct shmnd_sge *sges; /* `stride` a receive */
    uint32_t mask, depth, stride;
    uint64_t posted;
    uint64_t matched;
    bool starved; /* a message has waited for one since the last post */
};

/* A copy that is prepared under the lock and run without it. */
enum shmnd_job_kind {
    SHMND_JOB_NONE = 0,
    SHMND_JOB_RDMA,
    SHMND_JOB_PLACE,
    SHMND_JOB_CHUNKS,
    SHMND_JOB_PULL, /* a listed message, by its reader */
};

struct shmnd_job {
    enum shmnd_job_kind kind;
    struct shmnd_spans to, from;
    const struct shmnd_grant *grant; /* RDMA */
    uint32_t token;
    uint64_t revision; /* PLACE and sender's CHUNKS: of the receives it relies on */
    uint64_t index;    /* PLACE: the receive */
    bool sure;         /* PLACE: once it is shown it is not taken back */
    uint64_t request;  /* of the sender: which it is of */
    uint32_t unmapped; /* as the peer said when this was aimed */
    uint64_t moved;    /* RDMA, PLACE, PULL: bytes copied so far */
    uint64_t piece;    /* bytes that the last run copied */
    struct shmnd_chunks chunks;
    struct shmnd_share *share; /* of the chunks */
    uint32_t result;           /* a status; SHMND_PENDING: try again later */
};

/* What is left to do after a step. */
enum shmnd_progress {
    SHMND_IDLE = 0,  /* nothing here now */
    SHMND_RUN,       /* a job is prepared: call shmnd_tx_run() or shmnd_rx_run() */
    SHMND_NEEDS_MAP, /* a segment of the peer must be mapped first */
};

enum shmnd_qp_state {
    SHMND_QP_IDLE = 0,
    SHMND_QP_CONNECTING,
    SHMND_QP_ATTACHED,
    SHMND_QP_CONNECTED,
    SHMND_QP_DOWN,
    SHMND_QP_CLOSED,
};

struct shmnd_qp {
    /* identity */
    void *owner; /* the Python object, borrowed */
    void *context;
    struct shmnd_registry *registry;
    struct shmnd_cq *receive_cq, *initiator_cq;
    struct shmnd_peer *peer;
    struct shmnd_counters *counters; /* what others may read of it; written, never read back */
    struct shmnd_link_end link;
    uint64_t serial; /* a number for this connection that no other of this process ever had */
    enum shmnd_qp_state state;
    uint32_t receive_bit, initiator_bit; /* of ours, in our queues' bells */
    uint32_t max_transfer, inline_size, max_read_sge;
    uint32_t outbound_read_limit;
    uint32_t target_fault; /* how a Read or Write ends that its target does not grant */
    uint64_t rnr_ns;

    /* sending */
    struct shmnd_slots_writer out;
    uint64_t messages;      /* sent so far */
    uint64_t recalled;      /* of these, taken back */
    uint64_t credit;        /* messages that have a receive, by the last look */
    uint64_t below;         /* every receive in view up to `credit` holds less than this */
    uint64_t viewed;        /* published entries already checked */
    uint64_t seen_revision; /* of that view, and how many were cancelled in it */
    uint64_t seen_cancelled;
    struct shmnd_wqe *wqes;
    struct shmnd_sge *wqe_sges;
    uint8_t *wqe_inline; /* `inline_size` a request */
    uint32_t wq_mask, wq_depth, wq_stride;
    uint64_t wq_head, wq_next, wq_tail; /* oldest, first not issued, end */
    uint64_t wq_asked; /* the peer was asked to process the requests before this position */
    uint64_t wq_spent; /* before `wq_head`: from here on contexts are still to be given back */
    struct shmnd_qp *next_spent; /* in the registry's list, while `is_spent` */
    bool is_spent;
    struct shmnd_job tx_job;
    bool tx_busy;
    bool tx_started;    /* the prepared job is running; else the next poll runs it */
    uint64_t wq_unsure; /* an issued Send that invalidates may stand before this position */
    uint64_t wq_push;   /* large Sends before this position are not pushed any more */
    uint64_t wq_listed; /* requests from `wq_next` up to here are listed; perhaps not the first */
    uint32_t listed;    /* how many are */
    bool shows_listed;  /* and the other side knows that there are some */
    uint64_t listings;  /* so far */
    uint64_t larges;    /* announced so far, each with the next share */
    uint64_t share_message[SHMND_SHARES]; /* that used it last */

    /* a batch: what it holds back is written and not shown */
    bool batch;
    bool held, held_solicited; /* messages, from `held_message` on */
    bool held_receives;
    uint64_t held_pos, held_message;

    /* receiving */
    struct shmnd_slots_reader in;
    uint64_t taken;
    struct shmnd_receives own;
    struct shmnd_receives *receives; /* &own, or the shared queue's */
    bool shared;
    struct shmnd_job rx_job;
    bool rx_busy;
    bool rx_stalled;           /* a message waits for a receive, or for room in the queue */
    bool rx_open;              /* a message is matched and not finished */
    bool rx_needs_segment;     /* of the peer, to read it */
    bool rx_fault;             /* it broke a rule: go down */
    uint32_t rx_refused;       /* the status of its receive, told on the way down; 0: none */
    bool rx_unbinding;         /* it is whole, and its window's last access is waited for */
    bool rx_told;              /* `rx_extra` comes next */
    uint8_t rx_kind, rx_flags; /* of that message */
    uint32_t rx_token;         /* that it names */
    bool rx_lists;             /* the other side lists Sends */
    uint64_t rx_listing;       /* word of the listing that is considered, or taken */
    uint64_t rx_got;           /* bytes of it so far, for one in parts */
    struct shmnd_cqe rx_extra; /* what its window's owner is told */
    uint64_t posted_base;      /* position of the receive that is published as entry 0 */
    struct shmnd_rqe rx_rqe;   /* its receive */
    struct shmnd_sge rx_sges[SHMND_MAX_SGE];
    struct shmnd_spans rx_to;
    struct shmnd_extent rx_extents[SHMND_MAX_SGE]; /* of a large message, as they were read once */
    uint32_t rx_extent_count;

    /* going down, flushing */
    uint32_t down_status;             /* for the oldest initiator request */
    enum shmnd_link_state down_state; /* what the other side will read */
    bool going_down;                  /* not yet flushed */
    uint64_t down_since_ns;           /* 0: not begun */
    uint64_t held_up_ns; /* a Flush or Invalidate waits for a copy over there since; 0: none */
    uint64_t drain_end;  /* slots from here on came later than the end */
    bool flush_pending;
    uint64_t flush_receives; /* cancel up to this receive */
    uint64_t cancelled;      /* receives cancelled by a Flush so far */
    uint64_t revision;       /* as published */

    /* membership in the queues */
    bool active_at_receive, active_at_initiator;
    bool parked; /* at the one queue of both halves; not active there then */
};

#endif
