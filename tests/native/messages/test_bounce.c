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
                EQUAL(s.d.a->q.wq_head, s.d.a->q.wq_tail);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
            EXPECT_RECEIVED(s.d.qb, 2, n);
            CHECK(memcmp(s.src, s.dst, n) == 0);
            duo_close(&s.d);
        }
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

/* Messages that are not taken never share a byte, whatever their lengths and however many were
 * taken: the area is full at some time, and begins again when it is empty. */
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
            bool empty = b->first == b->count;
            uint32_t at = shmnd_bounce_take(q, length);
            restarts += empty;
            CHECK(!empty || at == 0);
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
    TEST(every_size_and_memory),       TEST(before_its_receive),
    TEST(places_never_overlap),        TEST(without_memory),
    TEST(the_budget_is_given_back),    TEST(a_hostile_sender),
    TEST(with_a_token_and_in_a_batch),
};
MAIN(tests)
