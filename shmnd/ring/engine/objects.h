/* SPDX-License-Identifier: Apache-2.0
 *
 * The private state of the data plane's objects. Nothing here is shared with another
 * process; `struct shmnd_link_end` holds the pointers into shared memory.
 *
 * Threads. All functions on a queue pair or completion queue are called by one thread
 * at a time (under the interpreter's lock), except shmnd_tx_run() and shmnd_rx_run(),
 * which make long copies without it. `tx.busy` and `rx.busy` are set while such a copy
 * is prepared or running, and no other function changes the state that they guard.
 *
 * A run copies at most one piece of a long job (SHMND_PIECE). The rest stays
 * prepared (`tx.busy` without `tx.started`, or a kind in `rx.job`), and the next poll of
 * the queue pair runs it. Between two runs the job accesses no memory and sets no hazard
 * word.
 *
 * Memory belongs to the caller: no function allocates. The ring of a completion queue has
 * room for all completions that its queue pairs can still produce, so none is ever lost
 * (invariant 5; the argument is in completion_queue.h).
 */
#ifndef SHMND_ENGINE_OBJECTS_H
#define SHMND_ENGINE_OBJECTS_H

#include "wire/bell.h"
#include "wire/link_map.h"
#include "wire/slots.h"
#include "wire/scattered_copy.h"
#include "engine/copy_way.h"
#include "engine/counters.h"
#include "engine/job.h"
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
    SHMND_OP_INVALIDATE = 0x40, /* internal: a Send that carries `remote_token` */

    /* The flags that each request type accepts. */
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

/* Why a request ended with CANCELED or IO_TIMEOUT: noted when it ends, for what happens before its
 * result is taken is not the reason. In `flags`, from bit SHMND_CQE_CAUSE_SHIFT on. */
enum shmnd_cause {
    SHMND_CAUSE_NONE = 0,
    SHMND_CAUSE_FLUSH,      /* a Flush */
    SHMND_CAUSE_HERE,       /* this side ended the connection, or an earlier request failed */
    SHMND_CAUSE_PEER,       /* the other side ended the connection */
    SHMND_CAUSE_DEATH,      /* its process died */
    SHMND_CAUSE_STALL,      /* it did not end a copy */
    SHMND_CAUSE_NO_RECEIVE, /* it posted no Receive in time */
};
#define SHMND_CQE_CAUSE_SHIFT 8

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
/* Up to about this number, polling each link is faster than the bitmap. */
#define SHMND_DIRECT_LINKS 4u
/* As a number of polls: all links are polled at the next one. */
#define SHMND_SWEEP_NOW (UINT32_MAX / 2)

struct shmnd_cq {
    struct shmnd_cqe *ring;
    uint64_t mask;
    uint64_t write_pos;
    uint64_t read_pos;
    /* With `limit` entries, no request completes and no message is taken. Order and a Flush may
     * complete requests up to `bound`; with more entries, no post is accepted. */
    uint64_t limit, bound;
    uint64_t triggered_pos; /* entries before it have satisfied a Notify already */
    struct shmnd_arming arming;
    struct shmnd_qp **links; /* connected queue pairs, polled by this queue */
    uint32_t link_count;
    uint32_t receiving_count; /* those of them that receive here */
    struct shmnd_qp **active; /* progressed at every poll: pending requests, teardown */
    uint32_t active_count;
    uint32_t active_turn;      /* the active queue pair with which the next poll begins */
    uint32_t parked_count;     /* queue pairs whose requests wait for the peer, which marks them */
    uint32_t unsettled;        /* active and parked queue pairs */
    uint64_t parked_polled_ns; /* when the parked ones were last progressed without a mark */
    struct shmnd_qp **by_bit;
    struct shmnd_qp *hot[SHMND_HOT_LINKS]; /* polled directly although the bitmap is in use */
    uint32_t hot_next;
    uint32_t turn;      /* the link, or hot link, with which the next poll begins */
    uint32_t bit_words; /* words of the bitmap in use */
    uint32_t polls;     /* since all links were last polled, or that was not due */
    uint64_t swept_ns;  /* when all links were last polled */
};

/* ---- the other side of a queue pair ---------------------------------------------- */

struct shmnd_mapping {
    uint8_t *base;
    uint64_t bytes;
    uint32_t segment; /* its number, of data */
    bool read_only;   /* sealed by its owner: a store would end this process */
};

struct shmnd_peer {
    struct shmnd_mapping *data; /* by segment number (segments.h); NULL without any */
    uint32_t data_mask;         /* places in `data` less one */
    uint32_t data_count;        /* of these in use, at most half */
    struct shmnd_mapping tables[SHMND_TABLE_SEGMENTS];
    int doorbell;
    struct shmnd_process process;
    bool vm; /* its private memory can be copied; a real copy was tried */
    bool dead;
    uint32_t unmapped; /* segments unmapped so far: addresses resolved before are resolved again */
};

/* The two sides of a link as seen from one end. */
struct shmnd_link_end {
    struct shmnd_side *mine;
    struct shmnd_side *theirs;
    uint8_t *my_posted; /* receives advertised by this end */
    uint32_t my_posted_mask, my_posted_stride, my_extents;
    const uint8_t *their_posted;
    uint32_t their_posted_mask, their_posted_stride, their_extents;
    uint8_t *my_listed; /* Sends listed by this end */
    uint32_t my_listed_mask, my_listed_stride;
    uint8_t *their_listed; /* this end only swaps `word` in them */
    uint32_t their_listed_mask, their_listed_stride, their_elements;
    const struct shmnd_bell *receive_bell; /* of the peer's queues; NULL until attached */
    const struct shmnd_bell *initiator_bell;
    struct shmnd_marks *receive_marks, *initiator_marks;
    uint32_t receive_bit, initiator_bit;
    uint64_t receive_rung, initiator_rung;
    uint64_t connection;
    uint8_t *my_bounce; /* SHMND_BOUNCE_BYTES each */
    const uint8_t *their_bounce;
    bool their_srq;
};

/* ---- requests -------------------------------------------------------------------- */

enum shmnd_wqe_state {
    SHMND_WQE_QUEUED = 0,
    SHMND_WQE_SENT, /* a Send that is sent and not complete */
    SHMND_WQE_DONE,
    SHMND_WQE_RECALLED, /* by the end of the connection, which decides its status */
};

struct shmnd_wqe {
    void *context; /* NULL once a completion carries it */
    uint64_t length;
    uint64_t message; /* its number, once issued */
    uint64_t moved;   /* bytes already sent in parts */
    uint64_t remote_address;
    uint64_t since_ns; /* since when it waits for a receive; 0: not waiting */
    uint64_t listing;  /* the word of its backlog entry when it was listed; 0: not listed */
    uint32_t withheld; /* chunks claimed without copying them, to stop the other side */
    uint32_t remote_token;
    uint32_t status;
    uint16_t sges;
    uint8_t type;
    uint8_t flags;
    uint8_t state;
    uint8_t share; /* of a large message: its index in `shares` */
    bool large;
    bool has_receive;  /* a receive that can hold it was posted for it */
    bool committed;    /* and the other side takes it even if it closes now */
    bool pulled;       /* the reader claimed it from the backlog */
    bool reported;     /* its completion was written while its copy was still running */
    bool cut;          /* of one in parts: the last part was recalled, and the reader stops there */
    uint64_t slot_pos; /* where its message begins in the ring; the last part, if in parts */
    uint64_t recalled; /* messages recalled before it, which matched no receive */
};

#define SHMND_BOUNCES 16u

/* The messages in the bounce area of this side that the peer has not taken, oldest first. */
struct shmnd_bounces {
    struct {
        uint64_t message;
        uint32_t begin, end;
    } used[SHMND_BOUNCES];
    uint64_t first, count; /* positions in `used`, masked: the oldest, and the next */
    uint32_t committed;    /* bytes at the beginning of the area whose pages are committed */
    uint32_t next;         /* where the last long message ended */
    bool refused;          /* the kernel had no memory for more */
};

struct shmnd_rqe {
    void *context;
    uint64_t capacity;
    uint32_t sges;
    bool pinned; /* advertised, and writable: its regions count it in `posted` */
};

/* A receive queue, of one queue pair or shared by several. */
struct shmnd_receives {
    struct shmnd_rqe *entries;
    struct shmnd_sge *sges; /* `stride` for each receive */
    uint32_t mask, depth, stride;
    uint64_t posted;
    uint64_t matched;
    bool starved; /* a message has waited for a receive since the last post */
};

/* What the caller must do after a step. */
enum shmnd_progress {
    SHMND_IDLE = 0,  /* nothing */
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

/* The receives of the peer, as this side saw them at its last check (send/match.h). */
struct shmnd_seen_receives {
    uint64_t credit;              /* messages of this side that have a receive */
    uint64_t below;               /* those receives hold messages shorter than this */
    uint64_t entries;             /* advertised entries already checked */
    uint64_t revision, cancelled; /* of the peer, then */
};

/* The requests of a queue pair, the oldest first. Positions count up; `mask` makes them indices. */
struct shmnd_requests {
    struct shmnd_wqe *entries;
    struct shmnd_sge *sges; /* `stride` for each request */
    uint8_t *inlined;       /* `inline_size` bytes for each request */
    uint32_t mask, depth, stride;
    uint64_t oldest, next, end; /* `next`: the first that is not issued */
    uint64_t poll_requested;    /* the peer was asked to poll for requests before this position, */
    uint64_t poll_issued;       /* when those before this one were issued */
    uint64_t released;    /* contexts of requests from here to `oldest` are still to be released */
    uint64_t held;        /* entries held for calls that have passed their checks (send/post.h) */
    uint64_t uncommitted; /* an issued Send with invalidation may precede this position */
    uint64_t push;        /* this side's half of large Sends before this position is claimed */
    uint64_t whole;       /* large Sends before this position are whole, or taken */
};

/* The copy of the request that is issued next, or pushed. */
struct shmnd_sending {
    struct shmnd_job job;
    bool busy;           /* the job is prepared or running */
    bool started;        /* it is running; otherwise the next poll runs it */
    bool again;          /* a half was copied: the next poll may find another one to copy */
    bool timed_out;      /* the oldest Send found no Receive in time */
    uint64_t taken_then; /* what the peer had taken when it was last waited for */
};

/* The Sends that wait for a receive and are listed for the peer (send/backlog.h). */
struct shmnd_listed_sends {
    uint64_t end;      /* requests from `wq.next` up to here are listed; the first may not be */
    uint32_t count;    /* of those */
    bool shown;        /* `state` has SHMND_LINK_LISTS */
    uint64_t listings; /* made so far */
};

/* The use of the shares of the link, by which both sides divide a large message. */
struct shmnd_used_shares {
    uint64_t count;                 /* large messages so far, each with the next share in turn */
    uint64_t message[SHMND_SHARES]; /* the last message that used it */
};

/* The message at the front of the ring or of the peer's backlog, or why it waits. */
struct shmnd_receiving {
    struct shmnd_job job;
    bool busy;              /* the job is running */
    bool stalled;           /* a message waits for a receive, or for room in the queue */
    bool open;              /* a message is matched and not finished */
    bool needs_segment;     /* a segment of the peer must be mapped to read it */
    bool fault;             /* it broke a rule: the connection must end */
    uint32_t refused;       /* the status of its receive, reported at teardown; 0: none */
    bool unbinding;         /* it is whole, and waits for the last access to its window */
    bool extra_ready;       /* `extra` is the next completion */
    uint8_t kind, flags;    /* of that message */
    const uint8_t *bounced; /* the payload of one of kind BOUNCED */
    uint32_t token;         /* of the window that it invalidates */
    bool lists;             /* the other side has listed Sends */
    uint64_t listing;       /* word of the listing that is being read, or was claimed */
    uint64_t got;           /* bytes received so far of a message in parts */
    struct shmnd_cqe extra; /* the completion for the owner of an invalidated window */
    struct shmnd_rqe rqe;   /* the receive of the open message */
    struct shmnd_sge sges[SHMND_MAX_SGE];
    struct shmnd_spans to;
    struct shmnd_extent extents[SHMND_MAX_SGE]; /* of a large message, read once */
    uint32_t extent_count;
};

/* A Flush that has begun and not ended. */
struct shmnd_flush {
    bool pending;
    uint64_t receives; /* it cancels the receives before this position */
};

/* A queue pair. Posts and polls change it under the lock. Without the lock, shmnd_tx_run() changes
 * `tx.job` and `out`, and shmnd_rx_run() changes `rx.job`: no other field. */
struct shmnd_qp {
    /* identity: set when it is made, or when it connects */
    void *owner; /* the Python object, borrowed */
    void *context;
    struct shmnd_registry *registry;
    struct shmnd_cq *receive_cq, *initiator_cq;
    struct shmnd_peer *peer;
    struct shmnd_counters *counters; /* for other processes; written here, never read back */
    struct shmnd_link_end link;
    uint64_t serial; /* a number of this connection, unique in this process */
    enum shmnd_qp_state state;
    uint32_t receive_bit, initiator_bit; /* in the bells of its own queues */
    uint32_t max_transfer, inline_size, max_read_sge;
    uint32_t outbound_read_limit;
    uint32_t target_fault; /* the status of a Read or Write that its target does not grant */
    uint64_t rnr_ns;

    /* sending */
    struct shmnd_slots_writer out;
    uint64_t messages; /* sent so far */
    uint64_t recalled; /* of these, recalled */
    struct shmnd_seen_receives seen;
    struct shmnd_requests wq;
    struct shmnd_qp *next_unreleased; /* in the registry's list, while `has_unreleased` */
    bool has_unreleased;
    uint32_t answered; /* in.read_pos when a message of several slots was published last */
    struct shmnd_sending tx;
    struct shmnd_listed_sends backlog;
    struct shmnd_bounces bounces;
    struct shmnd_ways ways; /* whether messages go there, or by the kernel */
    struct shmnd_used_shares shares;

    /* a batch: messages and receives that are written and not published */
    bool batch;
    bool deferred, deferred_solicited; /* messages, from `deferred_message` on */
    bool deferred_receives;
    uint64_t deferred_pos, deferred_message;
    uint64_t deferred_revision; /* of the receives that the first of them knew */

    /* receiving */
    struct shmnd_slots_reader in;
    uint64_t taken; /* messages matched to a receive so far */
    struct shmnd_receives own;
    struct shmnd_receives *receives; /* &own, or the shared queue's */
    bool shared;
    uint64_t posted_base; /* position of the receive that is advertised as entry 0 */
    uint64_t cancelled;   /* receives cancelled by a Flush so far */
    uint64_t revision;    /* the value in shared memory */
    struct shmnd_receiving rx;

    /* teardown and Flush */
    uint32_t down_status;             /* for the oldest initiator request */
    enum shmnd_link_state down_state; /* the state that the other side will read */
    bool going_down;                  /* teardown has begun and is not finished */
    enum shmnd_cause down_cause;      /* why it began */
    uint64_t down_since_ns;           /* since when it waits for the peer; 0: no step ran yet */
    uint64_t stalled_since_ns;        /* since when it waits for a copy of the peer; 0: no */
    uint64_t drain_end;               /* slots from here on were published after it began */
    struct shmnd_flush flush;

    /* membership in the queues */
    bool active_at_receive, active_at_initiator;
    bool parked; /* at the one queue of both halves, and not active there */
};

#endif
