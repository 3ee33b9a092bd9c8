/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches: deferred requests are invisible to the other side, are published by one store, wake
 * once, and never remain unpublished, whatever ends the batch.
 */
#include "world.h"

struct stage {
    struct duo d;
    struct shmnd_receives srq;
    uint8_t *src, *dst, *open;
    uint32_t ta, tb, window;
    bool shared;
};

#define BYTES 200000u

static void stage_open_with(struct stage *s, bool srq, uint32_t depth, bool fitting_rings)
{
    memset(s, 0, sizeof *s);
    struct pair_options o = pair_usual, bo;
    o.receives = o.requests = depth;
    bo = o;
    s->shared = srq;
    if (srq) {
        receives_make(&s->srq, depth, 4);
        bo.srq = &s->srq;
    }
    struct world_options wo = {.segment_bytes = 256 << 10, .fitting_rings = fitting_rings};
    duo_open_with(&s->d, wo, o, bo);
    s->src = shared_bytes(s->d.pa, BYTES);
    s->dst = shared_bytes(s->d.pb, BYTES);
    s->open = shared_bytes(s->d.pb, 64);
    s->ta = region_new(s->d.pa, s->src, BYTES, 0);
    s->tb = region_new(s->d.pb, s->dst, BYTES, 1);
    s->window = window_bind(s->d.b, s->open, 64, SHMND_ALLOW_WRITE, 0);
}

static void stage_open(struct stage *s, bool srq, uint32_t depth)
{
    stage_open_with(s, srq, depth, false);
}

static void begin(struct pair *e)
{
    e->q.batch = true;
}

static void submit(struct pair *e)
{
    shmnd_batch_submit(&e->q);
    advance(e);
}

static void receives(struct stage *s, uint64_t from, uint64_t n)
{
    struct shmnd_sge r = sge(s->dst, BYTES, s->tb);
    for (uint64_t i = from; i < from + n; i++) {
        if (s->shared)
            shmnd_receives_add(&s->srq, (void *)(uintptr_t)i, &r, 1);
        else
            EQUAL(post_receive(s->d.b, i, &r, 1), SHMND_SUCCESS);
    }
}

static void sends(struct stage *s, uint64_t from, uint64_t n, uint32_t bytes)
{
    struct shmnd_sge m = sge(s->src, bytes, s->ta);
    for (uint64_t i = from; i < from + n; i++)
        EQUAL(post_send(s->d.a, i, &m, 1, 0), SHMND_SUCCESS);
}

static bool seen(struct stage *s)
{
    return shmnd_slots_ready(&s->d.b->q.in);
}

static void expect_all(struct stage *s, uint64_t receive, uint64_t send, uint64_t n, uint32_t bytes)
{
    for (uint64_t i = 0; i < n; i++) {
        EXPECT_RECEIVED(s->d.qb, receive + i, bytes);
        EXPECT(s->d.qa, SHMND_SEND, send + i, SHMND_SUCCESS);
    }
}

/* ---- together ------------------------------------------------------------------------------- */

static const uint32_t small[] = {0, 8, 48, 49, 500, SHMND_PLACE_MIN - 1};

/* None is visible before all are published; then they arrive in order and complete. */
static void shown_together(void)
{
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof small / 4; i++) {
            struct stage s;
            bool posted = k & 1;
            NOTE("case %d, %u bytes", k, small[i]);
            stage_open(&s, k & 2, 16);
            if (posted)
                receives(&s, 100, 12);
            begin(s.d.a);
            sends(&s, 0, 12, small[i]);
            CHECK(!seen(&s));
            EQUAL(shmnd_cq_count(&s.d.qa->cq), 0);
            for (int x = 0; x < 10; x++)
                CHECK(queue_turn(s.d.qb) == 0);
            submit(s.d.a);
            CHECK(seen(&s));
            if (!posted)
                receives(&s, 100, 12);
            expect_all(&s, 100, 0, 12, small[i]);
            /* And once more, around the ring. */
            for (uint64_t turn = 0; turn < 40; turn++) {
                receives(&s, 100, 9);
                begin(s.d.a);
                sends(&s, 50, 9, small[(turn + i) % 6]);
                submit(s.d.a);
                expect_all(&s, 100, 50, 9, small[(turn + i) % 6]);
            }
            duo_close(&s.d);
        }
    }
}

static uint64_t rung(struct proc *p)
{
    char rings[64];
    ssize_t times = read(p->doorbell, rings, sizeof rings);
    return times > 0 ? (uint64_t)times : 0;
}

/* A sleeper is woken once, and not before the batch is published; one that waits for solicited
 * messages only if there is one among them. */
static void wakes_once(void)
{
    for (int solicited = 0; solicited < 3; solicited++) {
        struct stage s;
        NOTE("case %d", solicited);
        stage_open(&s, false, 16);
        receives(&s, 100, 10);
        rung(s.d.pb);
        shmnd_bell_arm(&s.d.qb->cq.arming, solicited ? SHMND_ARMED_SOLICITED : SHMND_ARMED_ANY);
        begin(s.d.a);
        struct shmnd_sge m = sge(s.src, 8, s.ta);
        for (uint64_t i = 0; i < 10; i++)
            EQUAL(post_send(s.d.a, i, &m, 1, solicited == 2 && i == 4 ? SHMND_OP_SOLICIT : 0),
                  SHMND_SUCCESS);
        EQUAL(rung(s.d.pb), 0);
        submit(s.d.a);
        EQUAL(rung(s.d.pb), solicited == 1 ? 0 : 1);
        expect_all(&s, 100, 0, 10, 8);
        duo_close(&s.d);
    }
}

/* A sender cannot count on receives of a batch before they are published. */
static void receives_together(void)
{
    struct stage s;
    stage_open(&s, false, 16);
    begin(s.d.b);
    receives(&s, 100, 12);
    EQUAL(shmnd_relaxed64(&s.d.b->q.link.mine->posted), 0);
    sends(&s, 0, 2, 8);
    queue_turn(s.d.qa);
    EQUAL(s.d.qa->got, 0); /* they wait for a receive */
    rung(s.d.pa);
    shmnd_bell_arm(&s.d.qa->cq.arming, SHMND_ARMED_ANY);
    submit(s.d.b);
    EQUAL(rung(s.d.pa), 1);
    EQUAL(shmnd_relaxed64(&s.d.b->q.link.mine->posted), 12);
    queue_turn(s.d.qa);
    EQUAL(s.d.qa->got, 2);
    sends(&s, 2, 10, 8);
    expect_all(&s, 100, 0, 12, 8);
    duo_close(&s.d);
}

/* A message may match a receive that is not published yet: its owner knows both. */
static void met_before_they_are_shown(void)
{
    struct stage s;
    stage_open(&s, false, 16);
    for (uint64_t turn = 0; turn < 30; turn++) {
        NOTE("turn %" PRIu64, turn);
        sends(&s, 0, 3, 8);
        begin(s.d.b);
        receives(&s, 100, 3);
        for (uint64_t i = 0; i < 3; i++)
            EXPECT_RECEIVED(s.d.qb, 100 + i, 8);
        for (uint64_t i = 0; i < 3; i++)
            EXPECT(s.d.qa, SHMND_SEND, i, SHMND_SUCCESS);
        submit(s.d.b);
    }
    duo_close(&s.d);
}

/* Before there is a link, and in an attempt that fails and is repeated. */
static void before_the_connection(void)
{
    struct stage s;
    stage_open(&s, false, 16);
    struct pair *a = pair_new(s.d.qa, s.d.qa, pair_usual),
                *b = pair_new(s.d.qb, s.d.qb, pair_usual);
    struct shmnd_sge r = sge(s.dst, BYTES, s.tb), m = sge(s.src, 8, s.ta);
    begin(b);
    for (uint64_t i = 0; i < 4; i++)
        EQUAL(post_receive(b, i, &r, 1), SHMND_SUCCESS);
    pair_link(a, b);
    for (uint64_t i = 4; i < 8; i++)
        EQUAL(post_receive(b, i, &r, 1), SHMND_SUCCESS);
    pair_open(a);
    shmnd_qp_check_peer(&b->q);
    submit(b);
    for (uint64_t i = 0; i < 8; i++)
        EQUAL(post_send(a, 50 + i, &m, 1, 0), SHMND_SUCCESS);
    for (uint64_t i = 0; i < 8; i++) {
        EXPECT_RECEIVED(s.d.qb, i, 8);
        EXPECT(s.d.qa, SHMND_SEND, 50 + i, SHMND_SUCCESS);
    }
    duo_close(&s.d);
}

/* ---- never stuck --------------------------------------------------------------------------- */

/* More than the ring holds: the batch is published, since the reader must make room. */
static void more_than_the_ring(void)
{
    for (size_t i = 0; i < sizeof small / 4; i++) {
        struct stage s;
        NOTE("%u bytes", small[i]);
        stage_open_with(&s, i & 1, 400, true);
        receives(&s, 1000, 400);
        begin(s.d.a);
        uint64_t held = 0;
        for (sends(&s, 0, 1, small[i]); !seen(&s); sends(&s, held, 1, small[i]))
            held++;
        CHECK(held > 2);
        sends(&s, held + 1, 399 - held, small[i]);
        for (uint64_t k = 0; k < 400; k++) {
            EXPECT_RECEIVED(s.d.qb, 1000 + k, small[i]);
            EXPECT(s.d.qa, SHMND_SEND, k, SHMND_SUCCESS);
        }
        submit(s.d.a);
        CHECK(nothing(s.d.qa) && nothing(s.d.qb));
        duo_close(&s.d);
    }
}

/* More than the queue pair's depth, with receives posted: no call is refused for it. */
static void more_than_the_depth(void)
{
    struct stage s;
    stage_open(&s, false, 40);
    s.d.a->q.wq.depth = 8;
    for (uint64_t turn = 0; turn < 10; turn++) {
        receives(&s, 100, 40);
        begin(s.d.a);
        sends(&s, 0, 40, 8);
        CHECK(seen(&s));
        submit(s.d.a);
        expect_all(&s, 100, 0, 40, 8);
    }
    duo_close(&s.d);
}

/* A message that needs more than the ring is not deferred, and publishes those before it. */
static void a_longer_message_shows_them(void)
{
    static const uint32_t bytes[] = {2000, 20000, 100000};
    for (int k = 0; k < 6; k++) {
        struct stage s;
        NOTE("case %d", k);
        stage_open(&s, k & 1, 16);
        receives(&s, 100, 8);
        begin(s.d.a);
        sends(&s, 0, 3, 8);
        CHECK(!seen(&s));
        sends(&s, 3, 1, bytes[k / 2]);
        CHECK(seen(&s));
        expect_all(&s, 100, 0, 3, 8);
        expect_all(&s, 103, 3, 1, bytes[k / 2]);
        duo_close(&s.d);
    }
}

/* A request behind them keeps its place: it waits until they are published. */
static void a_write_behind_waits(void)
{
    for (int k = 0; k < 2; k++) {
        struct stage s;
        stage_open(&s, false, 16);
        memset(s.src, 7, 8);
        if (k)
            receives(&s, 100, 8);
        begin(s.d.a);
        sends(&s, 0, 3, 8);
        struct shmnd_sge m = sge(s.src, 8, s.ta);
        EQUAL(post_rdma(s.d.a, 3, SHMND_WRITE, &m, 1, s.open, s.window, 0), SHMND_SUCCESS);
        EQUAL(s.open[0], 0);
        EQUAL(shmnd_cq_count(&s.d.qa->cq), 0);
        submit(s.d.a);
        EQUAL(s.open[0], k ? 7 : 0);
        if (!k)
            receives(&s, 100, 8);
        expect_all(&s, 100, 0, 3, 8);
        EXPECT(s.d.qa, SHMND_WRITE, 3, SHMND_SUCCESS);
        EQUAL(s.open[0], 7);
        duo_close(&s.d);
    }
}

/* A batch that is never submitted: a poll of either end's queue is enough. */
static void never_submitted(void)
{
    for (int k = 0; k < 4; k++) {
        struct stage s;
        NOTE("case %d", k);
        stage_open(&s, k & 2, 16);
        if (k & 1)
            receives(&s, 100, 8);
        begin(s.d.a);
        begin(s.d.b);
        sends(&s, 0, 8, 8);
        queue_turn(s.d.qa);
        CHECK(seen(&s));
        if (!(k & 1))
            receives(&s, 100, 8);
        expect_all(&s, 100, 0, 8, 8);
        /* The batch is still open. */
        receives(&s, 100, 8);
        queue_turn(s.d.qb);
        sends(&s, 0, 8, 8);
        CHECK(!seen(&s));
        expect_all(&s, 100, 0, 8, 8);
        duo_close(&s.d);
    }
}

/* Requests that a poll issues from the queue are not deferred until the next poll. */
static void a_poll_leaves_nothing_behind(void)
{
    struct stage s;
    stage_open(&s, false, 400);
    /* Where its reader cannot take it from the backlog. */
    s.src = guard_alloc(64);
    s.ta = region_new(s.d.pa, s.src, 64, 0);
    shmnd_put32(&s.d.b->q.link.mine->reaches, 2);
    receives(&s, 1000, 400);
    begin(s.d.a);
    sends(&s, 0, 300, 8);
    queue_turn(s.d.qa);
    for (int i = 0; i < 40; i++)
        queue_turn(s.d.qb); /* the ring is empty */
    queue_turn(s.d.qa);
    EQUAL(s.d.a->q.deferred, false);
    CHECK(seen(&s));
    duo_close(&s.d);
}

static void ended_by_a_flush(void)
{
    for (int posted = 0; posted < 2; posted++) {
        struct stage s;
        NOTE("posted %d", posted);
        stage_open(&s, false, 16);
        if (posted)
            receives(&s, 100, 8);
        begin(s.d.a);
        sends(&s, 0, 8, 8);
        shmnd_qp_flush(&s.d.a->q);
        settle(s.d.a);
        for (uint64_t i = 0; i < 8; i++)
            EXPECT(s.d.qa, SHMND_SEND, i, posted ? SHMND_SUCCESS : SHMND_CANCELED);
        if (!posted)
            receives(&s, 100, 8);
        submit(s.d.a);
        if (!posted)
            sends(&s, 0, 8, 8);
        for (uint64_t i = 0; i < 8; i++)
            EXPECT_RECEIVED(s.d.qb, 100 + i, 8);
        duo_close(&s.d);
    }
}

static void receives_ended_by_a_flush(void)
{
    struct stage s;
    stage_open(&s, false, 16);
    for (uint64_t turn = 0; turn < 20; turn++) {
        NOTE("turn %" PRIu64, turn);
        begin(s.d.b);
        receives(&s, 100, 8);
        if (turn % 2)
            sends(&s, 0, 3, 8);
        shmnd_qp_flush(&s.d.b->q);
        settle(s.d.b);
        for (uint64_t i = 0; i < 8; i++)
            EXPECT(s.d.qb, SHMND_RECEIVE, 100 + i,
                   turn % 2 && i < 3 ? SHMND_SUCCESS : SHMND_CANCELED);
        receives(&s, 200, 2);
        submit(s.d.b);
        sends(&s, 3, 2, 8);
        for (uint64_t i = turn % 2 ? 0 : 3; i < 5; i++)
            EXPECT(s.d.qa, SHMND_SEND, i, SHMND_SUCCESS);
        EXPECT_RECEIVED(s.d.qb, 200, 8);
        EXPECT_RECEIVED(s.d.qb, 201, 8);
    }
    duo_close(&s.d);
}

/* Whichever side ends the connection: every request completes, and successes were received. */
static void ended_by_the_connection(void)
{
    for (int k = 0; k < 16; k++) {
        struct stage s;
        bool posted = k & 1, by_sender = k & 2, dies = k & 4;
        NOTE("case %d", k);
        stage_open(&s, k & 8, 16);
        if (posted)
            receives(&s, 100, 8);
        begin(s.d.a);
        begin(s.d.b);
        if (!s.shared)
            receives(&s, 200, 4); /* held, as are the Sends */
        sends(&s, 0, 8, 8);
        if (dies)
            peer_dies(by_sender ? s.d.pb : s.d.pa);
        else
            disconnect(by_sender ? s.d.a : s.d.b);
        uint32_t sent = 0, received = 0;
        if (!(dies && by_sender))
            for (uint64_t i = 0; i < 8; i++)
                sent += next(s.d.qa).status == SHMND_SUCCESS;
        if (!(dies && !by_sender)) {
            world_turns(&s.d.w, 20);
            for (uint32_t i = 0; i < s.d.qb->got; i++)
                received += s.d.qb->inbox[i].status == SHMND_SUCCESS;
            EQUAL(s.d.qb->got, s.shared ? received : (posted ? 8 : 0) + 4);
        }
        if (!dies)
            CHECK(sent <= received);
        if (by_sender && !dies && posted && !s.shared)
            EQUAL(sent, 8);
        duo_close(&s.d);
    }
}

/* ---- with other requests ------------------------------------------------------------------- */

/* Sends of every kind, Writes, an invalidating Send: in order, as without a batch. */
static void mixed(void)
{
    static const uint32_t bytes[] = {8, 1023, 2000, 3576, 20000, 100000, 0, 49};
    struct chance chance = {5};
    for (int round = 0; round < 300; round++) {
        struct stage s;
        NOTE("round %d", round);
        stage_open(&s, round % 4 == 3, 64);
        fill(s.src, BYTES, (uint64_t)round);
        uint64_t posted = 0, sent = 0, want[64];
        uint32_t length[64], done = 0, got = 0;
        bool window = true;
        for (int step = 0; step < 60; step++) {
            uint64_t what = chance_below(&chance, 10);
            if (what == 0)
                begin(chance_below(&chance, 2) ? s.d.a : s.d.b);
            else if (what == 1)
                submit(chance_below(&chance, 2) ? s.d.a : s.d.b);
            else if (what < 5 && posted < 40)
                receives(&s, posted++, 1);
            else if (what == 5)
                queue_turn(chance_below(&chance, 2) ? s.d.qa : s.d.qb);
            else if (sent < 40) {
                struct shmnd_sge m = sge(s.src, bytes[chance_below(&chance, 8)], s.ta);
                uint64_t context = sent;
                if (what == 6 && window) {
                    EQUAL(post_invalidating(s.d.a, context, &m, 1, s.window, 0), SHMND_SUCCESS);
                    window = false;
                } else if (what == 7 && window) {
                    m.length = 8;
                    EQUAL(post_rdma(s.d.a, context, SHMND_WRITE, &m, 1, s.open, s.window, 0),
                          SHMND_SUCCESS);
                    m.length = UINT32_MAX;
                } else {
                    EQUAL(post_send(s.d.a, context, &m, 1, 0), SHMND_SUCCESS);
                }
                want[sent] = context;
                length[sent++] = m.length;
            }
        }
        submit(s.d.a);
        submit(s.d.b);
        uint64_t messages = 0;
        for (uint64_t i = 0; i < sent; i++)
            messages += length[i] != UINT32_MAX;
        if (posted < messages) {
            receives(&s, posted, messages - posted);
            posted = messages;
        }
        for (uint64_t i = 0; i < sent; i++) {
            struct shmnd_cqe e = next(s.d.qa);
            EQUAL((uintptr_t)e.context, want[done++]);
            EQUAL(e.status, SHMND_SUCCESS);
        }
        for (uint64_t i = 0; i < sent; i++) {
            if (length[i] == UINT32_MAX)
                continue;
            EXPECT_RECEIVED(s.d.qb, got, length[i]);
            got++;
        }
        duo_close(&s.d);
    }
}

/* No request behind a failed Send is sent, also while a large one before it is not whole. */
static void behind_one_that_failed(void)
{
    struct stage s;
    bool kept;
    stage_open(&s, false, 16);
    receives(&s, 0, 3);
    struct shmnd_qp *q = &s.d.a->q;
    struct shmnd_sge large = sge(s.src, BYTES, s.ta), none = sge(s.src, 8, s.ta + 1);
    EQUAL(shmnd_post_send(q, (void *)0, &large, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(q), SHMND_RUN);
    struct shmnd_job peers = q->tx.job; /* the peer copies a chunk, long */
    CHECK(shmnd_chunks_claim_one(peers.share, &peers.chunks, true) >= 0);
    shmnd_tx_run(q);
    shmnd_tx_run_done(q);
    EQUAL(post_send(s.d.a, 1, &none, 1, 0), SHMND_SUCCESS);
    begin(s.d.a);
    sends(&s, 2, 1, 8);
    submit(s.d.a);
    EQUAL(q->messages, 1);
    shmnd_chunks_complete(peers.share, 1);
    EXPECT_RECEIVED(s.d.qb, 0, BYTES);
    EXPECT(s.d.qb, SHMND_RECEIVE, 1, SHMND_CANCELED);
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_ACCESS_VIOLATION);
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_CANCELED);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(shown_together),
    TEST(wakes_once),
    TEST(receives_together),
    TEST(met_before_they_are_shown),
    TEST(before_the_connection),
    TEST(more_than_the_ring),
    TEST(more_than_the_depth),
    TEST(a_longer_message_shows_them),
    TEST(a_write_behind_waits),
    TEST(never_submitted),
    TEST(a_poll_leaves_nothing_behind),
    TEST(ended_by_a_flush),
    TEST(receives_ended_by_a_flush),
    TEST(ended_by_the_connection),
    TEST(behind_one_that_failed),
    TEST(mixed),
};

MAIN(tests)
