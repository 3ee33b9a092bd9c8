/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages by way of the bounce area: which ones go there, that each is whole, that bytes are used
 * again only when the peer has taken them, and what happens without memory and with a hostile peer.
 */
#include "world.h"

struct scene {
    struct duo d;
    uint8_t *src, *dst;
    struct shmnd_sge from, to;
};

static void open_scene(struct scene *s, uint32_t bytes, bool private_source, bool private_sink)
{
    duo_open_with(&s->d, (struct world_options){.segment_bytes = bytes + 64}, pair_usual,
                  pair_usual);
    s->src = private_source ? guard_alloc(bytes) : shared_bytes(s->d.pa, bytes);
    s->dst = private_sink ? guard_alloc(bytes) : shared_bytes(s->d.pb, bytes);
    s->from = sge(s->src, bytes, region_new(s->d.pa, s->src, bytes, SHMND_MR_LOCAL_WRITE));
    s->to = sge(s->dst, bytes, region_new(s->d.pb, s->dst, bytes, SHMND_MR_LOCAL_WRITE));
    fill(s->src, bytes, bytes);
}

static void receive_and_send(struct scene *s)
{
    EQUAL(post_receive(s->d.b, 2, &s->to, 1), SHMND_SUCCESS);
    EQUAL(post_send(s->d.a, 1, &s->from, 1, 0), SHMND_SUCCESS);
}

static uint64_t bounced(const struct scene *s)
{
    return s->d.a->q.bounces.count;
}

static void every_size_and_memory(void)
{
    static const uint32_t sizes[] = {
        SHMND_PLACE_MIN, SHMND_BOUNCE_MIN - 1, SHMND_BOUNCE_MIN, SHMND_EAGER_LONGEST, 20001,
        SHMND_SHARE_MIN, SHMND_BOUNCE_MAX - 1, SHMND_BOUNCE_MAX, SHMND_BOUNCE_MAX + 1};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int memory = 0; memory < 4; memory++) {
            struct scene s;
            uint32_t n = sizes[i];
            NOTE("%u bytes, memory %d", n, memory);
            open_scene(&s, n, memory & 1, memory & 2);
            receive_and_send(&s);
            bool expected = (memory & 2) && n >= SHMND_BOUNCE_MIN && n <= SHMND_BOUNCE_MAX;
            EQUAL(bounced(&s), expected);
            if (expected) /* its receive is known: it has ended without its receiver */
                EQUAL(s.d.a->q.wq.oldest, s.d.a->q.wq.end);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
            EXPECT_RECEIVED(s.d.qb, 2, n);
            CHECK(memcmp(s.src, s.dst, n) == 0);
            duo_close(&s.d);
        }
}

/* Where the kernel was faster, both sides copy by it, if they can. */
static void a_long_one_goes_by_the_faster_way(void)
{
    static const uint32_t sizes[] = {SHMND_SHARE_MIN - 1, SHMND_SHARE_MIN, 100000,
                                     SHMND_BOUNCE_MAX};
    for (uint32_t i = 0; i < 4; i++)
        for (int memory = 0; memory < 2; memory++) {
            struct scene s;
            open_scene(&s, sizes[i], memory, true);
            NOTE("%u bytes, memory %d", sizes[i], memory);
            *shmnd_way_of(&s.d.a->q.ways, sizes[i]) =
                (struct shmnd_way){.messages = SHMND_WAY_TRIAL, .by_kernel = true};
            receive_and_send(&s);
            EQUAL(bounced(&s), sizes[i] < SHMND_SHARE_MIN);
            EXPECT_RECEIVED(s.d.qb, 2, sizes[i]);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
            CHECK(memcmp(s.src, s.dst, sizes[i]) == 0);
            duo_close(&s.d);
        }
}

/* In a trial half of the messages go each way, whatever their memory holds. */
static void a_trial_has_messages_of_both_ways(void)
{
    struct scene s;
    open_scene(&s, 50000, true, true);
    for (uint32_t i = 0; i < SHMND_WAY_TRIAL; i++) {
        uint64_t before = bounced(&s);
        fill(s.src, 50000, i);
        receive_and_send(&s);
        EQUAL(bounced(&s) - before, i / SHMND_WAY_BLOCK % 2 == 0);
        EXPECT_RECEIVED(s.d.qb, 2, 50000);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        CHECK(filled(s.dst, 50000, i));
    }
    EQUAL(shmnd_way_of(&s.d.a->q.ways, 50000)->messages, SHMND_WAY_TRIAL);
    duo_close(&s.d);
}

/* Not if its receive is unknown, or if all share words are in use, or if the peer cannot read. */
static void it_goes_by_the_kernel_only_if_both_can_copy(void)
{
    for (int why = 0; why < 3; why++) {
        struct scene s;
        open_scene(&s, 50000, true, true);
        struct shmnd_qp *q = &s.d.a->q;
        *shmnd_way_of(&q->ways, 50000) =
            (struct shmnd_way){.messages = SHMND_WAY_TRIAL, .by_kernel = true};
        q->shares.count = why == 1 ? SHMND_SHARES : 0;
        for (uint32_t i = 0; i < SHMND_SHARES; i++)
            q->shares.message[i] = 1000;
        if (why == 2)
            shmnd_put32(&s.d.b->q.link.mine->reaches, 0);
        if (why > 0)
            EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
        EQUAL(post_send(s.d.a, 1, &s.from, 1, 0), SHMND_SUCCESS);
        EQUAL(bounced(&s), 1);
        if (why == 0)
            EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
        EXPECT_RECEIVED(s.d.qb, 2, 50000);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        CHECK(memcmp(s.src, s.dst, 50000) == 0);
        duo_close(&s.d);
    }
}

/* How many messages of this range has the sender counted? */
static uint32_t counted(const struct scene *s)
{
    return shmnd_way_of(&s->d.a->q.ways, s->from.length)->messages;
}

/* A message that has no choice between the two ways is not timed. */
static void only_messages_with_a_choice_are_counted(void)
{
    struct scene s;
    for (int memory = 0; memory < 4; memory++) {
        open_scene(&s, 50000, memory & 1, memory & 2);
        receive_and_send(&s);
        EQUAL(counted(&s), (memory & 2) != 0);
        EXPECT_RECEIVED(s.d.qb, 2, 50000);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        EQUAL(post_send(s.d.a, 1, &s.from, 1, 0), SHMND_SUCCESS); /* its receive is unknown */
        EQUAL(counted(&s), (memory & 2) != 0);
        duo_close(&s.d);
    }
    open_scene(&s, SHMND_SHARE_MIN - 1, true, true);
    receive_and_send(&s);
    EQUAL(bounced(&s), 1);
    EQUAL(counted(&s), 0);
    duo_close(&s.d);
}

/* From private memory to a receive that is not posted yet: it waits, and can be taken back. */
static void before_its_receive(void)
{
    for (int flushed = 0; flushed < 2; flushed++) {
        struct scene s;
        open_scene(&s, 30000, true, false);
        EQUAL(post_send(s.d.a, 1, &s.from, 1, 0), SHMND_SUCCESS);
        EQUAL(bounced(&s), 1);
        CHECK(nothing(s.d.qa));
        if (flushed) {
            shmnd_qp_flush(&s.d.a->q);
            settle(s.d.a);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
            CHECK(nothing(s.d.qb)); /* passes over it */
            receive_and_send(&s);
        } else {
            EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
        }
        EXPECT_RECEIVED(s.d.qb, 2, 30000);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        CHECK(memcmp(s.src, s.dst, 30000) == 0);
        duo_close(&s.d);
    }
}

/* A ring that is sized for few messages holds a short one only if its receive is known. */
static void before_its_receive_and_with_a_small_ring(void)
{
    struct world_options small = {.segment_bytes = 4096, .fitting_rings = true};
    for (uint32_t known = 0; known < 2; known++) {
        struct scene s;
        duo_open_with(&s.d, small, pair_usual, pair_usual);
        uint32_t longest = shmnd_eager_max(&s.d.a->q.out);
        CHECK(longest >= SHMND_PLACE_MIN && longest + 1 < SHMND_BOUNCE_MIN);
        for (uint32_t n = longest; n <= longest + 1; n++) {
            s.src = guard_alloc(n);
            s.dst = guard_alloc(n);
            s.from = sge(s.src, n, region_new(s.d.pa, s.src, n, SHMND_MR_LOCAL_WRITE));
            s.to = sge(s.dst, n, region_new(s.d.pb, s.dst, n, SHMND_MR_LOCAL_WRITE));
            fill(s.src, n, n);
            if (known)
                EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
            EQUAL(post_send(s.d.a, 1, &s.from, 1, 0), SHMND_SUCCESS);
            EQUAL(bounced(&s), !known && n > longest);
            if (!known)
                EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
            EXPECT_RECEIVED(s.d.qb, 2, n);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
            CHECK(memcmp(s.src, s.dst, n) == 0);
        }
        duo_close(&s.d);
    }
}

/* Messages that are not taken never share a byte, whatever their lengths and however many were
 * taken: the area is full at some time, and begins again when it is empty, for a short message at
 * once and for a long one at its end. */
static void places_never_overlap(void)
{
    struct scene s;
    open_scene(&s, 64, true, true);
    struct shmnd_qp *q = &s.d.a->q;
    struct shmnd_bounces *b = &q->bounces;
    shmnd_word64 *taken = &s.d.b->q.link.mine->taken;
    uint32_t seed = 1, full = 0, restarts = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t length = 512 + (seed >> 8) % ((seed >> 5) % 7 ? 300000u : SHMND_BOUNCE_MAX - 512);
        if (shmnd_bounce_has_room(q, length)) {
            bool empty = b->first == b->count, behind = length >= SHMND_BOUNCE_LONG;
            uint32_t next = behind && length <= SHMND_BOUNCE_BYTES - b->next ? b->next : 0;
            uint32_t at = shmnd_bounce_take(q, length);
            restarts += empty && at == 0;
            CHECK(!empty || at == next);
            CHECK(!behind || b->next == b->used[(b->count - 1) % SHMND_BOUNCES].end);
            CHECK(at + length <= SHMND_BOUNCE_BYTES && at + length <= b->committed);
            for (uint64_t k = b->first; k + 1 < b->count; k++) {
                uint32_t begin = b->used[k % SHMND_BOUNCES].begin;
                CHECK(at >= b->used[k % SHMND_BOUNCES].end || at + length <= begin);
            }
            q->messages++;
        } else {
            full++;
        }
        if (i % 50 == 0)
            shmnd_put64(taken, q->messages);
        else if ((seed >> 3) % 3 == 0)
            shmnd_put64(taken, shmnd_relaxed64(taken) +
                                   (seed >> 16) % (q->messages - shmnd_relaxed64(taken) + 1));
        CHECK(b->count - b->first <= SHMND_BOUNCES);
    }
    CHECK(full > 100 && restarts > 100);
    shmnd_put64(taken, 0);
    q->messages = 0;
    duo_close(&s.d);
}

/* Each message was taken before the next: a long one lies behind the last long one, up to the end
 * of the area, so that none of its lines is in the cache of the peer, and a short one does not. */
static void long_ones_lie_behind_each_other(void)
{
    struct scene s;
    open_scene(&s, 64, true, true);
    struct shmnd_qp *q = &s.d.a->q;
    shmnd_word64 *taken = &s.d.b->q.link.mine->taken;
    uint32_t length = SHMND_BOUNCE_LONG + 1, step = SHMND_BOUNCE_LONG + 128, next = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        if (i % 3 == 0) {
            CHECK(shmnd_bounce_has_room(q, SHMND_BOUNCE_LONG - 1));
            EQUAL(shmnd_bounce_take(q, SHMND_BOUNCE_LONG - 1), 0);
            shmnd_put64(taken, ++q->messages);
        }
        CHECK(shmnd_bounce_has_room(q, length));
        if (length > SHMND_BOUNCE_BYTES - next)
            next = 0;
        EQUAL(shmnd_bounce_take(q, length), next);
        next += step;
        shmnd_put64(taken, ++q->messages);
    }
    CHECK(1000 * step > 3 * SHMND_BOUNCE_BYTES);
    shmnd_put64(taken, 0);
    q->messages = 0;
    duo_close(&s.d);
}

/* An adapter whose areas have half of the budget, or all of it, gives no area more than its share,
 * or no more pages: long messages use again the pages that there are. */
static void with_few_pages(void)
{
    static const uint64_t before[] = {SHMND_BOUNCE_BUDGET / 2, SHMND_BOUNCE_BUDGET - 100000};
    for (uint32_t k = 0; k < 2; k++) {
        struct scene s;
        uint32_t length = SHMND_BOUNCE_LONG, starts = 0;
        open_scene(&s, 64, true, true);
        struct shmnd_qp *q = &s.d.a->q;
        q->registry->bounce_bytes = before[k];
        for (uint32_t i = 0; i < 100; i++) {
            CHECK(shmnd_bounce_has_room(q, length));
            starts += shmnd_bounce_take(q, length) == 0;
            shmnd_put64(&s.d.b->q.link.mine->taken, ++q->messages);
        }
        EQUAL(q->bounces.committed, k ? 6 * length : SHMND_BOUNCE_SHARE);
        EQUAL(starts, k ? 17 : 4);
        CHECK(!shmnd_bounce_has_room(q, q->bounces.committed + 1));
        q->registry->bounce_bytes = q->bounces.committed;
        shmnd_put64(&s.d.b->q.link.mine->taken, 0);
        q->messages = 0;
        duo_close(&s.d);
    }
}

/* Without memory the message goes the way that it would go without the area. */
static void without_memory(void)
{
    for (int budget = 0; budget < 2; budget++) {
        struct scene s;
        open_scene(&s, 40000, true, true);
        if (budget)
            s.d.pa->registry.bounce_bytes = SHMND_BOUNCE_BUDGET;
        else
            pair_never_bounces(s.d.a);
        receive_and_send(&s);
        EQUAL(bounced(&s), 0);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        EXPECT_RECEIVED(s.d.qb, 2, 40000);
        CHECK(memcmp(s.src, s.dst, 40000) == 0);
        s.d.pa->registry.bounce_bytes = s.d.a->q.bounces.committed;
        duo_close(&s.d);
    }
}

/* What is committed counts for the adapter, and no more when the link is released. */
static void the_budget_is_given_back(void)
{
    struct scene s;
    open_scene(&s, 100000, true, true);
    receive_and_send(&s);
    EXPECT_RECEIVED(s.d.qb, 2, 100000);
    EQUAL(s.d.pa->registry.bounce_bytes, s.d.a->q.bounces.committed);
    EQUAL(s.d.a->q.bounces.committed, 114688);
    shmnd_bounce_release(&s.d.a->q);
    EQUAL(s.d.pa->registry.bounce_bytes, 0);
    duo_close(&s.d);
}

/* An offset, or a length, that reaches past the area ends the connection and nothing else. */
static void a_hostile_sender(void)
{
    static const uint32_t offsets[] = {SHMND_BOUNCE_BYTES - 4095, SHMND_BOUNCE_BYTES, 0x80000000u,
                                       0xfffff000u, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        struct scene s;
        open_scene(&s, 4096, true, true);
        EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
        struct shmnd_write_cursor fill = shmnd_slots_write_begin(&s.d.a->q.out);
        shmnd_slots_write(&fill, &offsets[i], sizeof offsets[i]);
        shmnd_slots_publish(&s.d.a->q.out, 4096, SHMND_KIND_BOUNCED, 0, 1);
        EXPECT(s.d.qb, SHMND_RECEIVE, 2, SHMND_CANCELED);
        CHECK(s.d.b->q.state != SHMND_QP_CONNECTED);
        duo_close(&s.d);
    }
}

/* A message in a batch, and one that invalidates, go there, too. */
static void with_a_token_and_in_a_batch(void)
{
    struct scene s;
    open_scene(&s, 9000, true, true);
    uint32_t window = region_new(s.d.pb, s.dst, 4096, 0);
    window = window_again(s.d.pb, window, SHMND_ALLOW_WRITE, s.d.b->q.link.connection);
    s.d.pb->registry.regions[shmnd_token_index(window)].serial = s.d.b->q.serial;
    EQUAL(post_receive(s.d.b, 2, &s.to, 1), SHMND_SUCCESS);
    EQUAL(post_invalidating(s.d.a, 1, &s.from, 1, window, 0), SHMND_SUCCESS);
    EQUAL(bounced(&s), 1);
    EXPECT_RECEIVED(s.d.qb, 2, 9000);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
    CHECK(memcmp(s.src, s.dst, 9000) == 0);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(every_size_and_memory),
    TEST(a_long_one_goes_by_the_faster_way),
    TEST(a_trial_has_messages_of_both_ways),
    TEST(it_goes_by_the_kernel_only_if_both_can_copy),
    TEST(only_messages_with_a_choice_are_counted),
    TEST(before_its_receive),
    TEST(before_its_receive_and_with_a_small_ring),
    TEST(places_never_overlap),
    TEST(long_ones_lie_behind_each_other),
    TEST(with_few_pages),
    TEST(without_memory),
    TEST(the_budget_is_given_back),
    TEST(a_hostile_sender),
    TEST(with_a_token_and_in_a_batch),
};
MAIN(tests)
