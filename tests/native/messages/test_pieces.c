/* SPDX-License-Identifier: Apache-2.0
 *
 * Long copies piece by piece: a call copies a bounded number of bytes, the next poll continues,
 * and between two pieces no memory is accessed, so that a side that withdraws memory or
 * disconnects does not wait.
 */
#include "world.h"

#define BYTES (3 * SHMND_PIECE + 12345)

struct scene {
    struct duo d;
    uint8_t *src, *dst;
    uint32_t ta, tb;
    struct shmnd_sge from, to;
};

static void open_scene(struct scene *s, bool private)
{
    duo_open_with(&s->d, (struct world_options){.segment_bytes = BYTES + 64}, pair_usual,
                  pair_usual);
    s->src = private ? guard_alloc(BYTES) : shared_bytes(s->d.pa, BYTES);
    s->dst = private ? guard_alloc(BYTES) : shared_bytes(s->d.pb, BYTES);
    s->ta = region_new(s->d.pa, s->src, BYTES, SHMND_MR_LOCAL_WRITE);
    s->tb = region_new(s->d.pb, s->dst, BYTES,
                       SHMND_MR_LOCAL_WRITE | SHMND_MR_REMOTE_WRITE | SHMND_MR_REMOTE_READ);
    s->from = sge(s->src, BYTES, s->ta);
    s->to = sge(s->dst, BYTES, s->tb);
    fill(s->src, BYTES, 5);
}

/* Runs the prepared job once. True: a piece of it is left. */
static bool run_piece(struct scene *s)
{
    struct shmnd_qp *q = &s->d.a->q;
    EQUAL(shmnd_tx_advance(q), SHMND_RUN);
    q->tx.started = true;
    shmnd_tx_run(q);
    shmnd_tx_run_done(q);
    EQUAL(shmnd_relaxed64(&q->link.mine->hazard), 0);
    CHECK(!q->tx.started);
    CHECK(!q->tx.busy || q->tx.job.piece <= SHMND_PIECE + SHMND_CHUNK_MAX);
    return q->tx.busy;
}

static void post_write(struct scene *s)
{
    bool kept;
    EQUAL(shmnd_post_rdma(&s->d.a->q, (void *)1, SHMND_WRITE, &s->from, 1,
                          (uint64_t)(uintptr_t)s->dst, s->tb, 0, &kept),
          SHMND_SUCCESS);
}

static void post_long_send(struct scene *s)
{
    bool kept;
    EQUAL(shmnd_post_send(&s->d.a->q, (void *)1, &s->from, 1, 0, &kept), SHMND_SUCCESS);
}

static void a_write_in_pieces(void)
{
    for (int private = 0; private < 2; private++) {
        struct scene s;
        open_scene(&s, private);
        post_write(&s);
        for (uint64_t done = SHMND_PIECE; run_piece(&s); done += SHMND_PIECE) {
            CHECK(memcmp(s.src, s.dst, done) == 0);
            EQUAL(s.dst[done], 0);
            EQUAL(s.dst[BYTES - 1], 0);
            EQUAL(s.d.a->q.wq.oldest, 0);
            CHECK(shmnd_cq_has_unfinished_copy(&s.d.qa->cq));
            CHECK(shmnd_cq_next_poll_ns(&s.d.qa->cq, W_SECOND) <= shmnd_now_ns());
        }
        CHECK(!shmnd_cq_has_unfinished_copy(&s.d.qa->cq));
        EXPECT(s.d.qa, SHMND_WRITE, 1, SHMND_SUCCESS);
        CHECK(filled(s.dst, BYTES, 5));
        duo_close(&s.d);
    }
}

static void a_grant_withdrawn_between_two_pieces(void)
{
    struct scene s;
    open_scene(&s, false);
    post_write(&s);
    CHECK(run_piece(&s));
    region_withdraw(s.d.pb, s.tb);
    uint64_t since = 0;
    CHECK(shmnd_qp_has_released(&s.d.b->q, s.tb, &since, 1));
    EXPECT(s.d.qa, SHMND_WRITE, 1, SHMND_ACCESS_VIOLATION);
    EQUAL(s.dst[SHMND_PIECE], 0);
    duo_close(&s.d);
}

/* The owner disconnects and then withdraws its memory, between the check of its state here and that
 * of the grant: the connection has ended, and the Write named nothing wrong. */
static void a_grant_withdrawn_by_a_side_that_has_closed(void)
{
    struct scene s;
    open_scene(&s, false);
    post_write(&s);
    CHECK(run_piece(&s));
    struct shmnd_qp *q = &s.d.a->q;
    disconnect(s.d.b);
    region_withdraw(s.d.pb, s.tb);
    struct shmnd_job job = q->tx.job;
    struct shmnd_wqe *w = &q->wq.entries[job.request & q->wq.mask];
    const struct shmnd_sge *sges = shmnd_wqe_sges(q, job.request);
    EQUAL(shmnd_run_rdma(q, &q->tx.job), SHMND_CANCELED);
    EQUAL(shmnd_tx_resolve_rdma(q, w, sges, NULL, &job), SHMND_CANCELED);
    EXPECT(s.d.qa, SHMND_WRITE, 1, SHMND_CANCELED);
    EQUAL(s.dst[SHMND_PIECE], 0);
    duo_close(&s.d);
}

static void an_end_between_two_pieces(void)
{
    for (int dies = 0; dies < 2; dies++) {
        struct scene s;
        open_scene(&s, false);
        post_write(&s);
        CHECK(run_piece(&s));
        if (dies)
            peer_dies(s.d.pa);
        else
            disconnect(s.d.b);
        EXPECT(s.d.qa, SHMND_WRITE, 1, dies ? SHMND_IO_TIMEOUT : SHMND_CANCELED);
        EQUAL(s.dst[SHMND_PIECE], 0);
        duo_close(&s.d);
    }
}

/* The sender copies one piece and makes no further call; the receiver polls. */
static void a_receiver_ends_a_message_its_sender_began(void)
{
    for (int private = 0; private < 2; private++) {
        struct scene s;
        open_scene(&s, private);
        EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
        post_long_send(&s);
        CHECK(run_piece(&s));
        for (int i = 0; i < 8 && !s.d.qb->got; i++)
            queue_turn(s.d.qb);
        EXPECT_RECEIVED(s.d.qb, 2, BYTES);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        CHECK(filled(s.dst, BYTES, 5));
        duo_close(&s.d);
    }
}

/* And the other way round: the receiver copies one piece. */
static void a_sender_ends_a_message_its_receiver_began(void)
{
    struct scene s;
    struct shmnd_cqe out;
    struct shmnd_todo todo;
    open_scene(&s, false);
    post_long_send(&s);
    advance(s.d.a);
    EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
    EQUAL(shmnd_cq_poll(&s.d.qb->cq, &out, 1, &todo), 0);
    EQUAL(todo.what, SHMND_RUN);
    serve(todo.qp, todo.what, todo.receiving);
    CHECK(shmnd_cq_has_unfinished_copy(&s.d.qb->cq));
    while (run_piece(&s))
        ;
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
    EXPECT_RECEIVED(s.d.qb, 2, BYTES);
    CHECK(!shmnd_cq_has_unfinished_copy(&s.d.qb->cq));
    CHECK(filled(s.dst, BYTES, 5));
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(a_write_in_pieces),
    TEST(a_grant_withdrawn_between_two_pieces),
    TEST(a_grant_withdrawn_by_a_side_that_has_closed),
    TEST(an_end_between_two_pieces),
    TEST(a_receiver_ends_a_message_its_sender_began),
    TEST(a_sender_ends_a_message_its_receiver_began),
};
MAIN(tests)
