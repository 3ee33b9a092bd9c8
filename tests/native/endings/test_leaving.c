/* SPDX-License-Identifier: Apache-2.0
 *
 * A side that disconnects recalls the messages that have matched no receive. A message
 * that it cannot recall still matches the receive that it was written for: the messages
 * that arrive are the first ones sent, whole, and both sides report the same messages.
 *
 * Every sequence of up to three messages of every kind, with every number of receives
 * posted before them, and the others after.
 */
#include "world.h"

enum { SHORT, PLACED, LARGE, SHORT_ENDING, PLACED_ENDING, LARGE_ENDING, KINDS };

#define MOST 3u
#define ROOM (SHMND_SHARE_MIN + 5000)

static const uint32_t lengths[] = {8, 3000, ROOM};

struct scene {
    struct duo d;
    uint8_t *from[MOST], *into[MOST];
    uint32_t source[MOST], sink[MOST], window[MOST];
    uint32_t kinds[MOST], count;
};

static uint32_t length_of(const struct scene *s, uint32_t i)
{
    return lengths[s->kinds[i] % 3];
}

static void open_scene(struct scene *s)
{
    duo_open(&s->d);
    for (uint32_t i = 0; i < s->count; i++) {
        s->from[i] = shared_bytes(s->d.pa, ROOM);
        s->into[i] = shared_bytes(s->d.pb, ROOM);
        fill(s->from[i], ROOM, 1 + i);
        memset(s->into[i], 0, ROOM);
        s->source[i] = region_new(s->d.pa, s->from[i], ROOM, 0);
        s->sink[i] = region_new(s->d.pb, s->into[i], ROOM, SHMND_MR_LOCAL_WRITE);
        s->window[i] = window_bind(s->d.b, s->into[i], 64, SHMND_ALLOW_WRITE, 0);
    }
}

static void post_receives(struct scene *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        struct shmnd_sge r = sge(s->into[i], ROOM, s->sink[i]);
        EQUAL(post_receive(s->d.b, 100 + i, &r, 1), SHMND_SUCCESS);
    }
}

static void post_sends(struct scene *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct shmnd_sge m = sge(s->from[i], length_of(s, i), s->source[i]);
        uint32_t status = s->kinds[i] >= SHORT_ENDING
                              ? post_invalidating(s->d.a, i, &m, 1, s->window[i], 0)
                              : post_send(s->d.a, i, &m, 1, 0);
        EQUAL(status, SHMND_SUCCESS);
    }
}

/* The number of requests that succeeded, which must be the oldest. */
static uint32_t ended_well(struct scene *s, struct queue *queue, uint32_t first)
{
    uint32_t well = 0, seen = 0;
    queue_turn(queue);
    for (; queue->taken != queue->got; queue->taken++, seen++) {
        struct shmnd_cqe *e = &queue->inbox[queue->taken];
        EQUAL((uintptr_t)e->context, first + seen);
        if (e->status == SHMND_SUCCESS) {
            EQUAL(well, seen);
            EQUAL(e->bytes, length_of(s, well));
            well++;
        }
    }
    EQUAL(seen, s->count);
    return well;
}

static void leave(struct scene *s, uint32_t before, bool looks)
{
    open_scene(s);
    post_receives(s, 0, before);
    post_sends(s);
    post_receives(s, before, s->count);
    if (looks)
        queue_turn(s->d.qa);
    disconnect(s->d.a);
    for (int i = 0; i < 10; i++)
        settle(s->d.b);
    uint32_t got = ended_well(s, s->d.qb, 100), told = ended_well(s, s->d.qa, 0);
    EQUAL(told, got);
    for (uint32_t i = 0; i < got; i++)
        CHECK(filled(s->into[i], length_of(s, i), 1 + i));
    duo_close(&s->d);
}

static void messages_that_stay_meet_their_receives(void)
{
    static struct scene s;
    for (s.count = 1; s.count <= MOST; s.count++) {
        uint32_t all = s.count == 1 ? KINDS : s.count == 2 ? KINDS * KINDS : KINDS * KINDS * KINDS;
        for (uint32_t number = 0; number < all; number++) {
            for (uint32_t i = 0, rest = number; i < s.count; i++, rest /= KINDS)
                s.kinds[i] = rest % KINDS;
            for (uint32_t variant = 0; variant < 2 * (s.count + 1); variant++) {
                NOTE("%u messages, %u %u %u, variant %u", s.count, s.kinds[0], s.kinds[1],
                     s.kinds[2], variant);
                leave(&s, variant / 2, variant % 2);
            }
        }
    }
}

/* A large message that only its sender can copy, which it does not towards a closing side. */
static void one_that_leaves_waits_for_no_copy_that_never_begins(void)
{
    struct duo d;
    bool kept;
    uint32_t n = SHMND_PLACE_PRIVATE_MAX + 5000;
    duo_open_with(&d, (struct world_options){.segment_bytes = 1 << 20, .no_vm = true}, pair_usual,
                  pair_usual);
    uint8_t *from = guard_alloc(n), *into = shared_bytes(d.pb, n);
    struct shmnd_sge m = sge(from, n, region_new(d.pa, from, n, 0));
    struct shmnd_sge r = sge(into, n, region_new(d.pb, into, n, SHMND_MR_LOCAL_WRITE));
    EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
    EQUAL(shmnd_post_send(&d.a->q, NULL, &m, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(&d.a->q), SHMND_RUN);
    EQUAL(queue_turn(d.qb), 0);
    CHECK(d.b->q.rx.open);
    disconnect(d.b);
    CHECK(!d.b->q.going_down);
    shmnd_tx_run(&d.a->q);
    shmnd_tx_run_done(&d.a->q);
    EXPECT(d.qb, SHMND_RECEIVE, 1, SHMND_CANCELED);
    EXPECT(d.qa, SHMND_SEND, 0, SHMND_CANCELED);
    for (uint32_t i = 0; i < n; i++)
        EQUAL(into[i], 0);
    duo_close(&d);
}

/* Private memory that neither side can access: large messages are left to their reader, shorter
 * ones go in parts. All have their receives, and the other side makes no call. */
static void leave_one_that_sleeps(const uint32_t kinds[MOST], bool private_source)
{
    struct duo d;
    uint32_t size[] = {8, 8000, ROOM}, got = 0, told = 0;
    uint8_t *from[MOST], *into[MOST];
    duo_open_with(&d, (struct world_options){.no_vm = true}, pair_usual, pair_usual);
    for (uint32_t i = 0; i < MOST; i++) {
        into[i] = guard_alloc(ROOM);
        struct shmnd_sge r = sge(into[i], ROOM, region_new(d.pb, into[i], ROOM, 1));
        EQUAL(post_receive(d.b, 100 + i, &r, 1), SHMND_SUCCESS);
    }
    for (uint32_t i = 0; i < MOST; i++) {
        from[i] = private_source ? guard_alloc(ROOM) : shared_bytes(d.pa, ROOM);
        fill(from[i], ROOM, 1 + i);
        struct shmnd_sge m = sge(from[i], size[kinds[i]], region_new(d.pa, from[i], ROOM, 0));
        EQUAL(post_send(d.a, i, &m, 1, 0), SHMND_SUCCESS);
    }
    disconnect(d.a);
    CHECK(!d.a->q.going_down);
    for (int i = 0; i < 10; i++)
        settle(d.b);
    queue_turn(d.qa);
    queue_turn(d.qb);
    EQUAL(d.qa->got, MOST);
    EQUAL(d.qb->got, MOST);
    while (told < MOST && d.qa->inbox[told].status == SHMND_SUCCESS)
        told++;
    while (got < MOST && d.qb->inbox[got].status == SHMND_SUCCESS)
        got++;
    EQUAL(told, got);
    for (uint32_t i = 0; i < MOST; i++) {
        EQUAL((uintptr_t)d.qa->inbox[i].context, i);
        EQUAL(d.qa->inbox[i].status, i < got ? SHMND_SUCCESS : SHMND_CANCELED);
        EQUAL(d.qb->inbox[i].status, i < got ? SHMND_SUCCESS : SHMND_CANCELED);
        CHECK(i >= got || filled(into[i], size[kinds[i]], 1 + i));
    }
    duo_close(&d);
}

static void one_that_leaves_waits_for_none_that_does_nothing(void)
{
    for (uint32_t number = 0; number < 2 * 27; number++) {
        uint32_t kinds[MOST] = {number % 3, number / 3 % 3, number / 9 % 3};
        NOTE("%u %u %u, variant %u", kinds[0], kinds[1], kinds[2], number / 27);
        leave_one_that_sleeps(kinds, number / 27);
    }
}

/* Its Sends have their receives, its completion queue has no room for their results, and the other
 * side makes no call: it ends nevertheless, and knows that they arrive. */
static void one_that_leaves_is_sure_of_sends_whose_results_have_no_room(void)
{
    for (uint32_t length = 0; length <= 8000; length += 2000) {
        struct scene s = {.count = 2};
        open_scene(&s);
        post_receives(&s, 0, 2);
        uint64_t bound = s.d.qa->cq.bound;
        s.d.qa->cq.limit = s.d.qa->cq.bound = 0;
        for (uint32_t i = 0; i < 2; i++) {
            struct shmnd_sge m = sge(s.from[i], length, s.source[i]);
            EQUAL(post_send(s.d.a, i, &m, 1, 0), SHMND_SUCCESS);
        }
        disconnect(s.d.a);
        CHECK(!s.d.a->q.going_down);
        s.d.qa->cq.bound = bound;
        settle(s.d.b);
        for (uint32_t i = 0; i < 2; i++) {
            EXPECT(s.d.qa, SHMND_SEND, i, SHMND_SUCCESS);
            EXPECT_RECEIVED(s.d.qb, 100 + i, length);
        }
        duo_close(&s.d);
    }
}

/* Both disconnect: one was closing when the other's last Send arrived, and still takes it. */
static void one_that_sent_to_one_that_closes_hears_whether_it_was_taken(void)
{
    struct scene s = {.count = 2};
    open_scene(&s);
    post_receives(&s, 0, 2);
    struct shmnd_sge first = sge(s.from[0], 8, s.source[0]), last = sge(s.from[1], 8, s.source[1]);
    EQUAL(post_send(s.d.a, 0, &first, 1, 0), SHMND_SUCCESS);
    queue_turn(s.d.qb);
    shmnd_qp_disconnect(&s.d.b->q); /* and does not poll yet */
    EQUAL(post_send(s.d.a, 1, &last, 1, 0), SHMND_SUCCESS);
    disconnect(s.d.a);
    settle(s.d.b);
    settle(s.d.a);
    EQUAL(ended_well(&s, s.d.qb, 100), 2);
    EQUAL(ended_well(&s, s.d.qa, 0), 2);
    duo_close(&s.d);
}

/* The other side stands still in a copy, and the connection ends for that reason without waiting
 * for it again: the oldest Send has the reason, also where it was recalled. */
static void the_oldest_recalled_has_the_reason(void)
{
    struct scene s = {.count = 2};
    open_scene(&s);
    post_sends(&s);
    uint64_t since = 1;
    shmnd_put64(&s.d.b->q.link.mine->hazard, SHMND_HAZARD_PUSH);
    shmnd_qp_check_stall(&s.d.a->q, &since, since + 11 * W_SECOND);
    settle(s.d.a);
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_IO_TIMEOUT);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
    shmnd_put64(&s.d.b->q.link.mine->hazard, 0);
    duo_close(&s.d);
}

/* The other side makes no call between the end and the death. */
static void one_that_died_after_it_left_has_left(void)
{
    for (uint32_t left = 0; left < 2; left++) {
        struct duo d;
        duo_open(&d);
        EQUAL(post_receive(d.b, 100, NULL, 0), SHMND_SUCCESS);
        EQUAL(post_send(d.b, 1, NULL, 0, 0), SHMND_SUCCESS);
        EQUAL(post_rdma(d.b, 2, SHMND_WRITE, NULL, 0, NULL, 0, 0), SHMND_SUCCESS);
        if (left)
            disconnect(d.a);
        else
            shmnd_qp_disconnect(&d.a->q); /* it dies before it has published the end */
        peer_dies(d.pb);
        EQUAL(shmnd_peer_state(&d.b->q), left ? SHMND_LINK_CLOSED : SHMND_LINK_DEAD);
        EXPECT(d.qb, SHMND_SEND, 1, left ? SHMND_CANCELED : SHMND_IO_TIMEOUT);
        EXPECT(d.qb, SHMND_WRITE, 2, SHMND_CANCELED);
        EXPECT(d.qb, SHMND_RECEIVE, 100, SHMND_CANCELED);
        duo_close(&d);
    }
}

static const struct check_test tests[] = {
    TEST(messages_that_stay_meet_their_receives),
    TEST(one_that_sent_to_one_that_closes_hears_whether_it_was_taken),
    TEST(one_that_leaves_waits_for_no_copy_that_never_begins),
    TEST(one_that_leaves_waits_for_none_that_does_nothing),
    TEST(one_that_leaves_is_sure_of_sends_whose_results_have_no_room),
    TEST(the_oldest_recalled_has_the_reason),
    TEST(one_that_died_after_it_left_has_left),
};

MAIN(tests)
