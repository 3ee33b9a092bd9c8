/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of two halves: each side copies its own, and that of the other side only when the
 * other side stays away; then one side alone is sufficient, and waits for the other one once.
 */
#include "world.h"

#define BYTES (128u << 10)
#define MESSAGES 3u

struct scene {
    struct duo d;
    uint8_t *from[MESSAGES], *into[MESSAGES];
    uint32_t sources[MESSAGES], sinks[MESSAGES];
};

static void open_scene(struct scene *s)
{
    duo_open_with(&s->d, (struct world_options){.segment_bytes = 2 * MESSAGES * (BYTES + 64)},
                  pair_usual, pair_usual);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        s->from[i] = shared_bytes(s->d.pa, BYTES);
        s->into[i] = shared_bytes(s->d.pb, BYTES);
        fill(s->from[i], BYTES, i);
        s->sources[i] = region_new(s->d.pa, s->from[i], BYTES, SHMND_MR_LOCAL_WRITE);
        s->sinks[i] = region_new(s->d.pb, s->into[i], BYTES, SHMND_MR_LOCAL_WRITE);
    }
}

static void post_receives(struct scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct shmnd_sge r = sge(s->into[i], BYTES, s->sinks[i]);
        EQUAL(post_receive(s->d.b, 10 + i, &r, 1), SHMND_SUCCESS);
    }
}

/* Posts messages without executing them. */
static void post_sends(struct scene *s, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        struct shmnd_sge m = sge(s->from[i], BYTES, s->sources[i]);
        bool kept;
        void *context = (void *)(uintptr_t)(20 + i);
        EQUAL(shmnd_post_send(&s->d.a->q, context, &m, 1, 0, &kept), SHMND_SUCCESS);
    }
}

/* The sender's next step copies from this message; with `takes_over`, the receiver's half. */
static void sender_copies(struct scene *s, uint64_t message, bool takes_over)
{
    struct shmnd_qp *q = &s->d.a->q;
    EQUAL(shmnd_tx_advance(q), SHMND_RUN);
    EQUAL(q->tx.job.request, message);
    EQUAL(q->tx.job.takes_over, takes_over);
    shmnd_tx_run(q);
    shmnd_tx_run_done(q);
    EQUAL(q->tx.job.piece, BYTES / 2);
}

/* The receiver meets the next message; its copy is prepared. */
static void receiver_meets(struct scene *s)
{
    struct shmnd_cqe e;
    struct shmnd_todo todo;
    EQUAL(shmnd_cq_poll(&s->d.qb->cq, &e, 1, &todo), 0);
    EQUAL(todo.what, SHMND_RUN);
}

/* Runs the receiver's prepared copy. True: it then has the sender's half to copy. */
static bool receiver_copies(struct scene *s)
{
    struct shmnd_qp *q = &s->d.b->q;
    shmnd_rx_run(q);
    shmnd_rx_run_done(q);
    EQUAL(q->rx.job.piece, BYTES / 2);
    return q->rx.job.takes_over;
}

/* The receiver takes the message that it has copied, while the sender makes no call. */
static void receiver_takes(struct scene *s, uint64_t context)
{
    struct shmnd_cqe e;
    struct shmnd_todo todo;
    EQUAL(shmnd_cq_poll(&s->d.qb->cq, &e, 1, &todo), 1);
    EQUAL((uintptr_t)e.context, context);
}

static void check_arrived(struct scene *s, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        EXPECT_RECEIVED(s->d.qb, 10 + i, BYTES);
        CHECK(filled(s->into[i], BYTES, i));
    }
    for (uint32_t i = first; i < end; i++)
        EXPECT(s->d.qa, SHMND_SEND, 20 + i, SHMND_SUCCESS);
}

/* Whichever side comes first, and with the copies of both running at the same time. */
static void each_side_copies_its_own_half(void)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct scene s;
        open_scene(&s);
        post_receives(&s, 1);
        post_sends(&s, 0, 1);
        EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN);
        receiver_meets(&s);
        if (turn == 0) {
            sender_copies(&s, 0, false);
            CHECK(filled(s.into[0], BYTES / 2, 0));
            EQUAL(s.into[0][BYTES - 1], 0);
            CHECK(!receiver_copies(&s));
        } else {
            struct shmnd_share *share = s.d.a->q.tx.job.share;
            struct shmnd_chunks c = s.d.a->q.tx.job.chunks;
            shmnd_rx_run(&s.d.b->q); /* the sender claims its half while this runs */
            EQUAL(s.into[0][0], 0);
            EQUAL(shmnd_chunks_claim_one(share, &c, false), 0);
            shmnd_rx_run_done(&s.d.b->q);
            CHECK(!s.d.b->q.rx.job.takes_over);
            memcpy(s.into[0], s.from[0], BYTES / 2);
            shmnd_chunks_complete(share, 1);
            shmnd_tx_run(&s.d.a->q);
            shmnd_tx_run_done(&s.d.a->q);
        }
        check_arrived(&s, 0, 1);
        duo_close(&s.d);
    }
}

/* While the receiver copies the oldest message, the sender leaves to it its half of all. */
static void the_sender_takes_nothing_of_a_receiver_that_copies(void)
{
    struct scene s;
    open_scene(&s);
    post_receives(&s, MESSAGES);
    post_sends(&s, 0, MESSAGES);
    for (uint64_t i = 0; i < MESSAGES; i++)
        sender_copies(&s, i, false);
    receiver_meets(&s);
    struct shmnd_job *copy = &s.d.b->q.rx.job;
    EQUAL(shmnd_chunks_claim_one(copy->share, &copy->chunks, true), 1);
    CHECK(shmnd_qp_has_unfinished_copy(&s.d.a->q)); /* no wait sleeps before the next step */
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE);
    CHECK(!shmnd_qp_has_unfinished_copy(&s.d.a->q));
    memcpy(s.into[0] + BYTES / 2, s.from[0] + BYTES / 2, BYTES / 2);
    shmnd_chunks_complete(copy->share, 1);
    shmnd_rx_run(&s.d.b->q);
    shmnd_rx_run_done(&s.d.b->q);
    check_arrived(&s, 0, MESSAGES);
    duo_close(&s.d);
}

/* A call of the sender may end between two of these copies: the next poll is due at once. */
static void a_sender_that_sleeps_continues(void)
{
    struct scene s;
    open_scene(&s);
    struct shmnd_cq *cq = &s.d.qa->cq;
    post_sends(&s, 0, 2);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE); /* announced; there is no receive yet */
    CHECK(!shmnd_cq_has_unfinished_copy(cq));
    post_receives(&s, 2);
    for (uint64_t i = 0; i < 4; i++) {
        sender_copies(&s, i % 2, i > 1);
        CHECK(shmnd_cq_has_unfinished_copy(cq));
        CHECK(shmnd_cq_next_poll_ns(cq, 1) <= shmnd_now_ns());
        CHECK(shmnd_cq_next_poll_ns(cq, 1));
    }
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE);
    CHECK(!shmnd_cq_has_unfinished_copy(cq));
    check_arrived(&s, 0, 2);
    duo_close(&s.d);
}

/* Then it waits for the receiver once, until that takes a message. */
static void the_sender_alone_is_sufficient(void)
{
    struct scene s;
    open_scene(&s);
    post_receives(&s, MESSAGES);
    post_sends(&s, 0, 2);
    sender_copies(&s, 0, false);
    sender_copies(&s, 1, false);
    CHECK(!s.d.a->q.tx.job.left_alone);
    sender_copies(&s, 0, true);
    CHECK(s.d.a->q.tx.job.left_alone);
    sender_copies(&s, 1, true);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE);
    check_arrived(&s, 0, 2);
    post_sends(&s, 2, 3);
    sender_copies(&s, 2, false);
    s.d.a->q.tx.job.left_alone = true; /* as it was left; since then the receiver took two */
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN);
    EQUAL(s.d.a->q.tx.taken_then, 2);
    shmnd_tx_run(&s.d.a->q);
    shmnd_tx_run_done(&s.d.a->q);
    check_arrived(&s, 2, 3);
    duo_close(&s.d);
}

/* While its completion queue is full, messages that the receiver took alone stay in the sender's
 * queue, and a later one uses the share words of the first. */
static void a_full_queue_delays_no_copy(void)
{
    struct scene s;
    open_scene(&s);
    uint64_t limit = s.d.qa->cq.limit;
    s.d.qa->cq.limit = 0;
    for (uint32_t i = 0; i < SHMND_SHARES; i++)
        post_sends(&s, 0, 1);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE);
    for (uint32_t i = 0; i < SHMND_SHARES; i++) {
        post_receives(&s, 1);
        receiver_meets(&s);
        CHECK(receiver_copies(&s));
        CHECK(!receiver_copies(&s));
        receiver_takes(&s, 10);
    }
    post_receives(&s, 1);
    post_sends(&s, 0, 1);
    sender_copies(&s, SHMND_SHARES, false);
    sender_copies(&s, SHMND_SHARES, true);
    s.d.qa->cq.limit = limit;
    for (uint32_t i = 0; i < SHMND_SHARES; i++)
        EXPECT(s.d.qa, SHMND_SEND, 20, SHMND_SUCCESS);
    check_arrived(&s, 0, 1);
    duo_close(&s.d);
}

/* A message behind it has no receive: that does not delay what can be copied. */
static void a_message_without_a_receive_delays_no_other(void)
{
    struct scene s;
    open_scene(&s);
    post_receives(&s, 1);
    post_sends(&s, 0, 2);
    sender_copies(&s, 0, false);
    sender_copies(&s, 0, true);
    EXPECT(s.d.qa, SHMND_SEND, 20, SHMND_SUCCESS);
    EXPECT_RECEIVED(s.d.qb, 10, BYTES);
    struct shmnd_sge r = sge(s.into[1], BYTES, s.sinks[1]);
    EQUAL(post_receive(s.d.b, 11, &r, 1), SHMND_SUCCESS);
    check_arrived(&s, 1, 2);
    duo_close(&s.d);
}

/* Messages that were recalled are looked at again when they are announced again. */
static void what_is_recalled_is_copied_again(void)
{
    struct scene s;
    open_scene(&s);
    struct shmnd_qp *q = &s.d.a->q;
    post_sends(&s, 0, MESSAGES);
    EQUAL(shmnd_tx_advance(q), SHMND_IDLE);
    q->wq.push = q->wq.whole = MESSAGES; /* as after copies into receives that were withdrawn */
    CHECK(shmnd_tx_recall_after(q, 0));
    EQUAL(q->wq.push, 1);
    EQUAL(q->wq.whole, 1);
    EQUAL(shmnd_tx_advance(q), SHMND_IDLE);
    post_receives(&s, MESSAGES);
    for (uint64_t i = 1; i < MESSAGES; i++)
        sender_copies(&s, i, false);
    check_arrived(&s, 0, MESSAGES);
    duo_close(&s.d);
}

/* Then it waits for the sender once, until it finds the sender's half claimed. */
static void the_receiver_alone_is_sufficient(void)
{
    struct scene s;
    open_scene(&s);
    struct shmnd_job *copy = &s.d.b->q.rx.job;
    post_sends(&s, 0, MESSAGES);
    EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_IDLE); /* announced; there is no receive yet */
    post_receives(&s, MESSAGES);
    for (uint32_t i = 0; i < 2; i++) {
        receiver_meets(&s);
        EQUAL(copy->left_alone, i > 0);
        CHECK(receiver_copies(&s));
        CHECK(copy->left_alone);
        CHECK(!receiver_copies(&s));
        CHECK(copy->left_alone);
        receiver_takes(&s, 10 + i);
        CHECK(filled(s.into[i], BYTES, i));
    }
    sender_copies(&s, 2, false);
    receiver_meets(&s);
    CHECK(!receiver_copies(&s));
    CHECK(!copy->left_alone);
    EXPECT_RECEIVED(s.d.qb, 12, BYTES);
    CHECK(filled(s.into[2], BYTES, 2));
    for (uint64_t i = 0; i < MESSAGES; i++)
        EXPECT(s.d.qa, SHMND_SEND, 20 + i, SHMND_SUCCESS);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(each_side_copies_its_own_half),
    TEST(the_sender_takes_nothing_of_a_receiver_that_copies),
    TEST(a_sender_that_sleeps_continues),
    TEST(the_sender_alone_is_sufficient),
    TEST(a_full_queue_delays_no_copy),
    TEST(a_message_without_a_receive_delays_no_other),
    TEST(what_is_recalled_is_copied_again),
    TEST(the_receiver_alone_is_sufficient),
};
MAIN(tests)
