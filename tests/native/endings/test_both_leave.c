/* SPDX-License-Identifier: Apache-2.0
 *
 * Random traffic in single steps until both sides have ended the connection: by a disconnect, a
 * request that fails, or a receive that is too short. Then both report the same messages, whole and
 * in order, whatever was in their queues, and although a side that has ended releases its memory
 * before the other one makes its next call. SHMND_ENDINGS sets the number of runs.
 */
#include "world.h"

#define MOST 48u /* requests, and receives, of one side */
#define SLOT ((uint32_t)SHMND_PIECE + 100000)
#define WINDOWS 2u
#define BOARD 8u

struct request {
    uint8_t type;
    bool silent;
    uint32_t status, length;
};

struct side {
    struct proc *p;
    struct queue *receive, *initiator;
    struct pair *pair;
    uint8_t *from, *into, *board;
    uint32_t source, sink, board_token, windows[WINDOWS], windows_used, depth;
    struct request requests[MOST];
    uint32_t posted, sent[MOST], sends;
    uint32_t receives, ended, received, lengths[MOST];
    uint32_t next_result; /* the oldest request without a result */
    bool failed, receive_failed, released;
};

struct scene {
    struct world w;
    struct side s[2];
    struct shmnd_receives srq;
    struct chance chance;
    uint32_t longest;
    bool shared;
};

static uint32_t below(struct scene *c, uint32_t n)
{
    return (uint32_t)chance_below(&c->chance, n);
}

/* ---- setup ---------------------------------------------------------------------------------- */

static void open_side(struct scene *c, int me)
{
    static const uint32_t depths[] = {1, 2, 8, 64}, limits[] = {1, 2, 5, 16};
    struct side *s = &c->s[me];
    struct pair_options o = {
        limits[below(c, 4)], limits[below(c, 4)], 4, 128, W_SECOND * 1000, NULL};
    s->p = &c->w.p[me];
    s->depth = o.receives;
    s->receive = queue_new(s->p, depths[below(c, 4)]);
    s->initiator = below(c, 2) ? s->receive : queue_new(s->p, depths[below(c, 4)]);
    if (me && c->shared) {
        receives_make(&c->srq, o.receives, 4);
        o.srq = &c->srq;
    }
    s->pair = pair_new(s->receive, s->initiator, o);
    uint64_t all = (uint64_t)MOST * c->longest;
    s->from = below(c, 3) ? shared_bytes(s->p, all) : guard_alloc(all);
    s->into = below(c, 3) ? shared_bytes(s->p, all) : guard_alloc(all);
    s->source = region_new(s->p, s->from, all, SHMND_MR_LOCAL_WRITE);
    s->sink = region_new(s->p, s->into, all, SHMND_MR_LOCAL_WRITE);
    s->board = shared_bytes(s->p, BOARD);
    s->board_token = region_new(
        s->p, s->board, BOARD, SHMND_MR_LOCAL_WRITE | SHMND_MR_REMOTE_READ | SHMND_MR_REMOTE_WRITE);
}

static void open_scene(struct scene *c, uint64_t seed)
{
    static const uint32_t longest[] = {64, 3000, 100000, SLOT};
    memset(c, 0, sizeof *c);
    c->chance.state = seed;
    c->longest = longest[below(c, 16) ? below(c, 3) : 3];
    c->shared = below(c, 4) == 0;
    world_open(&c->w, (struct world_options){.segment_bytes = 2ull * MOST * c->longest + 256,
                                             .no_vm = below(c, 4) == 0,
                                             .unmapped = below(c, 2),
                                             .fitting_rings = below(c, 2)});
    for (int i = 0; i < 2; i++)
        open_side(c, i);
    pair_connect(c->s[0].pair, c->s[1].pair);
    if (below(c, 4) == 0)
        for (int i = 0; i < 2; i++)
            pair_never_bounces(c->s[i].pair);
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < WINDOWS; k++)
            c->s[i].windows[k] = window_bind(c->s[i].pair, c->s[i].into, 64, SHMND_ALLOW_WRITE, 0);
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool note_request(struct side *s, uint32_t status, uint8_t type, bool silent, uint32_t n)
{
    if (status != SHMND_SUCCESS)
        return false;
    s->requests[s->posted++] = (struct request){.type = type, .silent = silent, .length = n};
    return true;
}

static void post_a_send(struct scene *c, struct side *s, struct side *other)
{
    uint32_t half = below(c, 2) ? c->longest : c->longest < 300 ? c->longest : 300;
    uint32_t n = below(c, half + 1), status;
    bool kept, silent = below(c, 2);
    if (s->posted == MOST)
        return;
    uint8_t *at = s->from + (uint64_t)s->sends * c->longest;
    fill(at, n, 1 + s->sends);
    uint32_t cut = below(c, n + 1);
    struct shmnd_sge m[] = {sge(at, cut, s->source), sge(at + cut, n - cut, s->source)};
    void *context = (void *)(uintptr_t)(1 + s->posted);
    uint32_t flags = (silent ? SHMND_OP_SILENT_SUCCESS : 0) | (below(c, 4) ? 0 : SHMND_OP_SOLICIT);
    if (other->windows_used < WINDOWS && below(c, 16) == 0) {
        status = shmnd_post_send_invalidate(&s->pair->q, context, m, 2,
                                            other->windows[other->windows_used], flags);
        other->windows_used += status == SHMND_SUCCESS;
    } else {
        flags |= n <= 128 && below(c, 3) == 0 ? SHMND_OP_INLINE : 0;
        status = shmnd_post_send(&s->pair->q, context, m, 2, flags, &kept);
    }
    if (note_request(s, status, SHMND_SEND, silent, n))
        s->sent[s->sends++] = s->posted - 1;
}

/* A Read or Write of the other side's board; a `bad` one names no memory. */
static void post_an_access(struct scene *c, struct side *s, const struct side *other, bool bad)
{
    bool kept, silent = below(c, 2);
    uint32_t n = bad ? 8 : below(c, 2) ? BOARD : 0;
    struct shmnd_sge m = sge(s->board, n, s->board_token);
    uint8_t type = below(c, 2) ? SHMND_READ : SHMND_WRITE;
    if (s->posted == MOST)
        return;
    uint32_t status = shmnd_post_rdma(&s->pair->q, (void *)(uintptr_t)(1 + s->posted), type, &m, 1,
                                      (uint64_t)(uintptr_t)other->board,
                                      bad ? other->board_token ^ 0x10000 : other->board_token,
                                      silent ? SHMND_OP_SILENT_SUCCESS : 0, &kept);
    note_request(s, status, type, silent, n);
}

static void post_a_receive(struct scene *c, struct side *s)
{
    if (s->receives == MOST)
        return;
    uint32_t n = below(c, 200) ? c->longest : below(c, c->longest);
    struct shmnd_sge r = sge(s->into + (uint64_t)s->receives * c->longest, n, s->sink);
    void *context = (void *)(uintptr_t)(1001 + s->receives);
    if (s->pair->q.shared) {
        if (shmnd_receives_outstanding(&c->srq) == s->depth)
            return;
        shmnd_receives_add(&c->srq, context, &r, 1);
        if (c->srq.starved)
            shmnd_qp_activate(&s->pair->q);
        s->receives++;
    } else if (post_receive(s->pair, (uintptr_t)context, &r, 1) == SHMND_SUCCESS) {
        s->receives++;
    }
}

/* ---- results -------------------------------------------------------------------------------- */

static void take_received(struct scene *c, struct side *s, const struct shmnd_cqe *e)
{
    if (e->type == SHMND_INVALIDATE)
        return;
    EQUAL((uintptr_t)e->context, 1001 + s->ended);
    if (e->status == SHMND_SUCCESS) {
        CHECK(!s->receive_failed);
        CHECK(filled(s->into + (uint64_t)s->ended * c->longest, e->bytes, 1 + s->received));
        s->lengths[s->received++] = e->bytes;
    } else {
        s->receive_failed = true;
    }
    s->ended++;
}

/* A silent request behind which a result comes has succeeded. */
static void take_requested(struct side *s, const struct shmnd_cqe *e)
{
    uint32_t i = (uint32_t)(uintptr_t)e->context - 1;
    CHECK(i < s->posted && i >= s->next_result);
    for (; s->next_result < i; s->next_result++)
        CHECK(s->requests[s->next_result].silent && !s->failed);
    s->next_result++;
    EQUAL(e->type, s->requests[i].type);
    s->requests[i].status = e->status;
    if (e->status == SHMND_SUCCESS)
        CHECK(!s->failed && !s->requests[i].silent);
    else
        s->failed = true;
}

static void take(struct scene *c, struct side *s, const struct shmnd_cqe *e, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if ((uintptr_t)e[i].context > 1000 || (uintptr_t)e[i].context == 0)
            take_received(c, s, &e[i]);
        else
            take_requested(s, &e[i]);
    release_contexts(s->p);
}

/* Performs what a step has left, or leaves it to a later step. */
static void perform(struct scene *c, struct side *s, enum shmnd_progress what, bool receiving)
{
    struct shmnd_qp *q = &s->pair->q;
    if (what == SHMND_IDLE || below(c, 4) == 0)
        return;
    if (what == SHMND_NEEDS_MAP || receiving || below(c, 2)) {
        serve(q, what, receiving);
        return;
    }
    q->tx.started = true; /* another thread copies */
    shmnd_tx_run(q);
}

static void take_some(struct scene *c, struct side *s)
{
    struct shmnd_cqe e[8];
    struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
    struct queue *from = below(c, 2) ? s->receive : s->initiator;
    uint32_t n = shmnd_cq_poll(&from->cq, e, 1 + below(c, 8), &todo);
    take(c, s, e, n);
    perform(c, s, todo.what, todo.receiving);
}

static void step(struct scene *c, struct side *s)
{
    struct shmnd_qp *q = &s->pair->q;
    if (q->tx.started) {
        shmnd_tx_run_done(q);
    } else if (below(c, 2)) {
        struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
        shmnd_qp_progress_todo(q, shmnd_coarse_ns(), &todo);
        perform(c, s, todo.what, todo.receiving);
    } else {
        perform(c, s, shmnd_tx_advance(q), false);
    }
    release_contexts(s->p);
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool has_ended(const struct side *s)
{
    const struct shmnd_qp *q = &s->pair->q;
    return q->state == SHMND_QP_DOWN && !q->going_down && !q->tx.started &&
           shmnd_cq_count(&s->receive->cq) == 0 && shmnd_cq_count(&s->initiator->cq) == 0;
}

/* The program of this side frees its memory, and the other side hears of it. */
static void release(struct side *s, struct side *other)
{
    s->released = true;
    memset(s->from, 0xee, 64);
    other->p->peer.data[0].base = NULL;
    other->p->hidden.base = NULL;
    other->p->peer.unmapped++;
}

static void act(struct scene *c, struct side *s, struct side *other, uint32_t trouble)
{
    uint32_t what = below(c, 100);
    if (s->released)
        return;
    if (s->pair->q.state == SHMND_QP_DOWN && what < 60)
        what = 99;
    if (what < 25)
        post_a_send(c, s, other);
    else if (what < 50)
        post_a_receive(c, s);
    else if (what < 60)
        post_an_access(c, s, other, false);
    else if (what < 60 + trouble)
        post_an_access(c, s, other, true);
    else if (what < 60 + 2 * trouble)
        shmnd_qp_disconnect(&s->pair->q);
    else if (what < 85)
        step(c, s);
    else
        take_some(c, s);
    if (has_ended(s) && below(c, 2))
        release(s, other);
}

/* Both report the same messages. */
static void agree(struct side *s, const struct side *other)
{
    uint32_t sent = 0;
    for (; s->next_result < s->posted; s->next_result++)
        CHECK(s->requests[s->next_result].silent && !s->failed);
    while (sent < s->sends && s->requests[s->sent[sent]].status == SHMND_SUCCESS) {
        if (sent < other->received)
            EQUAL(other->lengths[sent], s->requests[s->sent[sent]].length);
        sent++;
    }
    EQUAL(other->received, sent);
}

static void traffic(uint64_t seed)
{
    static struct scene c;
    open_scene(&c, seed);
    NOTE("seed %" PRIu64 ", shared %d, longest %u", seed, c.shared, c.longest);
    uint32_t trouble = below(&c, 2);
    for (uint32_t i = 0, steps = below(&c, 400), bias = 1 + below(&c, 9); i < steps; i++) {
        int me = below(&c, 10) < bias;
        act(&c, &c.s[me], &c.s[1 - me], trouble);
    }
    for (int i = 0; i < 2; i++)
        if (below(&c, 2) || i)
            shmnd_qp_disconnect(&c.s[i].pair->q);
    for (uint32_t i = 0; !has_ended(&c.s[0]) || !has_ended(&c.s[1]); i++) {
        int me = (int)below(&c, 2);
        CHECK(i < 100000);
        step(&c, &c.s[me]);
        take_some(&c, &c.s[me]);
        if (has_ended(&c.s[me]) && !c.s[me].released)
            release(&c.s[me], &c.s[1 - me]);
    }
    for (int i = 0; i < 2; i++)
        agree(&c.s[i], &c.s[1 - i]);
    world_close(&c.w);
}

static void both_report_the_same_messages(void)
{
    const char *asked = getenv("SHMND_ENDINGS");
    uint64_t runs = asked ? strtoull(asked, NULL, 10) : 1200;
    for (uint64_t seed = 1; seed <= runs; seed++)
        traffic(seed);
}

static const struct check_test tests[] = {
    TEST(both_report_the_same_messages),
};
MAIN(tests)
