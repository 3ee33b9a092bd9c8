/* SPDX-License-Identifier: Apache-2.0
 *
 * A Read or Write that finds that the other side has begun to end the connection is canceled, and
 * so is every request behind it: no message overtakes a Write that did not take place.
 */
#include "world.h"

#define LENGTH 64u
#define LONG (3u << 20) /* in more than one piece */

enum { ZERO_WRITE, ZERO_READ, SILENT_WRITE, SEND, SILENT_SEND, INVALIDATE, KINDS };

struct scene {
    struct duo d;
    uint8_t *from, *into;
    uint32_t source, sink, window;
};

static void open_scene(struct scene *s, uint32_t length, bool unmapped)
{
    struct world_options o = {.segment_bytes = 8u << 20, .unmapped = unmapped};
    duo_open_with(&s->d, o, pair_usual, pair_usual);
    s->from = shared_bytes(s->d.pa, length);
    s->into = shared_bytes(s->d.pb, length);
    fill(s->from, length, 1);
    s->source = region_new(s->d.pa, s->from, length, SHMND_MR_LOCAL_WRITE);
    s->sink = region_new(s->d.pb, s->into, length, SHMND_MR_LOCAL_WRITE | SHMND_MR_REMOTE_WRITE);
    s->window = window_bind(s->d.a, s->from, LENGTH, SHMND_ALLOW_WRITE, 0);
    EQUAL(post_receive(s->d.b, 100, NULL, 0), SHMND_SUCCESS);
}

static uint32_t write_bytes(struct scene *s, uint64_t context, uint32_t length)
{
    struct shmnd_sge m = sge(s->from, length, s->source);
    return post_rdma(s->d.a, context, SHMND_WRITE, &m, 1, s->into, s->sink, 0);
}

static uint8_t post_behind(struct scene *s, uint32_t kind, uint64_t context)
{
    uint32_t silent = SHMND_OP_SILENT_SUCCESS;
    uint32_t flags = kind == SILENT_WRITE || kind == SILENT_SEND ? silent : 0;
    if (kind == INVALIDATE) {
        window_invalidate(s->d.a, context, s->window);
        return SHMND_INVALIDATE;
    }
    if (kind == SEND || kind == SILENT_SEND) {
        EQUAL(post_send(s->d.a, context, NULL, 0, flags), SHMND_SUCCESS);
        return SHMND_SEND;
    }
    uint8_t type = kind == ZERO_READ ? SHMND_READ : SHMND_WRITE;
    EQUAL(post_rdma(s->d.a, context, type, NULL, 0, NULL, 0, flags), SHMND_SUCCESS);
    return type;
}

static void expect_all_canceled(struct scene *s, const uint8_t *types, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        EXPECT(s->d.qa, types[i], 1 + i, SHMND_CANCELED);
    CHECK(nothing(s->d.qa));
    EXPECT(s->d.qb, SHMND_RECEIVE, 100, SHMND_CANCELED);
    duo_close(&s->d);
}

/* The other side has begun its disconnect, and publishes the end later. */
static void nothing_succeeds_behind_a_write_that_was_refused(void)
{
    for (uint32_t first = 0; first < KINDS; first++)
        for (uint32_t second = 0; second < KINDS; second++) {
            struct scene s;
            if (first == INVALIDATE && second == INVALIDATE)
                continue;
            open_scene(&s, LENGTH, false);
            shmnd_qp_disconnect(&s.d.b->q);
            EQUAL(write_bytes(&s, 1, LENGTH), SHMND_SUCCESS);
            uint8_t types[] = {SHMND_WRITE, post_behind(&s, first, 2), post_behind(&s, second, 3)};
            expect_all_canceled(&s, types, 3);
        }
}

/* A requester that takes its first result before it posts again sees the same. */
static void nothing_succeeds_after_the_result_of_a_write_that_was_refused(void)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct scene s;
        open_scene(&s, LENGTH, false);
        shmnd_qp_disconnect(&s.d.b->q);
        EQUAL(write_bytes(&s, 1, LENGTH), SHMND_SUCCESS);
        queue_turn(s.d.qa);
        uint8_t types[] = {SHMND_WRITE, post_behind(&s, kind, 2)};
        expect_all_canceled(&s, types, 2);
    }
}

static void nothing_succeeds_behind_a_write_that_was_cut_short(void)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct scene s;
        bool kept;
        open_scene(&s, LONG, false);
        struct shmnd_sge m = sge(s.from, LONG, s.source);
        EQUAL(shmnd_post_rdma(&s.d.a->q, (void *)1, SHMND_WRITE, &m, 1, (uint64_t)(uintptr_t)s.into,
                              s.sink, 0, &kept),
              SHMND_SUCCESS);
        EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN);
        shmnd_tx_run(&s.d.a->q);
        shmnd_tx_run_done(&s.d.a->q);
        CHECK(s.d.a->q.tx.busy);
        shmnd_qp_disconnect(&s.d.b->q);
        uint8_t types[] = {SHMND_WRITE, post_behind(&s, kind, 2)};
        expect_all_canceled(&s, types, 2);
    }
}

/* The segment of a side that closes may be gone before it could be mapped. */
static void nothing_succeeds_behind_a_write_to_a_segment_that_is_gone(void)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct scene s;
        open_scene(&s, LENGTH, true);
        s.d.pa->hidden.base = NULL;
        shmnd_qp_disconnect(&s.d.b->q);
        EQUAL(write_bytes(&s, 1, LENGTH), SHMND_SUCCESS);
        uint8_t types[] = {SHMND_WRITE, post_behind(&s, kind, 2)};
        expect_all_canceled(&s, types, 2);
    }
}

static void a_side_that_dies_while_it_closes_cancels_them_too(void)
{
    struct scene s;
    open_scene(&s, LENGTH, false);
    shmnd_qp_disconnect(&s.d.b->q);
    EQUAL(write_bytes(&s, 1, LENGTH), SHMND_SUCCESS);
    post_behind(&s, ZERO_WRITE, 2);
    peer_dies(s.d.pa);
    EXPECT(s.d.qa, SHMND_WRITE, 1, SHMND_CANCELED);
    EXPECT(s.d.qa, SHMND_WRITE, 2, SHMND_CANCELED);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(nothing_succeeds_behind_a_write_that_was_refused),
    TEST(nothing_succeeds_after_the_result_of_a_write_that_was_refused),
    TEST(nothing_succeeds_behind_a_write_that_was_cut_short),
    TEST(nothing_succeeds_behind_a_write_to_a_segment_that_is_gone),
    TEST(a_side_that_dies_while_it_closes_cancels_them_too),
};
MAIN(tests)
