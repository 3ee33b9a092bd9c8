/* SPDX-License-Identifier: Apache-2.0
 *
 * The contexts of requests: at each moment the walks of contexts.h find each context that the
 * engine owns, exactly once, and none that it has given away.
 */
#include "world.h"

#define CONTEXTS 4096u
#define ROOM (96u << 10)
#define ALL (SHMND_ALLOW_READ | SHMND_ALLOW_WRITE)

static const uint32_t LENGTHS[] = {0, 1, 64, 500, 4000, 20000, 70000, ROOM};
#define SOME_LENGTH(c) LENGTHS[chance_below(c, sizeof LENGTHS / sizeof LENGTHS[0])]

enum owner { NEVER, ENGINE, GIVEN };

struct side {
    struct pair *e;
    struct queue *queue;
    struct shmnd_receives srq;
    bool shared;
    uint8_t *memory;
    uint32_t token, window;
    struct side *other;
    uint8_t owner[CONTEXTS];
    uint32_t last, owned; /* the last context given out, and how many the engine has */
};

struct stage {
    struct duo d;
    struct side side[2];
    struct chance chance;
};

static void *new_context(struct side *s)
{
    CHECK(s->last + 1 < CONTEXTS);
    return (void *)(uintptr_t)++s->last;
}

static void posted(struct side *s, void *context)
{
    s->owner[(uintptr_t)context] = ENGINE;
    s->owned++;
}

static void given(struct side *s, void *context)
{
    uintptr_t number = (uintptr_t)context;
    CHECK(number && number < CONTEXTS);
    EQUAL(s->owner[number], ENGINE);
    s->owner[number] = GIVEN;
    s->owned--;
}

/* ---- what the walks find ------------------------------------------------------------------ */

struct found {
    uint8_t seen[CONTEXTS];
    uint32_t count;
};

static void find(struct side *s, struct found *f, const void *context)
{
    uintptr_t number = (uintptr_t)context;
    CHECK(number && number < CONTEXTS);
    EQUAL(s->owner[number], ENGINE);
    EQUAL(f->seen[number], 0);
    f->seen[number] = 1;
    f->count++;
}

static void check_side(struct side *s)
{
    static struct found f;
    struct shmnd_contexts_walk walk = {0}, shared = {0}, windows = {0};
    memset(&f, 0, sizeof f);
    for (void **at; (at = shmnd_qp_next_context(&s->e->q, &walk)) != NULL;)
        find(s, &f, *at);
    for (void **at; s->shared && (at = shmnd_receives_next_context(&s->srq, &shared)) != NULL;)
        find(s, &f, *at);
    for (void **at; (at = shmnd_registry_next_context(&s->e->proc->registry, &windows)) != NULL;)
        find(s, &f, *at);
    const struct shmnd_cq *cq = &s->queue->cq;
    for (uint64_t pos = cq->read_pos; pos != cq->write_pos; pos++)
        find(s, &f, cq->ring[pos & cq->mask].context);
    EQUAL(f.count, s->owned);
}

static void check_all(struct stage *s)
{
    check_side(&s->side[0]);
    check_side(&s->side[1]);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void release(struct side *s)
{
    for (void *context; (context = shmnd_pop_unreleased_context(&s->e->proc->registry)) != NULL;)
        given(s, context);
}

static void run(struct side *s, enum shmnd_progress what, bool receiving)
{
    check_side(s); /* a job is prepared: its message is matched and open */
    serve(&s->e->q, what, receiving);
    check_side(s);
}

static void advance_all(struct side *s)
{
    for (enum shmnd_progress p; (p = shmnd_tx_advance(&s->e->q)) != SHMND_IDLE;)
        run(s, p, false);
    check_side(s);
    release(s);
}

static void take(struct side *s, uint32_t most)
{
    struct shmnd_cqe out[32];
    struct shmnd_todo todo;
    uint32_t n = shmnd_cq_poll(&s->queue->cq, out, most, &todo);
    for (uint32_t i = 0; i < n; i++)
        given(s, out[i].context);
    check_side(s);
    if (todo.what != SHMND_IDLE)
        run(s, todo.what, todo.receiving);
    release(s);
}

static void send_one(struct stage *st, struct side *s)
{
    uint32_t length = SOME_LENGTH(&st->chance), flags = 0;
    struct shmnd_sge m = sge(s->memory, length, s->token);
    void *context = new_context(s);
    bool kept = true;
    if (chance_below(&st->chance, 3) == 0)
        flags |= SHMND_OP_SILENT_SUCCESS;
    if (length <= 128 && chance_below(&st->chance, 2))
        flags |= SHMND_OP_INLINE;
    uint32_t status;
    if (s->other->window && chance_below(&st->chance, 12) == 0) {
        status = shmnd_post_send_invalidate(&s->e->q, context, &m, 1, s->other->window, flags);
        s->other->window = status == SHMND_SUCCESS ? 0 : s->other->window;
    } else {
        status = shmnd_post_send(&s->e->q, context, &m, 1, flags, &kept);
    }
    if (status != SHMND_SUCCESS)
        return;
    if (kept)
        posted(s, context);
    check_side(s);
    if (!(s->e->q.batch && s->e->q.wq.next == s->e->q.wq.end))
        advance_all(s);
}

static void access_one(struct stage *st, struct side *s)
{
    uint32_t length = SOME_LENGTH(&st->chance);
    struct shmnd_sge m = sge(s->memory, length, s->token);
    void *context = new_context(s);
    uint8_t type = chance_below(&st->chance, 2) ? SHMND_READ : SHMND_WRITE;
    bool kept;
    if (shmnd_post_rdma(&s->e->q, context, type, &m, 1, (uintptr_t)s->other->memory,
                        s->other->token, chance_below(&st->chance, 2) ? SHMND_OP_SILENT_SUCCESS : 0,
                        &kept) != SHMND_SUCCESS)
        return;
    if (kept)
        posted(s, context);
    advance_all(s);
}

static void receive_one(struct stage *st, struct side *s)
{
    struct shmnd_sge m = sge(s->memory, chance_below(&st->chance, 20) ? ROOM : 64, s->token);
    struct shmnd_receives *r = s->shared ? &s->srq : &s->e->q.own;
    void *context = new_context(s);
    if (!s->shared && shmnd_post_receive(&s->e->q, context, &m, 1) != SHMND_SUCCESS)
        return;
    if (s->shared && shmnd_receives_outstanding(r) >= r->depth)
        return;
    if (s->shared)
        shmnd_receives_add(r, context, &m, 1);
    posted(s, context);
}

static void window_one(struct side *s)
{
    void *context = new_context(s);
    if (shmnd_hold_entry(&s->e->q) != SHMND_SUCCESS)
        return;
    shmnd_post_window(&s->e->q, context, SHMND_BIND, 0, SHMND_SUCCESS, 0);
    posted(s, context);
    advance_all(s);
}

static void step(struct stage *st, struct side *s)
{
    switch (chance_below(&st->chance, 16)) {
    case 0:
    case 1:
    case 2:
    case 3: send_one(st, s); break;
    case 4: access_one(st, s); break;
    case 5:
    case 6:
    case 7:
    case 8: receive_one(st, s); break;
    case 9: window_one(s); break;
    case 10: s->e->q.batch = true; break;
    case 11: shmnd_batch_submit(&s->e->q); break;
    case 12:
        if (chance_below(&st->chance, 16) == 0)
            shmnd_qp_flush(&s->e->q);
        break;
    default: take(s, 1 + (uint32_t)chance_below(&st->chance, 8));
    }
    check_all(st);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void stage_open(struct stage *st, uint64_t seed)
{
    struct pair_options o[2] = {pair_usual, pair_usual};
    memset(st, 0, sizeof *st);
    st->chance.state = seed;
    for (int i = 0; i < 2; i++) {
        o[i].receives = 8;
        o[i].requests = 8;
        st->side[i].shared = seed >> i & 1;
        if (st->side[i].shared) {
            receives_make(&st->side[i].srq, 8, 4);
            o[i].srq = &st->side[i].srq;
        }
    }
    duo_open_with(
        &st->d,
        (struct world_options){.segment_bytes = 256 << 10, .no_vm = seed & 4, .unmapped = seed & 8},
        o[0], o[1]);
    for (int i = 0; i < 2; i++) {
        struct side *s = &st->side[i];
        s->e = i ? st->d.b : st->d.a;
        s->queue = i ? st->d.qb : st->d.qa;
        s->other = &st->side[1 - i];
        s->memory = seed >> (4 + i) & 1 ? guard_alloc(ROOM) : shared_bytes(s->e->proc, ROOM);
        s->token = region_new(s->e->proc, s->memory, ROOM, 7);
        void *context = new_context(s);
        s->window = window_bind(s->e, s->memory, 64, ALL, (uintptr_t)context);
        posted(s, context);
    }
    check_all(st);
}

/* Ends the connection, and takes all that is left. */
static void stage_end(struct stage *st, bool death)
{
    if (death)
        st->d.pa->peer.dead = true;
    else
        shmnd_qp_disconnect(&st->d.a->q);
    for (int turn = 0; turn < 200; turn++)
        for (int i = 0; i < 2; i++)
            take(&st->side[i], 8);
    for (int i = 0; i < 2; i++) {
        struct side *s = &st->side[i];
        struct shmnd_contexts_walk walk = {0};
        if (s->e->q.state == SHMND_QP_DOWN && !s->e->q.going_down)
            CHECK(shmnd_qp_next_context(&s->e->q, &walk) == NULL);
        check_side(s);
    }
}

static void each_is_found_once(void)
{
    for (uint64_t seed = 0; seed < number_of("SHMND_CONTEXT_SEEDS", 256); seed++) {
        struct stage *st = guard_alloc(sizeof *st);
        NOTE("seed %u", (uint32_t)seed);
        stage_open(st, seed);
        for (int i = 0; i < 600; i++)
            step(st, &st->side[chance_below(&st->chance, 2)]);
        stage_end(st, seed & 64);
        duo_close(&st->d);
    }
}

static const struct check_test tests[] = {
    TEST(each_is_found_once),
};

MAIN(tests)
