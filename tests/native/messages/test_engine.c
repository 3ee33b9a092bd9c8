/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ends: every size and every protocol, in order; and the
 * failures of a single message.
 */
#include "world.h"

/* Advances a fresh pair as if it had carried `messages` in `slots` slots. */
static void age(struct duo *d, uint64_t slots, uint64_t messages)
{
    for (int side = 0; side < 2; side++) {
        struct shmnd_qp *q = side ? &d->b->q : &d->a->q;
        q->out.write_pos = slots;
        q->out.room_pos = slots + SHMND_RING_USUAL;
        q->in.read_pos = q->in.returned_pos = slots;
        shmnd_put64(q->in.read_pos_shared, slots);
        q->messages = q->taken = q->seen.credit = q->seen.entries = messages;
        q->posted_base = q->own.matched - messages;
        shmnd_put64(&q->link.mine->taken, messages);
        shmnd_put64(&q->link.mine->posted, messages);
        shmnd_put64(&q->counters->sent, messages);
        shmnd_put64(&q->counters->taken, messages);
        shmnd_count_posted(q);
    }
}

/* clang-format off */
static const uint32_t eager_sizes[] = {0,   1,   7,    8,    47,   48,   49,  50,  103, 104,
                                       105, 159, 160,  161,  500,  1023, 1024, 1025, 2000,
                                       3519, 3520, 3521, SHMND_EAGER_MAX - 1, SHMND_EAGER_MAX};
/* clang-format on */
#define EAGER_SIZES (sizeof eager_sizes / sizeof eager_sizes[0])

/* Every size around the bound of a slot, from positions around every wrap. */
static void eager_sizes_and_wraps(void)
{
    static const uint64_t slots[] = {0, 200, (1ull << 32) - 70, (1ull << 61) - 70};
    static const uint64_t messages[] = {0, 7, (1ull << 32) - 9, (1ull << 62) - 9};
    for (int k = 0; k < 4; k++) {
        struct duo d;
        duo_open(&d);
        age(&d, slots[k], messages[k]);
        uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
        uint32_t ta = region_new(d.pa, src, 4096, 0), tb = region_new(d.pb, dst, 4096, 1);
        for (uint32_t i = 0; i < 4 * EAGER_SIZES; i++) {
            uint32_t n = eager_sizes[i % EAGER_SIZES];
            NOTE("start %d, %u bytes", k, n);
            struct shmnd_sge s = sge(src, n, ta), r = sge(dst, n, tb);
            fill(src, n, i);
            memset(dst, 0, n + 8);
            bool late = i & 1;
            if (!late)
                EQUAL(post_receive(d.b, i, &r, n ? 1 : i / 2 % 2), SHMND_SUCCESS);
            EQUAL(post_send(d.a, 1000 + i, &s, n ? 1 : i / 2 % 2, 0), SHMND_SUCCESS);
            if (late) {
                CHECK(nothing(d.qa) && nothing(d.qb));
                EQUAL(post_receive(d.b, i, &r, 1), SHMND_SUCCESS);
            }
            EXPECT(d.qa, SHMND_SEND, 1000 + i, SHMND_SUCCESS);
            EXPECT_RECEIVED(d.qb, i, n);
            CHECK(filled(dst, n, i));
            for (uint32_t x = n; x < n + 8; x++)
                EQUAL(dst[x], 0);
        }
        EQUAL(d.b->q.taken, messages[k] + 4 * EAGER_SIZES);
        duo_close(&d);
    }
}

/* A Send whose receive is posted completes without any call by the target. */
static void proven_sends_need_no_target(void)
{
    struct duo d;
    static const uint32_t sizes[] = {0, 8, 1000, 2000, 60000, 300000};
    for (size_t i = 0; i < sizeof sizes / 4; i++) {
        duo_open(&d);
        uint8_t *src = shared_bytes(d.pa, 300000), *dst = shared_bytes(d.pb, 300000);
        uint32_t ta = region_new(d.pa, src, 300000, 0), tb = region_new(d.pb, dst, 300000, 1);
        fill(src, 300000, i);
        struct shmnd_sge s = sge(src, sizes[i], ta), r = sge(dst, 300000, tb);
        EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 2, &s, 1, 0), SHMND_SUCCESS);
        queue_turn(d.qa);
        EQUAL(d.qa->got, 1);
        EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, 1, sizes[i]);
        CHECK(filled(dst, sizes[i] & ~7u, i));
        duo_close(&d);
    }
}

/* ---- every protocol ------------------------------------------------------------------------ */

struct way {
    bool source_private, sink_private, no_vm, late, srq, unmapped, sink_first_sge_tiny;
    uint32_t bytes;
};

static void one_way(struct way y)
{
    struct duo d;
    struct pair_options o = pair_usual;
    struct shmnd_receives srq;
    struct pair_options bo = o;
    NOTE("%u bytes source_private=%d sink_private=%d no_vm=%d late=%d srq=%d unmapped=%d tiny=%d",
         y.bytes, y.source_private, y.sink_private, y.no_vm, y.late, y.srq, y.unmapped,
         y.sink_first_sge_tiny);
    if (y.srq) {
        receives_make(&srq, 16, 4);
        bo.srq = &srq;
    }
    duo_open_with(
        &d,
        (struct world_options){.segment_bytes = 2 << 20, .no_vm = y.no_vm, .unmapped = y.unmapped},
        o, bo);
    uint32_t n = y.bytes;
    uint8_t *src = y.source_private ? guard_alloc(3 * n) : shared_bytes(d.pa, 3 * n);
    uint8_t *dst = y.sink_private ? guard_alloc(3 * n) : shared_bytes(d.pb, 3 * n);
    uint32_t ta = region_new(d.pa, src, 3 * n, 0), tb = region_new(d.pb, dst, 3 * n, 1);
    fill(src, 3 * n, n);
    uint32_t third = n / 3, first = y.sink_first_sge_tiny ? 1 : n / 2;
    for (uint32_t m = 0; m < 3; m++) {
        struct shmnd_sge s[3] = {sge(src + m * n, third, ta), sge(src + m * n + third, 0, ta),
                                 sge(src + m * n + third, n - third, ta)};
        struct shmnd_sge r[2] = {sge(dst + m * n, first, tb),
                                 sge(dst + m * n + first, n - first, tb)};
        if (m == 0 && y.late) {
            EQUAL(post_send(d.a, m, s, 3, 0), SHMND_SUCCESS);
            CHECK(nothing(d.qa) && nothing(d.qb));
        }
        if (y.srq)
            shmnd_receives_add(&srq, (void *)(uintptr_t)(10 + m), r, 2);
        else
            EQUAL(post_receive(d.b, 10 + m, r, 2), SHMND_SUCCESS);
        if (m || !y.late)
            EQUAL(post_send(d.a, m, s, 3, 0), SHMND_SUCCESS);
    }
    for (uint32_t m = 0; m < 3; m++) {
        EXPECT(d.qa, SHMND_SEND, m, SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, 10 + m, n);
    }
    CHECK(memcmp(src, dst, 3 * n) == 0);
    CHECK(nothing(d.qa) && nothing(d.qb));
    EQUAL(d.a->q.state, SHMND_QP_CONNECTED);
    EQUAL(d.a->q.backlog.count, 0);
    duo_close(&d);
}

static void every_way(void)
{
    static const uint32_t sizes[] = {48,
                                     1024,
                                     3577,
                                     SHMND_EAGER_LONGEST,
                                     SHMND_EAGER_LONGEST + 1,
                                     20000,
                                     SHMND_SHARE_MIN - 1,
                                     SHMND_SHARE_MIN,
                                     SHMND_SHARE_MIN + 70001};
    for (uint32_t k = 0; k < 128; k++)
        for (size_t i = 0; i < sizeof sizes / 4; i++)
            one_way((struct way){k & 1, k & 2, k & 4, k & 8, k & 16, k & 32, k & 64, sizes[i]});
}

/* The sender alone places a message from private memory to which the reader would need system
 * calls, up to SHMND_PLACE_PRIVATE_MAX. */
static void private_memory_is_placed(void)
{
    static const uint32_t sizes[] = {SHMND_SHARE_MIN - 1, SHMND_SHARE_MIN, SHMND_PLACE_PRIVATE_MAX,
                                     SHMND_PLACE_PRIVATE_MAX + 1};
    for (uint32_t k = 0; k < 8; k++) {
        struct duo d;
        uint32_t n = sizes[k / 2];
        bool private = k & 1, placed = n < SHMND_SHARE_MIN;
        placed = placed || (private && n <= SHMND_PLACE_PRIVATE_MAX);
        NOTE("%u bytes, %s", n, private ? "private" : "shared");
        duo_open_with(&d, (struct world_options){.segment_bytes = 1 << 20}, pair_usual, pair_usual);
        uint8_t *src = private ? guard_alloc(n) : shared_bytes(d.pa, n);
        uint8_t *dst = shared_bytes(d.pb, n);
        fill(src, n, n);
        struct shmnd_sge s = sge(src, n, region_new(d.pa, src, n, 0));
        struct shmnd_sge r = sge(dst, n, region_new(d.pb, dst, n, 1));
        EQUAL(post_receive(d.b, 2, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 1, &s, 1, 0), SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
        EQUAL(d.a->q.shares.count, !placed);
        EXPECT_RECEIVED(d.qb, 2, n);
        CHECK(filled(dst, n, n));
        duo_close(&d);
    }
}

/* Both ends send to each other at once, each polling only its own queue. */
static void both_directions(void)
{
    static const uint32_t sizes[] = {40, 2000, 50000, 200000};
    for (int k = 0; k < 16; k++) {
        struct duo d;
        duo_open_with(&d, (struct world_options){.segment_bytes = 4 << 20, .no_vm = k & 4},
                      pair_usual, pair_usual);
        uint32_t n = sizes[k & 3];
        bool private = k & 8;
        uint8_t *m[2][2];
        uint32_t t[2][2];
        for (int side = 0; side < 2; side++) {
            struct proc *p = side ? d.pb : d.pa;
            for (int in = 0; in < 2; in++) {
                m[side][in] = private ? guard_alloc(n) : shared_bytes(p, n);
                t[side][in] = region_new(p, m[side][in], n, in);
            }
            fill(m[side][0], n, (uint64_t)side + 5);
        }
        for (int side = 0; side < 2; side++) {
            struct pair *e = side ? d.b : d.a;
            struct shmnd_sge s = sge(m[side][0], n, t[side][0]), r = sge(m[side][1], n, t[side][1]);
            for (uint64_t i = 0; i < 8; i++)
                EQUAL(post_receive(e, i, &r, 1), SHMND_SUCCESS);
            for (uint64_t i = 0; i < 8; i++)
                EQUAL(post_send(e, 100 + i, &s, 1, 0), SHMND_SUCCESS);
        }
        for (int side = 0; side < 2; side++) {
            struct queue *c = side ? d.qb : d.qa;
            uint64_t sent = 0, received = 0;
            while (sent + received < 16) {
                struct shmnd_cqe e = next(c);
                EQUAL(e.status, SHMND_SUCCESS);
                EQUAL((uintptr_t)e.context, e.type == SHMND_SEND ? 100 + sent++ : received++);
            }
        }
        for (int side = 0; side < 2; side++)
            CHECK(filled(m[side][1], n, (uint64_t)(1 - side) + 5));
        duo_close(&d);
    }
}

/* A mix of sizes without receives fills the ring; all messages arrive in order. */
static void backlog(void)
{
    struct duo d;
    struct pair_options o = pair_usual;
    o.receives = o.requests = 200;
    duo_open_with(&d, (struct world_options){.segment_bytes = 4 << 20}, o, o);
    uint8_t *src = shared_bytes(d.pa, 200000), *dst = shared_bytes(d.pb, 200000);
    uint32_t ta = region_new(d.pa, src, 200000, 0), tb = region_new(d.pb, dst, 200000, 1);
    fill(src, 200000, 1);
    static const uint32_t sizes[] = {8, 3000, 1000, 150000, 40, 3576, 20000};
    for (uint64_t i = 0; i < 200; i++) {
        struct shmnd_sge s = sge(src, sizes[i % 7], ta);
        EQUAL(post_send(d.a, i, &s, 1, 0), SHMND_SUCCESS);
    }
    struct shmnd_sge s = sge(src, 8, ta);
    EQUAL(post_send(d.a, 999, &s, 1, 0), SHMND_NO_MORE_ENTRIES);
    CHECK(nothing(d.qa) && nothing(d.qb));
    for (uint64_t i = 0; i < 200; i++) {
        struct shmnd_sge r = sge(dst, 200000, tb);
        EQUAL(post_receive(d.b, i, &r, 1), SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, i, sizes[i % 7]);
        CHECK(memcmp(src, dst, sizes[i % 7]) == 0);
        EXPECT(d.qa, SHMND_SEND, i, SHMND_SUCCESS);
    }
    duo_close(&d);
}

/* ---- inline, silent, solicited ------------------------------------------------------------ */

static void inline_data_is_captured(void)
{
    struct duo d;
    duo_open(&d);
    uint8_t loose[128];
    uint8_t *dst = shared_bytes(d.pb, 256);
    uint32_t tb = region_new(d.pb, dst, 256, 1);
    for (int late = 0; late < 2; late++) {
        struct shmnd_sge s[5], r = sge(dst, 256, tb);
        fill(loose, 125, 3);
        for (int i = 0; i < 5; i++)
            s[i] = sge(loose + 25 * i, 25, 0xdeadbeef); /* more SGEs than granted, no token */
        if (!late)
            EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 2, s, 5, SHMND_OP_INLINE), SHMND_SUCCESS);
        memset(loose, 0, sizeof loose);
        if (late)
            EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, 1, 125);
        CHECK(filled(dst, 125, 3));
    }
    struct shmnd_sge big = sge(loose, 129, 0);
    EQUAL(post_send(d.a, 3, &big, 1, SHMND_OP_INLINE), SHMND_BUFFER_OVERFLOW);
    EQUAL(post_send(d.a, 3, &big, 1, 0x40), SHMND_INVALID_PARAMETER_4);
    duo_close(&d);
}

static void silent_successes_have_no_completion(void)
{
    struct duo d;
    duo_open(&d);
    uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
    uint32_t ta = region_new(d.pa, src, 4096, 0), tb = region_new(d.pb, dst, 4096, 1);
    struct shmnd_sge s = sge(src, 2000, ta), r = sge(dst, 4096, tb);
    for (uint64_t i = 0; i < 50; i++) {
        s.length = i % 2 ? 10 : 2000;
        if (i % 3)
            EQUAL(post_receive(d.b, i, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, i, &s, 1, SHMND_OP_SILENT_SUCCESS), SHMND_SUCCESS);
        if (i % 3 == 0)
            EQUAL(post_receive(d.b, i, &r, 1), SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, i, s.length);
    }
    CHECK(nothing(d.qa));
    EQUAL(post_send(d.a, 77, &s, 1, SHMND_OP_SILENT_SUCCESS), SHMND_SUCCESS);
    disconnect(d.a);
    EXPECT(d.qa, SHMND_SEND, 77, SHMND_CANCELED); /* every failure has a completion */
    duo_close(&d);
}

/* Silent successes leave a queue that is not polled empty, and each context is released once. */
static void silent_successes_take_no_place(void)
{
    struct duo d;
    duo_open(&d);
    uint32_t n = 40000;
    uint8_t *src = shared_bytes(d.pa, n), *dst = shared_bytes(d.pb, n);
    uint32_t ta = region_new(d.pa, src, n, 0), tb = region_new(d.pb, dst, n, 5);
    struct shmnd_sge s = sge(src, n, ta);
    uint64_t sum = 0;
    bool kept;
    for (uint64_t i = 1; i <= 500; i++) {
        EQUAL(shmnd_post_rdma(&d.a->q, (void *)i, SHMND_WRITE, &s, 1, (uintptr_t)dst, tb,
                              SHMND_OP_SILENT_SUCCESS, &kept),
              SHMND_SUCCESS);
        CHECK(kept);
        sum += i;
        advance(d.a);
        EQUAL(d.pa->given_back, i);
        EQUAL(d.pa->given_sum, sum);
        EQUAL(shmnd_cq_count(&d.qa->cq), 0);
    }
    EQUAL(d.a->q.wq.released, d.a->q.wq.oldest);
    duo_close(&d);
}

static void solicited_is_carried_by_every_kind(void)
{
    static const uint32_t sizes[] = {8, 2000, 20000, 300000};
    for (int k = 0; k < 16; k++) {
        struct duo d;
        NOTE("case %d", k);
        duo_open_with(&d, (struct world_options){.no_vm = k & 8}, pair_usual, pair_usual);
        uint32_t n = sizes[k & 3];
        uint8_t *src = k & 8 ? guard_alloc(n) : shared_bytes(d.pa, n);
        uint8_t *dst = k & 8 ? guard_alloc(n) : shared_bytes(d.pb, n);
        struct shmnd_sge s = sge(src, n, region_new(d.pa, src, n, 0));
        struct shmnd_sge r = sge(dst, n, region_new(d.pb, dst, n, 1));
        EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        uint32_t flags = k & 4 ? SHMND_OP_SOLICIT : 0;
        EQUAL(post_send(d.a, 2, &s, 1, flags), SHMND_SUCCESS);
        struct shmnd_cqe e = next(d.qb);
        EQUAL(e.status, SHMND_SUCCESS);
        EQUAL(e.flags, flags ? SHMND_CQE_SOLICITED : 0);
        EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
        duo_close(&d);
    }
}

/* ---- failures of a message ------------------------------------------------------------------ */

/* A receive that is too small, with each protocol. */
static void receives_too_small(void)
{
    static const uint32_t sizes[] = {49, 1500, 20000, 300000};
    for (int k = 0; k < 32; k++) {
        struct duo d;
        bool late = k & 4, private = k & 8, no_vm = k & 16;
        uint32_t n = sizes[k & 3];
        NOTE("%u bytes late=%d private=%d no_vm=%d", n, late, private, no_vm);
        duo_open_with(&d, (struct world_options){.no_vm = no_vm}, pair_usual, pair_usual);
        uint8_t *src = private ? guard_alloc(n) : shared_bytes(d.pa, n);
        uint8_t *dst = private ? guard_alloc(2 * n) : shared_bytes(d.pb, 2 * n);
        struct shmnd_sge s = sge(src, n, region_new(d.pa, src, n, 0));
        struct shmnd_sge small = sge(dst, n - 1, region_new(d.pb, dst, 2 * n, 1));
        struct shmnd_sge r = sge(dst + n, n, small.token);
        fill(src, n, 1);
        if (!late) {
            EQUAL(post_receive(d.b, 1, &small, 1), SHMND_SUCCESS);
            EQUAL(post_receive(d.b, 2, &r, 1), SHMND_SUCCESS);
        }
        EQUAL(post_send(d.a, 11, &s, 1, 0), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 12, &s, 1, 0), SHMND_SUCCESS);
        if (late) {
            world_turns(&d.w, 3);
            EQUAL(post_receive(d.b, 1, &small, 1), SHMND_SUCCESS);
            EQUAL(post_receive(d.b, 2, &r, 1), SHMND_SUCCESS);
        }
        EXPECT(d.qb, SHMND_RECEIVE, 1, SHMND_BUFFER_OVERFLOW);
        EXPECT(d.qb, SHMND_RECEIVE, 2, SHMND_CANCELED);
        EXPECT(d.qa, SHMND_SEND, 11, SHMND_REMOTE_ERROR);
        EXPECT(d.qa, SHMND_SEND, 12, SHMND_CANCELED);
        EQUAL(dst[n - 1], 0);
        EQUAL(d.a->q.state, SHMND_QP_DOWN);
        EQUAL(d.b->q.state, SHMND_QP_DOWN);
        duo_close(&d);
    }
}

/* A message larger than a later receive is not taken to fit when the posted receives are checked
 * again. */
static void small_receive_behind_others(void)
{
    for (int first = 0; first < 5; first++) {
        struct duo d;
        NOTE("%d before", first);
        duo_open(&d);
        uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
        uint32_t ta = region_new(d.pa, src, 4096, 0), tb = region_new(d.pb, dst, 4096, 1);
        struct shmnd_sge s = sge(src, 200, ta), r = sge(dst, 4096, tb), small = sge(dst, 100, tb);
        for (int i = 0; i < first; i++)
            EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EQUAL(post_receive(d.b, 2, &small, 1), SHMND_SUCCESS);
        EQUAL(post_receive(d.b, 3, &r, 1), SHMND_SUCCESS);
        for (int i = 0; i < first; i++) {
            EQUAL(post_send(d.a, 10, &s, 1, 0), SHMND_SUCCESS);
            EXPECT(d.qa, SHMND_SEND, 10, SHMND_SUCCESS);
        }
        EQUAL(post_send(d.a, 11, &s, 1, 0), SHMND_SUCCESS);
        for (int i = 0; i < 4; i++)
            queue_turn(d.qa);
        EQUAL(d.qa->got, 0);
        for (int i = 0; i < first; i++)
            EXPECT_RECEIVED(d.qb, 1, 200);
        EXPECT(d.qb, SHMND_RECEIVE, 2, SHMND_BUFFER_OVERFLOW);
        EXPECT(d.qa, SHMND_SEND, 11, SHMND_REMOTE_ERROR);
        duo_close(&d);
    }
}

/* Each side refuses a message of the other before it sees that the other one does: neither waits
 * for the other to take what it never will. */
static void both_sides_refuse_at_once(void)
{
    static const uint32_t sizes[] = {40, 400, 4000, 40000, 200000};
    for (int k = 0; k < 10; k++) {
        struct duo d;
        uint32_t n = sizes[k / 2];
        bool more = k & 1;
        NOTE("%u bytes, more=%d", n, more);
        duo_open(&d);
        struct pair *ends[] = {d.a, d.b};
        struct queue *queues[] = {d.qa, d.qb};
        struct shmnd_sge s[2];
        for (int i = 0; i < 2; i++) {
            uint8_t *memory = shared_bytes((i ? d.pb : d.pa), 2 * n);
            uint32_t token = region_new((i ? d.pb : d.pa), memory, 2 * n, 1);
            struct shmnd_sge small = sge(memory + n, 8, token), r = sge(memory + n, n, token);
            s[i] = sge(memory, n, token);
            EQUAL(post_receive(ends[i], 1, &small, 1), SHMND_SUCCESS);
            EQUAL(post_receive(ends[i], 2, &r, 1), SHMND_SUCCESS);
        }
        for (int i = 0; i < 2; i++) {
            EQUAL(post_send(ends[i], 11, &s[i], 1, 0), SHMND_SUCCESS);
            if (more)
                EQUAL(post_send(ends[i], 12, &s[i], 1, 0), SHMND_SUCCESS);
        }
        for (int i = 0; i < 2; i++)
            while (shmnd_qp_consume_one(&ends[i]->q)) {
            }
        for (int i = 0; i < 2; i++) {
            EXPECT(queues[i], SHMND_RECEIVE, 1, SHMND_BUFFER_OVERFLOW);
            EXPECT(queues[i], SHMND_SEND, 11, SHMND_REMOTE_ERROR);
            if (more)
                EXPECT(queues[i], SHMND_SEND, 12, SHMND_CANCELED);
            EXPECT(queues[i], SHMND_RECEIVE, 2, SHMND_CANCELED);
        }
        duo_close(&d);
    }
}

/* Invalid memory of the sender: reported at completion, ends the connection, and the message is
 * never sent. All messages before it are delivered. */
static void sources_that_violate(void)
{
    for (int k = 0; k < 12; k++) {
        struct duo d;
        NOTE("case %d", k);
        duo_open(&d);
        uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
        uint32_t ta = region_new(d.pa, src, 2048, 0), tb = region_new(d.pb, dst, 4096, 1);
        struct shmnd_sge bad[] = {
            sge(src, 2049, ta), sge(src - 1, 8, ta),          sge(src, 8, ta + 1),
            sge(src, 8, 0),     sge(src, 8, ta ^ (1u << 30)), sge((void *)~(uintptr_t)0, 100, ta)};
        struct shmnd_sge s = sge(src, 8, ta), r = sge(dst, 4096, tb);
        bool receives = k < 6;
        for (uint64_t i = 0; receives && i < 3; i++)
            EQUAL(post_receive(d.b, i, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 10, &s, 1, 0), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 11, &bad[k % 6], 1, 0), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 12, &s, 1, 0), SHMND_SUCCESS);
        if (!receives) {
            world_turns(&d.w, 3);
            EQUAL(post_receive(d.b, 0, &r, 1), SHMND_SUCCESS);
        }
        EXPECT(d.qa, SHMND_SEND, 10, SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_SEND, 11, SHMND_ACCESS_VIOLATION);
        EXPECT(d.qa, SHMND_SEND, 12, SHMND_CANCELED);
        EXPECT_RECEIVED(d.qb, 0, 8);
        for (uint64_t i = 1; receives && i < 3; i++)
            EXPECT(d.qb, SHMND_RECEIVE, i, SHMND_CANCELED);
        CHECK(nothing(d.qa) && nothing(d.qb));
        duo_close(&d);
    }
}

/* Invalid memory of the receiver is found when a message matches it. */
static void sinks_that_violate(void)
{
    static const uint32_t sizes[] = {8, 2000, 20000, 200000};
    for (int k = 0; k < 12; k++) {
        struct duo d;
        NOTE("case %d", k);
        duo_open(&d);
        uint32_t n = sizes[k & 3];
        uint8_t *src = shared_bytes(d.pa, n), *dst = shared_bytes(d.pb, n);
        uint32_t ta = region_new(d.pa, src, n, 0);
        uint32_t tb = region_new(d.pb, dst, n, k < 4 ? 0 : SHMND_MR_LOCAL_WRITE);
        struct shmnd_sge s = sge(src, n, ta), r = sge(dst, n, tb);
        if (k >= 4)
            r.length += k < 8; /* one byte beyond; or deregistered below */
        fill(src, n, 1);
        EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EQUAL(post_receive(d.b, 2, &r, 1), SHMND_SUCCESS);
        if (k >= 8) {
            CHECK(shmnd_rx_drop_region(&d.b->q, tb));
            EQUAL(shmnd_region_lookup(&d.pb->registry, tb)->posted, 0);
            shmnd_region_lookup(&d.pb->registry, tb)->token = 0;
        }
        EQUAL(post_send(d.a, 11, &s, 1, 0), SHMND_SUCCESS);
        EXPECT(d.qb, SHMND_RECEIVE, 1, SHMND_ACCESS_VIOLATION);
        EXPECT(d.qb, SHMND_RECEIVE, 2, SHMND_CANCELED);
        struct shmnd_cqe e = next(d.qa);
        CHECK(e.status == SHMND_REMOTE_ERROR || (n <= 2000 && e.status == SHMND_SUCCESS));
        for (uint32_t i = 0; i < n; i++)
            EQUAL(dst[i], 0);
        duo_close(&d);
    }
}

/* The receive of a large message fails while its sender copies into it: it completes when that copy
 * has ended, since its memory belongs to its owner then. */
static void a_refused_receive_completes_after_the_copy_into_it(void)
{
    struct duo d;
    uint32_t n = 200000;
    bool kept;
    duo_open(&d);
    uint8_t *src = shared_bytes(d.pa, n), *dst = shared_bytes(d.pb, n);
    uint32_t ta = region_new(d.pa, src, n, 0), tb = region_new(d.pb, dst, n, 1);
    struct shmnd_sge s = sge(src, n, ta), r = sge(dst, n, tb);
    EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
    EQUAL(shmnd_post_send(&d.a->q, NULL, &s, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(&d.a->q), SHMND_RUN);
    CHECK(shmnd_push_enter(&d.a->q, d.a->q.tx.job.revision));
    shmnd_region_lookup(&d.pb->registry, tb)->length = 0;
    for (uint32_t i = 0; i < 8; i++)
        EQUAL(queue_turn(d.qb), 0);
    shmnd_hazard_leave(&d.a->q.link.mine->hazard);
    queue_turn(d.qb);
    EXPECT(d.qb, SHMND_RECEIVE, 1, SHMND_ACCESS_VIOLATION);
    shmnd_tx_run(&d.a->q);
    shmnd_tx_run_done(&d.a->q);
    EXPECT(d.qa, SHMND_SEND, 0, SHMND_REMOTE_ERROR);
    duo_close(&d);
}

/* Advertised receives are counted in their regions, and the counts return to zero. */
static void regions_count_published_receives(void)
{
    struct duo d;
    duo_open(&d);
    uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
    uint32_t ta = region_new(d.pa, src, 4096, 0), tb = region_new(d.pb, dst, 4096, 1);
    struct shmnd_region *region = shmnd_region_lookup(&d.pb->registry, tb);
    struct shmnd_sge s = sge(src, 100, ta);
    struct shmnd_sge r[2] = {sge(dst, 100, tb), sge(dst + 100, 100, tb)};
    for (uint64_t i = 0; i < 10; i++)
        EQUAL(post_receive(d.b, i, r, 2), SHMND_SUCCESS);
    EQUAL(region->posted, 20);
    for (uint64_t i = 0; i < 3; i++) {
        EQUAL(post_send(d.a, i, &s, 1, 0), SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, i, 100);
    }
    EQUAL(region->posted, 14);
    CHECK(shmnd_rx_drop_region(&d.b->q, tb));
    EQUAL(region->posted, 0);
    EQUAL(post_receive(d.b, 10, r, 2), SHMND_SUCCESS);
    EQUAL(region->posted, 2);
    disconnect(d.b);
    EQUAL(region->posted, 0);
    duo_close(&d);
}

static const struct check_test tests[] = {
    TEST(eager_sizes_and_wraps),
    TEST(proven_sends_need_no_target),
    TEST(every_way),
    TEST(private_memory_is_placed),
    TEST(both_directions),
    TEST(backlog),
    TEST(inline_data_is_captured),
    TEST(silent_successes_have_no_completion),
    TEST(silent_successes_take_no_place),
    TEST(solicited_is_carried_by_every_kind),
    TEST(receives_too_small),
    TEST(small_receive_behind_others),
    TEST(both_sides_refuse_at_once),
    TEST(sources_that_violate),
    TEST(sinks_that_violate),
    TEST(a_refused_receive_completes_after_the_copy_into_it),
    TEST(regions_count_published_receives),
};
MAIN(tests)
