/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends that wait for their peers, on many connections of one queue: a poll does not visit each
 * of them, and none is forgotten.
 */
#include "world.h"

#define PAIRS 40u

#define EXPECT_ANY(queue, type_, status_)                                                          \
    do {                                                                                           \
        struct shmnd_cqe e_ = next(queue);                                                         \
        EQUAL(e_.type, type_);                                                                     \
        EQUAL(e_.status, status_);                                                                 \
    } while (0)

struct crowd {
    struct world w;
    struct queue *qa, *qb;
    struct pair *a[PAIRS], *b[PAIRS];
    uint8_t *from, *into;
    uint32_t source, sink;
};

/* One Send waits on each connection, and the queue has parked them. */
static void open_crowd(struct crowd *c, uint32_t length, uint64_t rnr_ns)
{
    struct pair_options o = pair_usual;
    o.rnr_ns = rnr_ns;
    world_open(&c->w, (struct world_options){0});
    c->qa = queue_new(&c->w.p[0], 64);
    c->qb = queue_new(&c->w.p[1], 64);
    for (uint32_t i = 0; i < PAIRS; i++) {
        c->a[i] = pair_new(c->qa, c->qa, o);
        c->b[i] = pair_new(c->qb, c->qb, o);
    }
    for (uint32_t i = 0; i < PAIRS; i++)
        pair_connect(c->a[i], c->b[i]);
    c->from = shared_bytes(&c->w.p[0], length);
    c->into = shared_bytes(&c->w.p[1], length);
    c->source = region_new(&c->w.p[0], c->from, length, 0);
    c->sink = region_new(&c->w.p[1], c->into, length, 1);
    struct shmnd_sge s = sge(c->from, length, c->source);
    for (uint32_t i = 0; i < PAIRS; i++)
        EQUAL(post_send(c->a[i], i, &s, 1, 0), SHMND_SUCCESS);
    for (uint32_t i = 0; i < 4; i++)
        EQUAL(queue_turn(c->qa), 0);
    EQUAL(c->qa->cq.active_count, 0);
    EQUAL(c->qa->cq.parked_count, PAIRS);
}

static void receive_at(struct crowd *c, uint32_t i, uint32_t length)
{
    struct shmnd_sge r = sge(c->into, length, c->sink);
    EQUAL(post_receive(c->b[i], i, &r, 1), SHMND_SUCCESS);
}

/* A receive for one of them activates only that one. */
static void each_is_found_by_its_mark(void)
{
    static const uint32_t lengths[] = {8, 3000, 100000};
    for (int k = 0; k < 3; k++) {
        struct crowd c;
        open_crowd(&c, lengths[k], 10 * W_SECOND);
        for (uint32_t n = 0; n < PAIRS; n++) {
            uint32_t i = n * 7 % PAIRS;
            NOTE("%u bytes, connection %u", lengths[k], i);
            receive_at(&c, i, lengths[k]);
            queue_turn(c.qb);
            EXPECT(c.qa, SHMND_SEND, i, SHMND_SUCCESS);
            EXPECT_RECEIVED(c.qb, i, lengths[k]);
        }
        EQUAL(c.qa->cq.parked_count, 0);
        EQUAL(c.qa->cq.unsettled, c.qa->cq.active_count);
        world_close(&c.w);
    }
}

/* An answer on another connection completes after the Send that it answers. */
static void an_answer_waits_for_its_send(void)
{
    struct crowd c;
    open_crowd(&c, 8, 10 * W_SECOND);
    uint8_t *to = shared_bytes(&c.w.p[0], 8);
    uint32_t tt = region_new(&c.w.p[0], to, 8, 1);
    uint32_t ts = region_new(&c.w.p[1], c.into, 8, 0);
    for (uint32_t i = 0; i + 1 < PAIRS; i++) {
        struct shmnd_sge r = sge(to, 8, tt), s = sge(c.into, 8, ts);
        EQUAL(post_receive(c.a[i + 1], 100 + i, &r, 1), SHMND_SUCCESS);
        receive_at(&c, i, 8);
        while (queue_turn(c.qb) == 0)
            ;
        EQUAL(post_send(c.b[i + 1], 200 + i, &s, 1, 0), SHMND_SUCCESS);
        /* Another peer of the queue may have cleared the marks. */
        if (i % 2)
            for (uint32_t word = 0; word < SHMND_READY_WORDS; word++)
                shmnd_put64(&c.qa->cq.arming.marks->ready[word], 0);
        struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
        shmnd_cq_poll_all(&c.qa->cq,
                          &(struct shmnd_poll){NULL, 0, 0, 16, UINT64_MAX, false, &todo});
        EXPECT(c.qa, SHMND_SEND, i, SHMND_SUCCESS);
        EXPECT_RECEIVED(c.qa, 100 + i, 8);
        EXPECT_RECEIVED(c.qb, i, 8);
        EXPECT(c.qb, SHMND_SEND, 200 + i, SHMND_SUCCESS);
    }
    world_close(&c.w);
}

/* They make progress without a mark too: for their time-out, and for a peer that died. */
static void none_is_forgotten(void)
{
    for (int dies = 0; dies < 2; dies++) {
        struct crowd c;
        open_crowd(&c, 8, dies ? 10 * W_SECOND : W_SECOND / 20);
        c.w.p[0].peer.dead = dies;
        uint64_t began = shmnd_now_ns();
        while (c.qa->got < PAIRS && shmnd_now_ns() - began < 10 * W_SECOND)
            queue_turn(c.qa);
        for (uint32_t i = 0; i < PAIRS; i++)
            EXPECT_ANY(c.qa, SHMND_SEND, SHMND_IO_TIMEOUT);
        EQUAL(c.qa->cq.unsettled, 0);
        world_close(&c.w);
    }
}

/* A queue that has few connections left polls them directly: peers set no marks any more. */
static void few_are_checked(void)
{
    struct crowd c;
    open_crowd(&c, 8, 10 * W_SECOND);
    for (uint32_t i = 3; i < PAIRS; i++) {
        disconnect(c.a[i]);
        EXPECT(c.qa, SHMND_SEND, i, SHMND_CANCELED);
    }
    EQUAL(c.qa->cq.parked_count, 0);
    EQUAL(c.qa->cq.active_count, 3);
    EQUAL(c.qa->cq.receiving_count, 3);
    /* A late mark of a peer finds no queue pair that is gone. */
    for (uint32_t i = 0; i < PAIRS; i++)
        EQUAL(c.qa->cq.by_bit[i] != NULL, i < 3);
    world_close(&c.w);
}

/* The time-out of a pending Send is due when the queue sleeps. */
static void the_next_time_is_known(void)
{
    struct crowd c;
    open_crowd(&c, 8, 10 * W_SECOND);
    uint64_t due = shmnd_cq_next_poll_ns(&c.qa->cq, 0);
    CHECK(due > shmnd_now_ns() && due < shmnd_now_ns() + 11 * W_SECOND);
    struct shmnd_todo todo;
    shmnd_cq_drain_links(&c.qa->cq, &todo);
    EQUAL(c.qa->cq.active_count, PAIRS);
    world_close(&c.w);
}

static const struct check_test tests[] = {
    TEST(each_is_found_by_its_mark), TEST(an_answer_waits_for_its_send), TEST(none_is_forgotten),
    TEST(few_are_checked),           TEST(the_next_time_is_known),
};
MAIN(tests)
