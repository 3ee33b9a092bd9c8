/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes that run at the same time (threads.h) and use all operations concurrently on
 * some connections: messages of all kinds both ways, also in batches, Reads and Writes, and
 * windows invalidated by messages.
 *
 * Each message carries its number and bytes derived from it; each receive checks both. The
 * memory of a request is written again as soon as it has completed: a copy that is still
 * running then is a data race.
 */
#ifndef SHMND_TEST_LANES_H
#define SHMND_TEST_LANES_H

#include "threads.h"

#define REQUESTS 8u
#define RECEIVES 8u
#define LANES 6u
#define SHORT_ROOM 9000u
#define LONG_ROOM (SHMND_SHARE_MIN + 60000u)
#define PAGE 8192u
#define LAST (1ull << 63) /* the number of the last message */

enum what { RECEIVED, ASKED, WINDOW };
enum ending { STAYS, LEAVES, TAKES_WINDOW, TAKES_MEMORY };
enum asked { NOTHING, SENT, WRITTEN, READ, GIVEN_BACK, SHOWN, TAKEN };

struct plan {
    uint64_t messages;
    uint32_t lanes, room, flush_in; /* one turn in so many flushes; 0: none does */
    bool no_vm;
    bool small_rings;    /* sized for these depths, so that many Sends are listed */
    uint64_t dawdles;    /* threads yield at one kill point in so many; 0: at none */
    enum ending ends[2]; /* the action of each side that ends the traffic, */
    uint64_t ends_at;    /* after so many messages */
};

struct head {
    uint64_t number;
    uint64_t board, board_seen; /* numbers written to the reader's board, read from the writer's */
    uint32_t window;            /* a window of the writer's, for the reader */
    uint32_t pane;              /* the pane was written before this message invalidates it */
};

struct request {
    uint8_t *at;
    uint32_t token, length; /* length of the memory that may be accessed meanwhile */
    enum asked asked;
    bool posted;
    uint64_t number;
};

/* One end of a connection. */
struct lane {
    struct side *side;
    struct pair *e;
    struct lane *far; /* the other end; only its constants are read: addresses and tokens */
    uint64_t index;
    struct request out[REQUESTS], in[RECEIVES];
    uint64_t sent, told, told_sum; /* numbers assigned; messages that succeeded */
    uint64_t got, got_sum, got_last;
    bool last_told, last_got, left;
    /* Memory that the peer writes, reads, and writes through a window. */
    uint8_t *board, *shelf, *pane;
    uint32_t board_token, shelf_token, window;
    uint64_t board_got;           /* the last number on the local board */
    uint64_t board_put;           /* the last number written to the peer's board */
    bool board_free, board_ready; /* it may be written; it was written, and not yet announced */
    uint32_t far_window, given;   /* the peer's window that may be written; 0 once invalidated */
    bool pane_put, pane_got;
    /* The memory that its owner deregisters or invalidates. */
    uint8_t *taking;
    uint32_t taking_token, taking_length;
    uint64_t taking_since;
    bool ended;
};

struct side {
    struct plan plan;
    struct proc *proc;
    struct runner *runner;
    uint64_t index;
    struct lane lanes[LANES];
};

struct stage {
    struct world w;
    struct runner runners[2];
    struct side sides[2];
};

static inline uint64_t salt_of(const struct lane *writer, uint64_t number)
{
    return number << 8 | writer->index << 1 | writer->side->index;
}

static inline void *context_of(const struct lane *l, enum what what, uint64_t i)
{
    return (void *)(uintptr_t)(1u << 24 | l->index << 16 | (uint64_t)what << 8 | i);
}

static inline uint64_t any(struct lane *l, uint64_t below)
{
    return chance_below(&l->side->runner->chance, below);
}

/* ---- making ----------------------------------------------------------------------------- */

/* Every other one is in shared memory. */
static inline void make_memory(struct lane *l, struct request *r, uint32_t i, uint32_t room)
{
    r->at = i % 2 ? guard_alloc(room) : shared_bytes(l->side->proc, room);
    r->token = region_new(l->side->proc, r->at, room, SHMND_MR_LOCAL_WRITE);
}

static inline void make_lane(struct lane *l, struct side *s, struct queue *queue, uint64_t index)
{
    struct pair_options o = {RECEIVES, REQUESTS, 4, 128, 1000 * W_SECOND, NULL};
    l->side = s;
    l->index = index;
    l->board_free = true;
    l->e = pair_new(queue, queue, o);
    for (uint32_t i = 0; i < REQUESTS; i++)
        make_memory(l, &l->out[i], i, s->plan.room);
    for (uint32_t i = 0; i < RECEIVES; i++)
        make_memory(l, &l->in[i], i, s->plan.room);
    l->board = shared_bytes(s->proc, PAGE);
    l->shelf = shared_bytes(s->proc, PAGE);
    l->pane = shared_bytes(s->proc, PAGE);
    l->board_token = region_new(s->proc, l->board, PAGE, SHMND_MR_REMOTE_WRITE);
    l->shelf_token = region_new(s->proc, l->shelf, PAGE, SHMND_MR_REMOTE_READ);
    fill(l->shelf, PAGE, salt_of(l, 0));
}

/* The steps of a Bind after its grant is published. */
static inline void bind_window(struct lane *l)
{
    struct shmnd_region *r = shmnd_region_lookup(&l->side->proc->registry, l->window);
    r->serial = l->e->q.serial;
    shmnd_window_set_context(&l->side->proc->registry, r, context_of(l, WINDOW, 0));
}

static inline void open_stage(struct stage *st, struct plan plan)
{
    uint64_t bytes = plan.lanes * ((REQUESTS + RECEIVES) / 2 * (plan.room + 64ull) + 4 * PAGE);
    memset(st, 0, sizeof *st);
    world_open(&st->w, (struct world_options){.segment_bytes = bytes,
                                              .no_vm = plan.no_vm,
                                              .fitting_rings = plan.small_rings});
    for (uint64_t i = 0; i < 2; i++) {
        struct side *s = &st->sides[i];
        *s =
            (struct side){.plan = plan, .proc = &st->w.p[i], .runner = &st->runners[i], .index = i};
        s->runner->proc = s->proc;
        s->runner->queue = queue_new(s->proc, 16);
        s->runner->user = s;
        for (uint64_t k = 0; k < plan.lanes; k++)
            make_lane(&s->lanes[k], s, s->runner->queue, k);
    }
    for (uint64_t k = 0; k < plan.lanes; k++) {
        struct lane *a = &st->sides[0].lanes[k], *b = &st->sides[1].lanes[k];
        a->far = b;
        b->far = a;
        pair_connect(a->e, b->e);
        for (uint64_t i = 0; i < 2; i++) {
            struct lane *l = &st->sides[i].lanes[k];
            l->window = window_bind(l->e, l->pane, PAGE, SHMND_ALLOW_WRITE, 1);
            bind_window(l);
        }
    }
}

/* ---- completions ------------------------------------------------------------------------ */

/* Has its owner deregistered it, and written it since? */
static inline bool taken_back(const struct lane *l, uint32_t token)
{
    return l->taking_token == token;
}

/* Does an action of a side make requests of this lane fail? */
static inline bool breaks(const struct lane *l)
{
    const enum ending *ends = l->side->plan.ends;
    return ends[0] > LEAVES || ends[1] > LEAVES;
}

static inline void ended(struct lane *l, struct request *r, uint32_t status)
{
    enum asked asked = r->asked;
    bool well = status == SHMND_SUCCESS;
    CHECK(asked != NOTHING);
    CHECK(well || status == SHMND_CANCELED || breaks(l));
    r->asked = NOTHING;
    if (well && (asked == SENT || asked == GIVEN_BACK)) {
        l->told++;
        l->told_sum += r->number;
        l->last_told = l->last_told || r->number == LAST;
    } else if (asked == GIVEN_BACK) {
        l->far_window = l->given;
        l->given = 0;
    } else if (asked == WRITTEN) {
        l->board_ready = well;
        l->board_free = !well;
        l->board_put += well;
    } else if (asked == SHOWN) {
        l->pane_put = l->pane_put || well;
    } else if (asked == TAKEN && well) {
        memset(l->pane, 0x66, PAGE);
    } else if (asked == READ && well && !taken_back(l, r->token)) {
        CHECK(filled(r->at, PAGE, salt_of(l->far, 0)));
    }
    memset(r->at, 0x33, r->length);
}

/* Follows the state of the other memory that a message reports. */
static inline void heard(struct lane *l, const struct head *head)
{
    if (head->board > l->board_got && !taken_back(l, l->board_token)) {
        CHECK(filled(l->board, PAGE, salt_of(l->far, head->board)));
        memset(l->board, 0x44, PAGE);
        l->board_got = head->board;
    }
    if (l->board_ready && head->board_seen == l->board_put) {
        l->board_ready = false;
        l->board_free = true;
    }
    if (head->window != l->given && head->window != l->far_window) {
        l->far_window = head->window;
        l->pane_put = false;
    }
    l->pane_got = head->pane;
}

static inline void received(struct lane *l, struct request *r, const struct shmnd_cqe *e)
{
    struct head head;
    CHECK(r->posted);
    r->posted = false;
    if (e->status == SHMND_SUCCESS && taken_back(l, r->token)) {
        l->got++;
    } else if (e->status == SHMND_SUCCESS) {
        CHECK(e->bytes >= sizeof head && e->bytes <= l->side->plan.room);
        memcpy(&head, r->at, sizeof head);
        CHECK(head.number > l->got_last);
        CHECK(filled(r->at + sizeof head, e->bytes - sizeof head, salt_of(l->far, head.number)));
        l->got_last = head.number;
        l->got++;
        l->got_sum += head.number;
        l->last_got = head.number == LAST;
        heard(l, &head);
    } else {
        CHECK(e->status == SHMND_CANCELED || breaks(l));
    }
    memset(r->at, 0x55, e->status == SHMND_SUCCESS ? e->bytes : l->side->plan.room);
}

/* The peer invalidated a local window: its memory is private until it is bound again. */
static inline void given_back(struct lane *l, const struct shmnd_cqe *e)
{
    EQUAL(e->type, SHMND_INVALIDATE);
    EQUAL(e->status, SHMND_SUCCESS);
    CHECK(!l->pane_got || filled(l->pane, PAGE, salt_of(l->far, l->window)));
    memset(l->pane, 0x66, PAGE);
    l->window = window_again(l->side->proc, l->window, SHMND_ALLOW_WRITE, l->e->q.link.connection);
    bind_window(l);
}

static inline void took(void *user, const struct shmnd_cqe *e)
{
    uint64_t context = (uint64_t)(uintptr_t)e->context;
    struct side *s = user;
    CHECK(context >> 24 == 1 && (context >> 16 & 0xff) < s->plan.lanes);
    struct lane *l = &s->lanes[context >> 16 & 0xff];
    uint64_t i = context & 0xff;
    switch (context >> 8 & 0xff) {
    case RECEIVED: received(l, &l->in[i], e); break;
    case ASKED: ended(l, &l->out[i], e->status); break;
    default: given_back(l, e);
    }
}

#endif
