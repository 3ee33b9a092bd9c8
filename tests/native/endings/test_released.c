/* SPDX-License-Identifier: Apache-2.0
 *
 * A sender may release the memory of a Send that has completed, although its receiver has made no
 * call yet. The message is received all the same, and a message that its sender has withdrawn is
 * canceled: neither needs a source that is gone.
 */
#include "world.h"

#define HALVES (128u << 10)
#define MANY ((uint32_t)SHMND_PIECE + 300000)
#define COUNT (SHMND_SHARES + 1u)

struct scene {
    struct duo d;
    uint8_t *from, *into;
    uint32_t source, sink, bytes;
};

/* `unmapped`: the receiver has not mapped the segment of the sender yet. */
static void open_scene(struct scene *s, uint32_t bytes, bool unmapped)
{
    uint64_t all = (uint64_t)COUNT * bytes;
    duo_open_with(&s->d, (struct world_options){.segment_bytes = all, .unmapped = unmapped},
                  pair_usual, pair_usual);
    s->bytes = bytes;
    s->from = shared_bytes(s->d.pa, all);
    s->into = shared_bytes(s->d.pb, all);
    fill(s->from, bytes, 1);
    s->source = region_new(s->d.pa, s->from, all, 0);
    s->sink = region_new(s->d.pb, s->into, all, SHMND_MR_LOCAL_WRITE);
}

static void post_receives(struct scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct shmnd_sge r = sge(s->into + (uint64_t)i * s->bytes, s->bytes, s->sink);
        EQUAL(post_receive(s->d.b, 100 + i, &r, 1), SHMND_SUCCESS);
    }
}

static void post_sends(struct scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct shmnd_sge m = sge(s->from + (uint64_t)i * s->bytes, s->bytes, s->source);
        EQUAL(post_send(s->d.a, 1 + i, &m, 1, 0), SHMND_SUCCESS);
    }
}

/* The sender has completed its oldest requests without a call of the receiver. */
static void sender_has_completed(struct scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (s->d.qa->taken == s->d.qa->got)
            queue_turn(s->d.qa);
        CHECK(s->d.qa->taken < s->d.qa->got);
        EQUAL((uintptr_t)s->d.qa->inbox[s->d.qa->taken].context, 1 + i);
        EQUAL(s->d.qa->inbox[s->d.qa->taken++].status, SHMND_SUCCESS);
    }
}

/* The program of the sender frees its memory, and the receiver hears of it. */
static void release_source(struct scene *s)
{
    memset(s->from, 0xee, (uint64_t)COUNT * s->bytes);
    s->d.pb->peer.data[0].base = NULL;
    s->d.pb->hidden.base = NULL;
    s->d.pb->peer.unmapped++;
}

/* The receiver polls until it has prepared a copy of this kind, which the caller may run. */
static void receiver_prepares(struct scene *s, enum shmnd_job_kind kind)
{
    struct queue *c = s->d.qb;
    struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
    for (uint32_t turn = 0; turn < 1000; turn++) {
        c->got += shmnd_cq_poll(&c->cq, &c->inbox[c->got], 1, &todo);
        if (todo.what == SHMND_RUN && todo.receiving && s->d.b->q.rx.job.kind == kind)
            return;
        if (todo.what != SHMND_IDLE)
            serve(todo.qp, todo.what, todo.receiving);
    }
    CHECK(!"a copy is prepared");
}

static void expect_the_message(struct scene *s)
{
    EXPECT_RECEIVED(s->d.qb, 100, s->bytes);
    CHECK(filled(s->into, s->bytes, 1));
}

enum { STAYS, DISCONNECTS, BOTH_DISCONNECT, DIES, WAYS };

static void leave(struct scene *s, uint32_t way)
{
    if (way == DISCONNECTS || way == BOTH_DISCONNECT)
        disconnect(s->d.a);
    if (way == DIES)
        peer_dies(s->d.pb);
    if (way == BOTH_DISCONNECT)
        disconnect(s->d.b);
}

static void one_that_was_sent_completely_needs_no_source(void)
{
    for (uint32_t way = 0; way < WAYS; way++)
        for (uint32_t many = 0; many < 2; many++) {
            struct scene s;
            NOTE("way %u, many chunks: %u", way, many);
            open_scene(&s, many ? MANY : HALVES, true);
            post_receives(&s, 2);
            post_sends(&s, 1);
            EQUAL(post_send(s.d.a, 2, NULL, 0, 0), SHMND_SUCCESS);
            sender_has_completed(&s, 2);
            release_source(&s);
            leave(&s, way);
            expect_the_message(&s);
            EXPECT_RECEIVED(s.d.qb, 101, 0);
            EQUAL(s.d.b->q.state, way == STAYS ? SHMND_QP_CONNECTED : SHMND_QP_DOWN);
            duo_close(&s.d);
        }
}

/* The source disappears between the preparation of the copy and its run. */
static void a_prepared_copy_with_nothing_to_read_is_not_run(void)
{
    for (uint32_t way = 0; way < 2; way++)
        for (uint32_t many = 0; many < 2; many++) {
            struct scene s;
            bool kept;
            NOTE("way %u, many chunks: %u", way, many);
            open_scene(&s, many ? MANY : HALVES, false);
            post_receives(&s, 1);
            struct shmnd_sge m = sge(s.from, s.bytes, s.source);
            EQUAL(shmnd_post_send(&s.d.a->q, (void *)1, &m, 1, 0, &kept), SHMND_SUCCESS);
            EQUAL(shmnd_tx_advance(&s.d.a->q), SHMND_RUN);
            receiver_prepares(&s, SHMND_JOB_CHUNKS);
            advance(s.d.a);
            sender_has_completed(&s, 1);
            release_source(&s);
            leave(&s, way);
            serve(&s.d.b->q, SHMND_RUN, true);
            expect_the_message(&s);
            duo_close(&s.d);
        }
}

/* The sender ends the connection before it or the receiver has copied anything. */
static void one_that_was_withdrawn_needs_no_source(void)
{
    for (uint32_t mapped = 0; mapped < 2; mapped++) {
        struct scene s;
        NOTE("mapped: %u", mapped);
        open_scene(&s, HALVES, !mapped);
        post_sends(&s, 1);
        post_receives(&s, 1);
        if (mapped)
            receiver_prepares(&s, SHMND_JOB_CHUNKS);
        disconnect(s.d.a);
        CHECK(!s.d.a->q.going_down || !mapped);
        release_source(&s);
        EXPECT(s.d.qb, SHMND_RECEIVE, 100, SHMND_CANCELED);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
        duo_close(&s.d);
    }
}

/* More large messages than are advertised at once: the last one is listed, and its reader has it
 * when the sender ends the connection. */
static void a_listed_one_that_was_cut_needs_no_source(void)
{
    struct scene s;
    open_scene(&s, HALVES, false);
    post_sends(&s, COUNT);
    EQUAL(s.d.a->q.backlog.count, 1);
    post_receives(&s, COUNT);
    receiver_prepares(&s, SHMND_JOB_PULL);
    disconnect(s.d.a);
    CHECK(!s.d.a->q.going_down);
    release_source(&s);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t status = i + 1 < COUNT ? SHMND_SUCCESS : SHMND_CANCELED;
        EXPECT(s.d.qa, SHMND_SEND, 1 + i, status);
        EXPECT(s.d.qb, SHMND_RECEIVE, 100 + i, status);
    }
    duo_close(&s.d);
}

/* Polls that return a result of another request may take no message, and do not read it. */
static void a_segment_that_was_mapped_is_not_asked_for_by_a_full_queue(void)
{
    struct scene s;
    struct shmnd_cqe e;
    struct shmnd_todo todo;
    open_scene(&s, HALVES, true);
    post_sends(&s, 1);
    post_receives(&s, 1);
    EQUAL(shmnd_cq_poll(&s.d.qb->cq, &e, 1, &todo), 0);
    EQUAL(todo.what, SHMND_NEEDS_MAP);
    serve(todo.qp, todo.what, todo.receiving);
    for (uint32_t i = 0; i < 3; i++) {
        EQUAL(post_rdma(s.d.b, 1 + i, SHMND_WRITE, NULL, 0, NULL, 0, 0), SHMND_SUCCESS);
        EQUAL(shmnd_cq_poll(&s.d.qb->cq, &e, 1, &todo), 1);
        EQUAL(e.type, SHMND_WRITE);
        CHECK(todo.what != SHMND_NEEDS_MAP);
        if (todo.what == SHMND_RUN)
            serve(todo.qp, todo.what, todo.receiving);
    }
    expect_the_message(&s);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* A sender that releases what its receiver may still copy breaks a rule; its receiver does not. */
static void a_source_that_is_missing_too_early_ends_the_connection(void)
{
    struct scene s;
    open_scene(&s, HALVES, false);
    post_sends(&s, 1);
    post_receives(&s, 1);
    receiver_prepares(&s, SHMND_JOB_CHUNKS);
    release_source(&s);
    serve(&s.d.b->q, SHMND_RUN, true);
    EXPECT(s.d.qb, SHMND_RECEIVE, 100, SHMND_CANCELED);
    duo_close(&s.d);
}

/* The last one is listed, since all shares are taken. */
static void a_listed_source_that_is_missing_too_early_ends_the_connection(void)
{
    struct scene s;
    open_scene(&s, HALVES, false);
    post_sends(&s, COUNT);
    post_receives(&s, COUNT);
    receiver_prepares(&s, SHMND_JOB_PULL);
    release_source(&s);
    serve(&s.d.b->q, SHMND_RUN, true);
    for (uint32_t i = 0; i < COUNT - 1; i++)
        EXPECT(s.d.qb, SHMND_RECEIVE, 100 + i, SHMND_SUCCESS);
    EXPECT(s.d.qb, SHMND_RECEIVE, 100 + COUNT - 1, SHMND_CANCELED);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(one_that_was_sent_completely_needs_no_source),
    TEST(a_prepared_copy_with_nothing_to_read_is_not_run),
    TEST(one_that_was_withdrawn_needs_no_source),
    TEST(a_listed_one_that_was_cut_needs_no_source),
    TEST(a_segment_that_was_mapped_is_not_asked_for_by_a_full_queue),
    TEST(a_source_that_is_missing_too_early_ends_the_connection),
    TEST(a_listed_source_that_is_missing_too_early_ends_the_connection),
};
MAIN(tests)
