/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends whose bytes were taken by their post, and which are placed because their slots would take
 * the room of the messages behind them. Either side acts before the copy, at its end, and after it:
 * both agree on what was received, no memory is written after it was given back, and a window is
 * invalidated by exactly those messages that were received.
 */
#include "check.h"

#define SHMND_KILL_POINTS
void shmnd_kill_point(const char *name);

#include "world.h"

#define DEPTH 4u
#define SIZE 1024u
#define TOLD 500u
#define ALL (SHMND_ALLOW_READ | SHMND_ALLOW_WRITE)

/* What happens once, when a thread comes to a place. */
static const char *place;
static void (*act)(void);

static uint32_t placed; /* how often the copy into a receive has run */

void shmnd_kill_point(const char *name)
{
    placed += strcmp(name, "message-placed") == 0;
    if (!place || strcmp(name, place))
        return;
    place = NULL;
    act();
}

struct scene {
    struct duo d;
    uint8_t *into[DEPTH], *window_at;
    uint32_t regions[DEPTH], window;
    uint8_t loose[SIZE];
    bool is_private;
};

static struct scene s;

static void receive(uint32_t i, uint64_t context)
{
    struct shmnd_sge r = sge(s.into[i], SIZE, s.regions[i]);
    EQUAL(post_receive(s.d.b, context, &r, 1), SHMND_SUCCESS);
}

static void open_scene(bool is_private, bool unmapped)
{
    struct pair_options o = pair_usual;
    o.receives = o.requests = DEPTH;
    o.inline_size = SIZE;
    memset(&s, 0, sizeof s);
    s.is_private = is_private;
    duo_open_with(&s.d, (struct world_options){.fitting_rings = true, .unmapped = unmapped}, o, o);
    for (uint32_t i = 0; i < DEPTH; i++) {
        s.into[i] = is_private ? guard_alloc(SIZE) : shared_bytes(s.d.pb, SIZE);
        s.regions[i] = region_new(s.d.pb, s.into[i], SIZE, SHMND_MR_LOCAL_WRITE);
    }
    s.window_at = shared_bytes(s.d.pb, 64);
    region_new(s.d.pb, s.window_at, 64, SHMND_MR_LOCAL_WRITE);
    s.window = window_bind(s.d.b, s.window_at, 64, ALL, TOLD);
}

/* Posts without issuing. Its bytes are lost to the program when the call returns. */
static void post(uint64_t context, bool invalidates)
{
    struct shmnd_sge m = sge(s.loose, SIZE, 0);
    struct shmnd_qp *q = &s.d.a->q;
    bool kept;
    fill(s.loose, SIZE, context);
    uint32_t status =
        invalidates ? shmnd_post_send_invalidate(q, (void *)(uintptr_t)context, &m, 1, s.window,
                                                 SHMND_OP_INLINE)
                    : shmnd_post_send(q, (void *)(uintptr_t)context, &m, 1, SHMND_OP_INLINE, &kept);
    EQUAL(status, SHMND_SUCCESS);
    memset(s.loose, 0xee, SIZE);
}

static bool alive(void)
{
    return shmnd_relaxed32(&shmnd_grant_entry(&s.d.pb->registry, s.window)->token) == s.window;
}

/* ---- what a side does meanwhile ------------------------------------------------------------- */

static bool released;
static uint64_t since;

static void check_released(void)
{
    if (!released && shmnd_qp_has_released(&s.d.b->q, s.regions[1], &since, 1)) {
        released = true;
        memset(s.into[1], 0x77, SIZE);
    }
}

static void owner_flushes(void)
{
    shmnd_qp_flush(&s.d.b->q);
    settle(s.d.b);
}

static void owner_deregisters(void)
{
    region_withdraw(s.d.pb, s.regions[1]);
    check_released();
}

static void owner_leaves(void)
{
    disconnect(s.d.b);
}

static void owner_dies(void)
{
    s.d.pa->peer.dead = true;
}

static void owner_polls(void)
{
    queue_turn(s.d.qb);
}

static void sender_flushes(void)
{
    shmnd_qp_flush(&s.d.a->q);
}

static void sender_leaves(void)
{
    shmnd_qp_disconnect(&s.d.a->q);
}

static void sender_polls(void)
{
    struct shmnd_cqe out[4];
    struct shmnd_todo todo;
    uint32_t n = shmnd_cq_poll(&s.d.qa->cq, out, 4, &todo);
    for (uint32_t i = 0; i < n; i++)
        s.d.qa->inbox[s.d.qa->got++] = out[i];
}

static void (*const acts[])(void) = {owner_flushes, owner_deregisters, owner_leaves,  owner_dies,
                                     owner_polls,   sender_flushes,    sender_leaves, sender_polls};
static const char *const places[] = {"push-entered", "message-placed", NULL, NULL};
#define ACTS (sizeof acts / sizeof acts[0])
#define PLACES (sizeof places / sizeof places[0])

/* Issues the second message, which has to be placed; `act` comes at the place. */
static void place_it(size_t where)
{
    struct shmnd_qp *q = &s.d.a->q;
    EQUAL(shmnd_tx_advance(q), SHMND_RUN);
    EQUAL(q->tx.job.kind, SHMND_JOB_PLACE);
    q->tx.started = true;
    if (where == 2)
        act();
    place = places[where];
    shmnd_tx_run(q);
    CHECK(!place);
    if (where == 3)
        act();
    shmnd_tx_run_done(q);
    advance(s.d.a);
}

struct seen {
    uint32_t count, status;
};

static struct seen find(const struct queue *c, uint32_t type, uint64_t context)
{
    struct seen got = {0, 0};
    for (uint32_t i = 0; i < c->got; i++)
        if (c->inbox[i].type == type && (uintptr_t)c->inbox[i].context == context) {
            got.count++;
            got.status = c->inbox[i].status;
        }
    return got;
}

static void both_agree(size_t what, bool invalidates)
{
    bool dead = acts[what] == owner_dies, leaves = acts[what] == owner_leaves,
         ends = dead || leaves || acts[what] == sender_leaves;
    for (int i = 0; i < 40; i++) {
        queue_turn(s.d.qa);
        if (!dead)
            queue_turn(s.d.qb);
        if (acts[what] == owner_deregisters)
            check_released();
    }
    if (acts[what] == owner_flushes && find(s.d.qb, SHMND_RECEIVE, 11).status != SHMND_SUCCESS) {
        /* The message waits for a further receive, and the window stays. A plain one may have
         * succeeded because of the receive before. */
        EQUAL(find(s.d.qb, SHMND_RECEIVE, 11).status, SHMND_CANCELED);
        CHECK(!invalidates || find(s.d.qa, SHMND_SEND, 2).count == 0);
        CHECK(alive());
        for (uint32_t i = 0; i < s.d.qb->got; i++)
            if ((uintptr_t)s.d.qb->inbox[i].context == 11)
                s.d.qb->inbox[i].context = NULL;
        receive(1, 11);
        world_turns(&s.d.w, 20);
    }
    struct seen sent = find(s.d.qa, SHMND_SEND, 2), got = find(s.d.qb, SHMND_RECEIVE, 11),
                told = find(s.d.qb, SHMND_INVALIDATE, TOLD);
    EQUAL(sent.count, 1);
    if (dead) {
        CHECK(sent.status != SHMND_SUCCESS || filled(s.into[1], SIZE, 2));
        return;
    }
    bool received = got.count && got.status == SHMND_SUCCESS;
    EQUAL(told.count, invalidates && received);
    EQUAL(alive(), !(invalidates && received));
    /* A Send that was placed may have succeeded before the memory was withdrawn. */
    if (invalidates || acts[what] != owner_deregisters)
        EQUAL(sent.status == SHMND_SUCCESS, received);
    if (received && !released)
        CHECK(filled(s.into[1], SIZE, 2));
    if (acts[what] == owner_deregisters)
        CHECK(released);
    for (uint32_t i = 0; released && i < SIZE; i++)
        EQUAL(s.into[1][i], 0x77);
    if (ends || acts[what] == owner_deregisters)
        return;
    /* The connection lives: further messages arrive, each in the oldest receive. */
    EQUAL(s.d.a->q.state, SHMND_QP_CONNECTED);
    uint32_t at = acts[what] == owner_flushes || received ? 2 : 1;
    uint64_t context = 10 + at;
    if (acts[what] == owner_flushes) {
        EQUAL(find(s.d.qb, SHMND_RECEIVE, 12).status, SHMND_CANCELED);
        receive(2, context = 22);
    }
    post(3, false);
    advance(s.d.a);
    world_turns(&s.d.w, 20);
    EQUAL(find(s.d.qa, SHMND_SEND, 3).status, SHMND_SUCCESS);
    got = find(s.d.qb, SHMND_RECEIVE, context);
    EQUAL(got.count, 1);
    EQUAL(got.status, SHMND_SUCCESS);
    CHECK(filled(s.into[at], SIZE, 3));
}

/* A queue of four: the first message fills the ring beyond what the second one needs. */
static void a_side_acts_meanwhile(void)
{
    for (uint32_t k = 0; k < 8; k++)
        for (size_t where = 0; where < PLACES; where++)
            for (size_t what = 0; what < ACTS; what++) {
                bool invalidates = k & 1, behind = k & 4;
                NOTE("case %u, place %zu, act %zu", k, where, what);
                open_scene(k & 2, false);
                for (uint32_t i = 0; i < 3; i++)
                    receive(i, 10 + i);
                released = false;
                since = 0;
                act = acts[what];
                post(1, false);
                advance(s.d.a);
                post(2, invalidates);
                if (behind) {
                    struct shmnd_sge m = sge(NULL, 0, 0);
                    bool kept;
                    EQUAL(shmnd_post_send(&s.d.a->q, (void *)9, &m, 0, 0, &kept), SHMND_SUCCESS);
                }
                if (behind && (acts[what] == owner_flushes || acts[what] == sender_flushes ||
                               acts[what] == owner_polls || acts[what] == sender_polls)) {
                    duo_close(&s.d);
                    continue; /* what it meets depends on the rest */
                }
                place_it(where);
                both_agree(what, invalidates);
                duo_close(&s.d);
            }
}

/* Recalled when it was placed: neither its Receive nor its window sees it, and the next message
 * takes both. */
static void taken_back(void)
{
    for (uint32_t k = 0; k < 2; k++) {
        NOTE("private %u", k);
        open_scene(k, false);
        for (uint32_t i = 0; i < 3; i++)
            receive(i, 10 + i);
        post(1, false);
        advance(s.d.a);
        post(2, true);
        place = NULL;
        advance(s.d.a);
        CHECK(filled(s.into[1], SIZE, 2)); /* placed */
        queue_turn(s.d.qa);
        shmnd_qp_flush(&s.d.a->q);
        settle(s.d.a);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_CANCELED);
        EXPECT_RECEIVED(s.d.qb, 10, SIZE);
        CHECK(nothing(s.d.qb));
        CHECK(alive());
        post(3, true);
        advance(s.d.a);
        EXPECT_RECEIVED(s.d.qb, 11, SIZE);
        EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
        CHECK(filled(s.into[1], SIZE, 3));
        EXPECT(s.d.qa, SHMND_SEND, 3, SHMND_SUCCESS);
        CHECK(!alive());
        CHECK(nothing(s.d.qb));
        duo_close(&s.d);
    }
}

/* The receiver's segment was not mapped yet when the message had to be placed. */
static void a_segment_is_mapped_first(void)
{
    for (uint32_t invalidates = 0; invalidates < 2; invalidates++) {
        open_scene(false, true);
        for (uint32_t i = 0; i < 3; i++)
            receive(i, 10 + i);
        post(1, false);
        advance(s.d.a);
        CHECK(!s.d.pa->peer.data[0].base);
        post(2, invalidates);
        advance(s.d.a);
        CHECK(s.d.pa->peer.data[0].base);
        CHECK(filled(s.into[1], SIZE, 2));
        /* Unmapped again, between the choice and the copy. */
        if (!invalidates) {
            post(3, false);
            struct shmnd_qp *q = &s.d.a->q;
            EQUAL(shmnd_tx_advance(q), SHMND_RUN);
            s.d.pa->peer.unmapped++;
            s.d.pa->peer.data[0] = (struct shmnd_mapping){0};
            q->tx.started = true;
            shmnd_tx_run(q);
            shmnd_tx_run_done(q);
            EQUAL(s.into[2][0], 0);
            advance(s.d.a);
            CHECK(filled(s.into[2], SIZE, 3));
        }
        EXPECT_RECEIVED(s.d.qb, 10, SIZE);
        EXPECT_RECEIVED(s.d.qb, 11, SIZE);
        if (invalidates)
            EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
        else
            EXPECT_RECEIVED(s.d.qb, 12, SIZE);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
        duo_close(&s.d);
    }
}

/* In a batch, and posted one by one, of every length and in every order: a stream through a ring
 * that is mostly full. To a shared receive queue, nothing is placed. */
static void streams(void)
{
    uint32_t placed_in_all = 0;
    for (uint32_t round = 0; round < 400; round++) {
        placed = 0;
        struct chance c = {round + 1};
        struct duo d;
        struct shmnd_receives srq;
        struct pair_options o = pair_usual, b = pair_usual;
        bool shared = round & 1, apart = round & 2;
        NOTE("round %u", round);
        o.receives = o.requests = b.receives = b.requests = DEPTH;
        o.inline_size = SIZE;
        if (shared) {
            receives_make(&srq, DEPTH, 4);
            b.srq = &srq;
        }
        duo_open_with(&d, (struct world_options){.fitting_rings = true, .no_vm = round & 4}, o, b);
        uint8_t *into[DEPTH], loose[SIZE];
        uint32_t tokens[DEPTH], lengths[64], posted = 0, sent = 0, received = 0;
        for (uint32_t i = 0; i < DEPTH; i++) {
            into[i] = apart ? guard_alloc(SIZE) : shared_bytes(d.pb, SIZE);
            tokens[i] = region_new(d.pb, into[i], SIZE, SHMND_MR_LOCAL_WRITE);
        }
        while (received < 48) {
            uint32_t what = (uint32_t)chance_below(&c, 4);
            uint32_t behind = d.a->q.wq.end - d.a->q.wq.oldest;
            if (what == 0 && posted - received < DEPTH) {
                struct shmnd_sge r = sge(into[posted % DEPTH], SIZE, tokens[posted % DEPTH]);
                if (shared)
                    shmnd_receives_add(&srq, (void *)(uintptr_t)posted, &r, 1);
                else
                    EQUAL(post_receive(d.b, posted, &r, 1), SHMND_SUCCESS);
                posted++;
            } else if (what == 1 && behind < DEPTH && sent < 48) {
                d.a->q.batch = chance_below(&c, 2);
                for (uint32_t n = 1 + (uint32_t)chance_below(&c, DEPTH - behind); n && sent < 48;
                     n--) {
                    lengths[sent] = chance_below(&c, 2) ? SIZE : (uint32_t)chance_below(&c, SIZE);
                    fill(loose, lengths[sent], sent);
                    struct shmnd_sge m = sge(loose, lengths[sent], 0);
                    EQUAL(post_send(d.a, sent, &m, 1, SHMND_OP_INLINE), SHMND_SUCCESS);
                    memset(loose, 0, SIZE);
                    sent++;
                }
                if (d.a->q.batch) {
                    shmnd_batch_submit(&d.a->q);
                    advance(d.a);
                }
            } else if (what == 2) {
                queue_turn(d.qa);
            } else if (queue_turn(d.qb)) {
                for (uint32_t i = 0; i < d.qb->got; i++, received++) {
                    struct shmnd_cqe e = d.qb->inbox[i];
                    EQUAL(e.status, SHMND_SUCCESS);
                    EQUAL((uintptr_t)e.context, received);
                    EQUAL(e.bytes, lengths[received]);
                    CHECK(filled(into[received % DEPTH], e.bytes, received));
                }
                d.qb->got = 0;
            }
        }
        CHECK(!shared || placed == 0);
        placed_in_all += placed;
        duo_close(&d);
    }
    CHECK(placed_in_all > 100);
}

static const struct check_test tests[] = {
    TEST(a_side_acts_meanwhile),
    TEST(taken_back),
    TEST(a_segment_is_mapped_first),
    TEST(streams),
};
MAIN(tests)
