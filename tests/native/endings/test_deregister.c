/* SPDX-License-Identifier: Apache-2.0
 *
 * When a connection releases memory that its owner deregisters: not before the last copy from or
 * to it by either side has ended, and at once when there is none.
 *
 * Released memory is overwritten; no later operation may change it.
 */
#include "world.h"

#define LENGTH (SHMND_PLACE_PRIVATE_MAX + 5000) /* in chunks, from private memory as well */
#define OVER 0x88

struct scene {
    struct duo d;
    uint8_t *from, *into;
    uint32_t source, sink;
};

static void open_scene(struct scene *s, bool private)
{
    duo_open_with(&s->d, (struct world_options){.no_vm = private}, pair_usual, pair_usual);
    s->from = private ? guard_alloc(LENGTH) : shared_bytes(s->d.pa, LENGTH);
    s->into = shared_bytes(s->d.pb, LENGTH);
    fill(s->from, LENGTH, 1);
    s->source = region_new(s->d.pa, s->from, LENGTH, SHMND_MR_LOCAL_WRITE);
    s->sink = region_new(s->d.pb, s->into, LENGTH, SHMND_MR_LOCAL_WRITE | SHMND_MR_REMOTE_WRITE);
}

/* A posted receive, and the large message for it, which is announced and not yet copied. */
static void announce(struct scene *s)
{
    struct shmnd_sge m = sge(s->from, LENGTH, s->source), r = sge(s->into, LENGTH, s->sink);
    bool kept;
    EQUAL(post_receive(s->d.b, 1, &r, 1), SHMND_SUCCESS);
    EQUAL(shmnd_post_send(&s->d.a->q, NULL, &m, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(&s->d.a->q), SHMND_RUN);
}

/* It is matched to its receive. */
static void meet(struct scene *s, enum shmnd_progress then)
{
    struct shmnd_cqe e;
    struct shmnd_todo todo;
    EQUAL(shmnd_cq_poll(&s->d.qb->cq, &e, 1, &todo), 0);
    EQUAL(todo.what, then);
    CHECK(s->d.b->q.rx.open);
}

static bool lets_go(struct pair *e, uint32_t token)
{
    uint64_t since = 0;
    return shmnd_qp_has_released(&e->q, token, &since, shmnd_coarse_ns());
}

static void sender_runs(struct scene *s)
{
    shmnd_tx_run(&s->d.a->q);
    shmnd_tx_run_done(&s->d.a->q);
}

/* Write a message of a batch, for a receive that is posted. */
static void defer(struct scene *s, uint32_t length)
{
    struct shmnd_sge m = sge(s->from, length, s->source), r = sge(s->into, length, s->sink);
    bool kept;
    EQUAL(post_receive(s->d.b, 1, &r, 1), SHMND_SUCCESS);
    s->d.a->q.batch = true;
    EQUAL(shmnd_post_send(&s->d.a->q, (void *)2, &m, 1, 0, &kept), SHMND_SUCCESS);
    CHECK(s->d.a->q.deferred);
}

/* Released memory stays as its owner wrote it until both sides are done. */
static void close_scene(struct scene *s, uint8_t *memory, uint32_t received)
{
    memset(memory, OVER, LENGTH);
    EXPECT(s->d.qb, SHMND_RECEIVE, 1, received);
    world_turns(&s->d.w, 8);
    for (uint32_t i = 0; i < LENGTH; i++)
        EQUAL(memory[i], OVER);
    duo_close(&s->d);
}

/* ---- receives ---------------------------------------------------------------------------- */

/* The receiver's copy is only prepared at first; the sender's runs until the end. */
static void a_large_message_keeps_its_receive_until_it_is_whole(void)
{
    struct scene s;
    open_scene(&s, false);
    announce(&s);
    struct shmnd_job *push = &s.d.a->q.tx.job;
    CHECK(shmnd_push_enter(&s.d.a->q, push->revision));
    EQUAL(shmnd_chunks_claim_one(push->share, &push->chunks, false), 0);
    meet(&s, SHMND_RUN);
    region_withdraw(s.d.pb, s.sink);
    CHECK(!lets_go(s.d.b, s.sink));
    CHECK(shmnd_qp_needs_progress(&s.d.b->q));
    settle(s.d.b);
    CHECK(!shmnd_qp_needs_progress(&s.d.b->q));
    CHECK(!lets_go(s.d.b, s.sink));
    memcpy(s.into, s.from, push->chunks.size);
    shmnd_chunks_complete(push->share, 1);
    CHECK(lets_go(s.d.b, s.sink));
    CHECK(filled(s.into, LENGTH, 1));
    shmnd_hazard_leave(&s.d.a->q.link.mine->hazard);
    sender_runs(&s);
    close_scene(&s, s.into, SHMND_SUCCESS);
}

/* A push that has not begun yet sets no hazard word. */
static void a_push_begins_when_the_receive_is_met(void)
{
    struct scene s;
    open_scene(&s, true);
    announce(&s);
    meet(&s, SHMND_IDLE);
    region_withdraw(s.d.pb, s.sink);
    CHECK(!lets_go(s.d.b, s.sink));
    sender_runs(&s);
    CHECK(!lets_go(s.d.b, s.sink));
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN); /* the receiver leaves its half to the sender */
    sender_runs(&s);
    CHECK(lets_go(s.d.b, s.sink));
    CHECK(filled(s.into, LENGTH, 1));
    close_scene(&s, s.into, SHMND_SUCCESS);
}

static void a_push_begins_no_more_when_the_receive_is_not_met(void)
{
    struct scene s;
    open_scene(&s, true);
    announce(&s);
    region_withdraw(s.d.pb, s.sink);
    CHECK(lets_go(s.d.b, s.sink));
    sender_runs(&s);
    close_scene(&s, s.into, SHMND_ACCESS_VIOLATION);
}

/* A push that has begun delays the release. */
static void a_receive_that_is_not_met_keeps_its_memory_while_it_is_pushed_to(void)
{
    struct scene s;
    open_scene(&s, true);
    announce(&s);
    CHECK(shmnd_push_enter(&s.d.a->q, s.d.a->q.tx.job.revision));
    region_withdraw(s.d.pb, s.sink);
    CHECK(!lets_go(s.d.b, s.sink));
    shmnd_hazard_leave(&s.d.a->q.link.mine->hazard);
    CHECK(lets_go(s.d.b, s.sink));
    sender_runs(&s);
    close_scene(&s, s.into, SHMND_ACCESS_VIOLATION);
}

/* A message in parts is only in the ring; its further parts find no memory. */
static void a_message_in_parts_keeps_nothing(void)
{
    struct scene s;
    open_scene(&s, true);
    s.from = guard_alloc(LENGTH);
    uint8_t *into = guard_alloc(LENGTH);
    struct shmnd_sge m = sge(s.from, LENGTH, region_new(s.d.pa, s.from, LENGTH, 0));
    struct shmnd_sge r = sge(into, LENGTH, region_new(s.d.pb, into, LENGTH, 1));
    EQUAL(post_receive(s.d.b, 1, &r, 1), SHMND_SUCCESS);
    pair_never_bounces(s.d.a);
    EQUAL(post_send(s.d.a, 0, &m, 1, 0), SHMND_SUCCESS);
    meet(&s, SHMND_IDLE);
    EQUAL(s.d.b->q.rx.kind, SHMND_KIND_PART);
    region_withdraw(s.d.pb, r.token);
    CHECK(lets_go(s.d.b, r.token));
    close_scene(&s, into, SHMND_ACCESS_VIOLATION);
}

/* A Flush withdraws receives too, and only one of the two can at a time. */
static void a_flush_comes_first(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_sge r = sge(s.into, LENGTH, s.sink);
    EQUAL(post_receive(s.d.b, 1, &r, 1), SHMND_SUCCESS);
    CHECK(shmnd_push_enter(&s.d.a->q, 0));
    shmnd_qp_flush(&s.d.b->q);
    settle(s.d.b);
    region_withdraw(s.d.pb, s.sink);
    CHECK(!lets_go(s.d.b, s.sink));
    shmnd_hazard_leave(&s.d.a->q.link.mine->hazard);
    CHECK(!lets_go(s.d.b, s.sink));
    EQUAL(s.d.b->q.revision & 1, 1);
    settle(s.d.b);
    CHECK(lets_go(s.d.b, s.sink));
    close_scene(&s, s.into, SHMND_CANCELED);
}

/* A peer that counts chunks as done early does not end this side's own copy. */
static void an_own_copy_is_over_when_its_thread_ends_it(void)
{
    struct scene s;
    open_scene(&s, false);
    announce(&s);
    meet(&s, SHMND_RUN);
    region_withdraw(s.d.pb, s.sink);
    struct shmnd_job *copy = &s.d.b->q.rx.job;
    EQUAL(shmnd_chunks_claim_one(copy->share, &copy->chunks, false), 0);
    s.d.b->q.rx.busy = true;
    shmnd_put64(&copy->share->done, 1ull << 32);
    CHECK(!lets_go(s.d.b, s.sink));
    shmnd_rx_run(&s.d.b->q);
    CHECK(!lets_go(s.d.b, s.sink));
    shmnd_rx_run_done(&s.d.b->q);
    CHECK(lets_go(s.d.b, s.sink));
    sender_runs(&s);
    close_scene(&s, s.into, SHMND_SUCCESS);
}

/* A refused receive: its sender may be writing to it until the connection is down. */
static void a_refused_receive_is_kept_until_the_end(void)
{
    struct scene s;
    struct shmnd_cqe e;
    bool kept;
    open_scene(&s, false);
    uint32_t half = LENGTH / 2, other = region_new(s.d.pb, s.into + half, half, 1);
    struct shmnd_sge m = sge(s.from, LENGTH, s.source);
    struct shmnd_sge r[2] = {sge(s.into, half, s.sink), sge(s.into + half, half, other)};
    EQUAL(post_receive(s.d.b, 1, r, 2), SHMND_SUCCESS);
    EQUAL(shmnd_post_send(&s.d.a->q, NULL, &m, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN);
    CHECK(shmnd_push_enter(&s.d.a->q, s.d.a->q.tx.job.revision));
    region_withdraw(s.d.pb, s.sink);
    EQUAL(shmnd_rx_poll(&s.d.b->q, &e, 1), 0);
    region_withdraw(s.d.pb, other);
    CHECK(s.d.b->q.rx.fault && shmnd_qp_needs_progress(&s.d.b->q));
    CHECK(!lets_go(s.d.b, s.sink) && !lets_go(s.d.b, other));
    settle(s.d.b);
    CHECK(!lets_go(s.d.b, s.sink) && !lets_go(s.d.b, other));
    shmnd_hazard_leave(&s.d.a->q.link.mine->hazard);
    settle(s.d.b);
    CHECK(lets_go(s.d.b, s.sink) && lets_go(s.d.b, other));
    sender_runs(&s);
    close_scene(&s, s.into, SHMND_ACCESS_VIOLATION);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Also when the peer reports that it has taken it, and its entry holds another request. */
static void a_send_keeps_its_source_while_we_copy_it(void)
{
    struct scene s;
    bool kept;
    open_scene(&s, false);
    struct shmnd_qp *q = &s.d.a->q;
    announce(&s);
    q->tx.started = true;
    region_withdraw(s.d.pa, s.source);
    CHECK(!lets_go(s.d.a, s.source));
    /* One that closes says later of each whether it took it. */
    shmnd_put32(&q->link.theirs->closing, 1);
    shmnd_put64(&q->link.theirs->taken, 1);
    shmnd_tx_retire(q);
    CHECK(!lets_go(s.d.a, s.source));
    q->seen.credit = q->seen.below = UINT64_MAX;
    for (uint64_t i = 1; i <= q->wq.mask + 1; i++) {
        EQUAL(shmnd_post_send(q, NULL, NULL, 0, SHMND_OP_SILENT_SUCCESS, &kept), SHMND_SUCCESS);
        shmnd_put64(&q->link.theirs->taken, 1 + i);
        shmnd_tx_retire(q);
    }
    EQUAL(q->wq.oldest, q->wq.mask + 2);
    CHECK(!lets_go(s.d.a, s.source));
    sender_runs(&s);
    CHECK(lets_go(s.d.a, s.source));
    duo_close(&s.d);
}

static void a_send_keeps_its_source_while_the_peer_reads_it(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_sge m = sge(s.from, LENGTH, s.source), r = sge(s.into, LENGTH, s.sink);
    EQUAL(post_send(s.d.a, 0, &m, 1, 0), SHMND_SUCCESS);
    EQUAL(post_receive(s.d.b, 1, &r, 1), SHMND_SUCCESS);
    meet(&s, SHMND_RUN);
    region_withdraw(s.d.pa, s.source);
    CHECK(!lets_go(s.d.a, s.source));
    settle(s.d.b);
    CHECK(lets_go(s.d.a, s.source));
    CHECK(filled(s.into, LENGTH, 1));
    close_scene(&s, s.from, SHMND_SUCCESS);
}

/* The message is whole at its target, although its reader has not taken it. */
static void a_send_that_is_over_is_not_taken_back(void)
{
    struct scene s;
    open_scene(&s, false);
    announce(&s);
    sender_runs(&s);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN); /* the receiver leaves its half to the sender */
    sender_runs(&s);
    region_withdraw(s.d.pa, s.source);
    CHECK(lets_go(s.d.a, s.source));
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_SUCCESS);
    close_scene(&s, s.from, SHMND_SUCCESS);
}

/* It has matched no receive: it is recalled, fails, and ends the connection. */
static void a_send_that_waits_is_taken_back(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_sge m = sge(s.from, LENGTH, s.source), r = sge(s.into, LENGTH, s.sink);
    EQUAL(post_send(s.d.a, 0, &m, 1, 0), SHMND_SUCCESS);
    region_withdraw(s.d.pa, s.source);
    CHECK(!lets_go(s.d.a, s.source));
    CHECK(s.d.a->q.going_down);
    settle(s.d.a);
    CHECK(lets_go(s.d.a, s.source));
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_ACCESS_VIOLATION);
    EQUAL(post_receive(s.d.b, 1, &r, 1), SHMND_SUCCESS);
    close_scene(&s, s.from, SHMND_CANCELED);
}

/* ---- accesses that do not delay it, and that last too long --------------------------------- */

static void other_memory_is_let_go_at_once(void)
{
    struct scene s;
    open_scene(&s, false);
    uint32_t more = region_new(s.d.pa, s.from, LENGTH, 1);
    uint32_t other = region_new(s.d.pb, s.into, LENGTH, 1);
    announce(&s);
    meet(&s, SHMND_RUN);
    region_withdraw(s.d.pa, more);
    region_withdraw(s.d.pb, other);
    CHECK(lets_go(s.d.a, more) && lets_go(s.d.b, other));
    sender_runs(&s);
    EXPECT_RECEIVED(s.d.qb, 1, LENGTH);
    CHECK(filled(s.into, LENGTH, 1));
    duo_close(&s.d);
}

/* A peer that stays in a copy delays it for a while; then the connection ends. */
static void a_peer_is_not_waited_for_for_ever(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_qp *q = &s.d.b->q;
    uint64_t since = 0;
    shmnd_word64 *hazard = &s.d.a->q.link.mine->hazard;
    CHECK(shmnd_hazard_enter(hazard, shmnd_grant_entry(&s.d.pb->registry, s.sink), s.sink));
    region_withdraw(s.d.pb, s.sink);
    CHECK(!shmnd_qp_has_released(q, s.sink, &since, 1));
    CHECK(!shmnd_qp_has_released(q, s.sink, &since, 1 + SHMND_STALL_TIMEOUT_NS));
    EQUAL(q->state, SHMND_QP_CONNECTED);
    CHECK(!shmnd_qp_has_released(q, s.sink, &since, 2 + SHMND_STALL_TIMEOUT_NS));
    EQUAL(q->state, SHMND_QP_DOWN);
    shmnd_hazard_leave(hazard);
    settle(s.d.b);
    CHECK(shmnd_qp_has_released(q, s.sink, &since, 2 + SHMND_STALL_TIMEOUT_NS));
    duo_close(&s.d);
}

/* Nor does the end of the connection wait for the same copy again. */
static void a_peer_is_waited_for_once(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_qp *q = &s.d.b->q;
    uint64_t since = 0, late = 2 + SHMND_STALL_TIMEOUT_NS;
    shmnd_word64 *hazard = &s.d.a->q.link.mine->hazard;
    CHECK(shmnd_hazard_enter(hazard, shmnd_grant_entry(&s.d.pb->registry, s.sink), s.sink));
    region_withdraw(s.d.pb, s.sink);
    CHECK(!shmnd_qp_has_released(q, s.sink, &since, 1));
    CHECK(!shmnd_qp_has_released(q, s.sink, &since, late));
    EQUAL(shmnd_qp_progress(q, late), SHMND_IDLE);
    CHECK(!q->going_down);
    CHECK(q->down_cause == SHMND_CAUSE_STALL);
    CHECK(shmnd_qp_has_released(q, s.sink, &since, late));
    shmnd_hazard_leave(hazard);
    duo_close(&s.d);
}

/* Releasing other memory meanwhile does not extend that time; it has a time of its own. */
static void each_withdrawn_token_has_its_own_time(void)
{
    struct scene s;
    open_scene(&s, false);
    struct shmnd_qp *q = &s.d.b->q;
    uint64_t half = SHMND_STALL_TIMEOUT_NS / 2, stuck = 0, late = 0;
    shmnd_word64 *hazard = &s.d.a->q.link.mine->hazard;
    uint32_t other = region_new(s.d.pb, s.into, LENGTH, 1);
    CHECK(shmnd_hazard_enter(hazard, shmnd_grant_entry(&s.d.pb->registry, s.sink), s.sink));
    region_withdraw(s.d.pb, s.sink);
    region_withdraw(s.d.pb, other);
    CHECK(!shmnd_qp_has_released(q, s.sink, &stuck, 1));
    CHECK(shmnd_qp_has_released(q, other, &late, half));
    EQUAL(late, 0);
    CHECK(!shmnd_qp_has_released(q, s.sink, &late, 2 + SHMND_STALL_TIMEOUT_NS));
    EQUAL(q->state, SHMND_QP_CONNECTED);
    CHECK(!shmnd_qp_has_released(q, s.sink, &stuck, 2 + SHMND_STALL_TIMEOUT_NS));
    EQUAL(q->state, SHMND_QP_DOWN);
    shmnd_hazard_leave(hazard);
    settle(s.d.b);
    duo_close(&s.d);
}

/* ---- batches ----------------------------------------------------------------------------- */

/* Both sides agree: the receive is refused, and so is the Send. */
static void a_send_of_a_batch_that_is_published_too_late_fails(void)
{
    static const uint32_t lengths[] = {1, 8, 40, 300};
    for (uint32_t i = 0; i < 4; i++) {
        struct scene s;
        open_scene(&s, false);
        defer(&s, lengths[i]);
        region_withdraw(s.d.pb, s.sink);
        CHECK(lets_go(s.d.b, s.sink));
        shmnd_batch_submit(&s.d.a->q);
        EQUAL(shmnd_cq_count(&s.d.qa->cq), 0);
        EXPECT(s.d.qb, SHMND_RECEIVE, 1, SHMND_ACCESS_VIOLATION);
        EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_REMOTE_ERROR);
        duo_close(&s.d);
    }
}

/* The memory of another receive, or none that a receive uses, changes nothing. */
static void a_send_of_a_batch_succeeds_whose_receive_stays(void)
{
    struct scene s;
    open_scene(&s, false);
    uint8_t *more = shared_bytes(s.d.pb, 64);
    uint32_t other = region_new(s.d.pb, more, 64, SHMND_MR_LOCAL_WRITE);
    struct shmnd_sge r = sge(more, 64, other);
    defer(&s, 40);
    EQUAL(post_receive(s.d.b, 3, &r, 1), SHMND_SUCCESS);
    region_withdraw(s.d.pb, other);
    CHECK(lets_go(s.d.b, other));
    shmnd_batch_submit(&s.d.a->q);
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    EXPECT(s.d.qb, SHMND_RECEIVE, 1, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* Its message waits for the next receive. */
static void a_send_of_a_batch_that_is_published_after_a_flush_waits(void)
{
    struct scene s;
    open_scene(&s, false);
    defer(&s, 40);
    shmnd_qp_flush(&s.d.b->q);
    settle(s.d.b);
    shmnd_batch_submit(&s.d.a->q);
    EQUAL(shmnd_cq_count(&s.d.qa->cq), 0);
    EXPECT(s.d.qb, SHMND_RECEIVE, 1, SHMND_CANCELED);
    struct shmnd_sge r = sge(s.into, 40, s.sink);
    EQUAL(post_receive(s.d.b, 3, &r, 1), SHMND_SUCCESS);
    EXPECT(s.d.qb, SHMND_RECEIVE, 3, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(a_send_of_a_batch_that_is_published_too_late_fails),
    TEST(a_send_of_a_batch_succeeds_whose_receive_stays),
    TEST(a_send_of_a_batch_that_is_published_after_a_flush_waits),
    TEST(a_large_message_keeps_its_receive_until_it_is_whole),
    TEST(a_push_begins_when_the_receive_is_met),
    TEST(a_push_begins_no_more_when_the_receive_is_not_met),
    TEST(a_receive_that_is_not_met_keeps_its_memory_while_it_is_pushed_to),
    TEST(a_message_in_parts_keeps_nothing),
    TEST(a_flush_comes_first),
    TEST(an_own_copy_is_over_when_its_thread_ends_it),
    TEST(a_refused_receive_is_kept_until_the_end),
    TEST(a_send_keeps_its_source_while_we_copy_it),
    TEST(a_send_keeps_its_source_while_the_peer_reads_it),
    TEST(a_send_that_is_over_is_not_taken_back),
    TEST(a_send_that_waits_is_taken_back),
    TEST(other_memory_is_let_go_at_once),
    TEST(a_peer_is_not_waited_for_for_ever),
    TEST(a_peer_is_waited_for_once),
    TEST(each_withdrawn_token_has_its_own_time),
};
MAIN(tests)
