/* SPDX-License-Identifier: Apache-2.0
 *
 * Matching: receives that wait for messages, and messages that wait for receives.
 *
 * For each context there is a queue of either kind for each source, in order, and one of receives
 * from any source. Numbers that rise with each posting and each arrival decide between queues.
 * Private memory of one process; the caller holds the engine.
 */
#ifndef SHMPI_MATCH_H
#define SHMPI_MATCH_H

#include "transport/job.h"

enum { SHMPI_ANY = -1 };

/* Why an operation failed. */
enum shmpi_fault {
    SHMPI_OK,
    SHMPI_TRUNCATED, /* the message is too long, or of another length in a collective */
    SHMPI_NO_MEMORY,
    SHMPI_FAILED_PEER, /* the other rank is dead */
    SHMPI_BROKEN,      /* a record that no rank of ours writes */
    SHMPI_CALLBACK,    /* a reduction of the program raised */
    SHMPI_REVOKED,     /* the communicator is revoked */
    SHMPI_SPOILED,     /* the sender's part of the collective failed */
};

struct shmpi_sched;
struct shmpi_step;

/* How a long message is moved between the memories of two ranks: shared_copy.h. */
struct shmpi_copy {
    uint64_t theirs, address; /* the peer's request, and its memory */
    char *mapped;             /* that memory: of the message, or (a send) of the buffer */
    uint64_t moved;           /* bytes of the message so far */
    uint64_t low;             /* pieces end here: at what the receiver reads, or wants (a send) */
    uint64_t taken;           /* by a send: the end of its units */
    uint32_t share;           /* 1 + the word of the lane that divides it; 0: none */
    uint32_t patience;        /* polls for a piece, before the receiver reads */
    bool moving;              /* in one of the lists of the engine: copying, pushing */
    bool divided;             /* a send whose receiver reads too */
    bool placing;             /* a receive whose sender writes into its buffer */
    bool by_kernel;           /* private memory that both sides copy by calls of the kernel */
    bool by_pieces;           /* what it `merges` is reduced as it is read */
};

/* One operation under way. Sources and peers are ranks of the job. */
struct shmpi_req {
    struct shmpi_req *next, *prev; /* in the queue that it waits in */
    bool receives, done, posted, cancelled, sync, detached;
    bool owns_buffer; /* freed with it */
    bool spoils;      /* a send of a collective whose part here has failed */
    bool grows;       /* a receive of any length: gets its buffer with the message */
    bool borrows;     /* a receive that grows, and that reads its message in the sender's arena */
    bool borrowed;    /* its message lies there, and the sender waits for shmpi_return_borrowed() */
    int fault;
    int peer, tag;
    uint32_t context, id; /* id: what the peer calls it by; 0: nothing */
    char *buffer;
    uint64_t bytes; /* of the buffer */

    int source, source_tag; /* of the message that came */
    uint64_t got;           /* its bytes, as far as there is room for them */
    union {
        uint64_t number;  /* of the posting */
        uint64_t refused; /* TRUNCATED: the bytes of the message that came */
    };

    struct shmpi_sched *sched; /* the collective that it is a part of */
    struct shmpi_step *merges; /* a receive that is reduced with own items: its step */
    void *holder;              /* of a request that the program left: notified when it is done */
    struct shmpi_copy copy;
};

/* A message without a receive. */
struct shmpi_message {
    struct shmpi_message *next, *prev;
    int source, tag;
    uint32_t context;
    bool waits, sync; /* its sender holds the bytes; its sender wants to know */
    bool spoils;      /* as in its send */
    uint32_t share;   /* as in its send */
    uint64_t bytes, number, theirs, address;
    uint64_t whole;         /* as in its schedule */
    struct shmpi_req *self; /* the send, of this rank */
    char data[];
};

/* Both kinds of queue: first and last. */
struct shmpi_queue {
    void *first, *last;
};

#define SHMPI_CONTEXTS_END 0xff000000u /* no context has this number, or a larger one */

struct shmpi_context {
    struct shmpi_context *next;
    uint32_t id;
    bool revoked;
    struct shmpi_queue any; /* receives */
    struct shmpi_queue *posted, *waiting;
    uint32_t messages; /* that wait */
};

enum { SHMPI_BUCKETS = 64 };

struct shmpi_matching {
    struct shmpi_context *buckets[SHMPI_BUCKETS], *last; /* `last`: the one that was found last */
    uint32_t size;                                       /* ranks of the job */
    uint64_t number;                                     /* of the next posting or arrival */
    struct shmpi_context *refusing; /* stands for contexts that are revoked and have none here */
    uint32_t *revoked;              /* the first contexts of revoked communicators, in order */
    uint32_t revoked_count, revoked_room;
};

enum { SHMPI_REVOKED_AT_ONCE = 4 }; /* contexts of one communicator, from its first */

#define SHMPI_PUT(queue, item)                                                                     \
    do {                                                                                           \
        (item)->next = NULL;                                                                       \
        (item)->prev = (queue)->last;                                                              \
        if ((queue)->last)                                                                         \
            (item)->prev->next = (item);                                                           \
        else                                                                                       \
            (queue)->first = (item);                                                               \
        (queue)->last = (item);                                                                    \
    } while (0)

#define SHMPI_OUT_OF(queue, item)                                                                  \
    do {                                                                                           \
        if ((item)->prev)                                                                          \
            (item)->prev->next = (item)->next;                                                     \
        else                                                                                       \
            (queue)->first = (item)->next;                                                         \
        if ((item)->next)                                                                          \
            (item)->next->prev = (item)->prev;                                                     \
        else                                                                                       \
            (queue)->last = (item)->prev;                                                          \
    } while (0)

static inline struct shmpi_context *shmpi_new_context(const struct shmpi_matching *m, uint32_t id)
{
    struct shmpi_context *c = calloc(1, sizeof *c + 2 * m->size * sizeof(struct shmpi_queue));
    if (!c)
        return NULL;
    c->id = id;
    c->posted = (struct shmpi_queue *)(c + 1);
    c->waiting = c->posted + m->size;
    return c;
}

/* ---- revoked contexts: four bytes of each communicator stay, since others may still send there */

/* Return how many of the revoked communicators come before that of a context. */
static inline uint32_t shmpi_revoked_before(const struct shmpi_matching *m, uint32_t id)
{
    uint32_t first = id - id % SHMPI_REVOKED_AT_ONCE, low = 0, high = m->revoked_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->revoked[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline bool shmpi_is_revoked(const struct shmpi_matching *m, uint32_t id)
{
    uint32_t at = m->revoked_count ? shmpi_revoked_before(m, id) : 0;
    return at < m->revoked_count && m->revoked[at] == id - id % SHMPI_REVOKED_AT_ONCE;
}

/* Note that a communicator is revoked. Return false without memory. */
static inline bool shmpi_remember_revoked(struct shmpi_matching *m, uint32_t first)
{
    if (shmpi_is_revoked(m, first))
        return true;
    if (!m->refusing) {
        if (!(m->refusing = shmpi_new_context(m, SHMPI_CONTEXTS_END)))
            return false;
        m->refusing->revoked = true;
    }
    if (m->revoked_count == m->revoked_room) {
        uint32_t room = m->revoked_room ? 2 * m->revoked_room : 16;
        uint32_t *more = realloc(m->revoked, room * sizeof *more);
        if (!more)
            return false;
        m->revoked = more;
        m->revoked_room = room;
    }
    uint32_t at = shmpi_revoked_before(m, first);
    memmove(m->revoked + at + 1, m->revoked + at, (m->revoked_count - at) * sizeof *m->revoked);
    m->revoked[at] = first - first % SHMPI_REVOKED_AT_ONCE;
    m->revoked_count++;
    return true;
}

/* ---- contexts ------------------------------------------------------------------------------- */

/* Return the context of an id, made at its first use: a message may be faster than the news that
 * its communicator exists. Return the refusing one for a revoked id, and NULL without memory. */
static inline struct shmpi_context *shmpi_context(struct shmpi_matching *m, uint32_t id)
{
    if (m->last && m->last->id == id)
        return m->last;
    struct shmpi_context **at = &m->buckets[id % SHMPI_BUCKETS], *c;
    for (c = *at; c; c = c->next)
        if (c->id == id)
            return m->last = c;
    if (shmpi_is_revoked(m, id))
        return m->refusing;
    if (!(c = shmpi_new_context(m, id)))
        return NULL;
    c->next = *at;
    *at = c;
    return m->last = c;
}

/* Free a context whose communicator has ended, if nothing waits there. A later message makes it
 * anew, unless it is revoked: then one that stands for all refuses it. */
static inline void shmpi_forget_context(struct shmpi_matching *m, uint32_t id)
{
    struct shmpi_context **at = &m->buckets[id % SHMPI_BUCKETS], *c;
    while ((c = *at) && c->id != id)
        at = &c->next;
    if (!c || c->messages || c->any.first)
        return;
    for (uint32_t i = 0; i < m->size; i++)
        if (c->posted[i].first)
            return;
    *at = c->next;
    m->last = NULL;
    free(c);
}

static inline bool shmpi_tags_agree(int wanted, int tag)
{
    return wanted == tag || wanted == SHMPI_ANY;
}

static inline struct shmpi_req *shmpi_first_posted(const struct shmpi_queue *q, int tag)
{
    struct shmpi_req *r = q->first;
    while (r && !shmpi_tags_agree(r->tag, tag))
        r = r->next;
    return r;
}

static inline struct shmpi_queue *shmpi_queue_of(struct shmpi_context *c, const struct shmpi_req *r)
{
    return r->peer == SHMPI_ANY ? &c->any : &c->posted[r->peer];
}

static inline void shmpi_unpost(struct shmpi_context *c, struct shmpi_req *r)
{
    struct shmpi_queue *q = shmpi_queue_of(c, r);
    SHMPI_OUT_OF(q, r);
    r->posted = false;
}

/* Take out and return the receive that a message of this source and tag belongs to, or NULL. */
static inline struct shmpi_req *shmpi_match_posted(struct shmpi_context *c, int source, int tag)
{
    struct shmpi_req *r = shmpi_first_posted(&c->posted[source], tag);
    struct shmpi_req *any = c->any.first ? shmpi_first_posted(&c->any, tag) : NULL;
    if (any && (!r || any->number < r->number))
        r = any;
    if (r)
        shmpi_unpost(c, r);
    return r;
}

static inline void shmpi_post(struct shmpi_matching *m, struct shmpi_context *c,
                              struct shmpi_req *r)
{
    struct shmpi_queue *q = shmpi_queue_of(c, r);
    r->number = m->number++;
    r->posted = true;
    SHMPI_PUT(q, r);
}

static inline struct shmpi_message *shmpi_first_waiting(const struct shmpi_queue *q, int tag)
{
    struct shmpi_message *m = q->first;
    while (m && !shmpi_tags_agree(tag, m->tag))
        m = m->next;
    return m;
}

/* Return the message that a receive of this source and tag gets, left where it is; or NULL. */
static inline struct shmpi_message *shmpi_find_waiting(const struct shmpi_matching *m,
                                                       const struct shmpi_context *c, int source,
                                                       int tag)
{
    if (!c->messages)
        return NULL;
    if (source != SHMPI_ANY)
        return shmpi_first_waiting(&c->waiting[source], tag);
    struct shmpi_message *best = NULL;
    for (uint32_t i = 0; i < m->size; i++) {
        struct shmpi_message *each = shmpi_first_waiting(&c->waiting[i], tag);
        if (each && (!best || each->number < best->number))
            best = each;
    }
    return best;
}

static inline void shmpi_add_waiting(struct shmpi_matching *m, struct shmpi_context *c,
                                     struct shmpi_message *message)
{
    message->number = m->number++;
    c->messages++;
    SHMPI_PUT(&c->waiting[message->source], message);
}

static inline void shmpi_take_waiting(struct shmpi_context *c, struct shmpi_message *message)
{
    c->messages--;
    SHMPI_OUT_OF(&c->waiting[message->source], message);
}

#endif
