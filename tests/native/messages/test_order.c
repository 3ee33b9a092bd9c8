/* SPDX-License-Identifier: Apache-2.0
 *
 * Causality: the completion of a Send precedes all completions that its delivery caused
 * on the same completion queue, however few that queue holds; and completions of flushed
 * requests never overrun a queue.
 */
#include "world.h"

#define SENDS 6u
#define ANSWER 100u

/* A queue that holds two, pairs on it, and a peer. With `across` the answer arrives on another pair
 * than that of the Sends, which has an initiator queue of its own. */
struct scene {
    struct world w;
    struct queue *tiny, *other, *far;
    struct pair *asks, *asked, *hears, *answers;
    uint8_t *here, *there;
    uint32_t token_here, token_there;
};

static void scene_open(struct scene *s, bool across)
{
    struct proc *a = &s->w.p[0], *b = &s->w.p[1];
    world_open(&s->w, (struct world_options){.segment_bytes = 2 << 20});
    s->tiny = queue_new(a, 2);
    s->other = queue_new(a, 16);
    s->far = queue_new(b, 64);
    s->asks = s->hears = pair_new(s->tiny, s->tiny, pair_usual);
    s->asked = s->answers = pair_new(s->far, s->far, pair_usual);
    if (across) {
        s->hears = pair_new(s->tiny, s->other, pair_usual);
        s->answers = pair_new(s->far, s->far, pair_usual);
        pair_connect(s->hears, s->answers);
    }
    pair_connect(s->asks, s->asked);
    s->here = shared_bytes(a, 1 << 19);
    s->there = shared_bytes(b, 1 << 19);
    s->token_here = region_new(a, s->here, 1 << 19, 1);
    s->token_there = region_new(b, s->there, 1 << 19, 1);
}

/* The Sends, of which the queue holds two completions; they wait for their receives. */
static void ask(struct scene *s, uint32_t bytes)
{
    struct shmnd_sge from = sge(s->here, bytes, s->token_here);
    for (uint64_t i = 0; i < SENDS; i++)
        EQUAL(post_send(s->asks, i, &from, 1, 0), SHMND_SUCCESS);
}

/* The peer takes them all; the sending side makes no call. */
static void far_takes(struct scene *s, uint32_t bytes)
{
    struct shmnd_sge to = sge(s->there, bytes, s->token_there);
    for (uint64_t i = 0; i < SENDS; i++)
        EQUAL(post_receive(s->asked, i, &to, 1), SHMND_SUCCESS);
    for (uint32_t i = 0; i < 64; i++)
        proc_turn(&s->w.p[1]);
    EQUAL(s->far->got, SENDS);
    s->far->got = s->far->taken = 0;
}

static void answer(struct scene *s)
{
    struct shmnd_sge from = sge(s->there, 8, s->token_there);
    EQUAL(post_send(s->answers, 0, &from, 1, 0), SHMND_SUCCESS);
}

/* Takes the completions of the tiny queue: the Sends, then later ones. A poll asks for more than
 * the queue holds, so it continues when it has emptied it. */
static void expect_sends_first(struct scene *s, uint32_t type, uint64_t context, uint32_t status)
{
    struct shmnd_cqe out[3];
    uint64_t seen = 0;
    for (uint32_t turn = 0; turn < 64; turn++) {
        uint32_t n = queue_poll(s->tiny, out, 3);
        for (uint32_t i = 0; i < n; i++, seen++) {
            NOTE("completion %" PRIu64, seen);
            EQUAL(out[i].type, seen < SENDS ? SHMND_SEND : type);
            EQUAL((uintptr_t)out[i].context, seen < SENDS ? seen : context);
            EQUAL(out[i].status, seen < SENDS ? SHMND_SUCCESS : status);
        }
    }
    EQUAL(seen, SENDS + 1);
}

static const uint32_t sizes[] = {8, 500, 2000};

static void the_answer_comes_behind_the_sends(void)
{
    for (int across = 0; across < 2; across++) {
        for (uint32_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            struct scene s;
            scene_open(&s, across);
            struct shmnd_sge to = sge(s.here + (1 << 18), 8, s.token_here);
            EQUAL(post_receive(s.hears, ANSWER, &to, 1), SHMND_SUCCESS);
            ask(&s, sizes[k]);
            far_takes(&s, sizes[k]);
            answer(&s);
            expect_sends_first(&s, SHMND_RECEIVE, ANSWER, SHMND_SUCCESS);
            world_close(&s.w);
        }
    }
}

static void the_answer_of_a_peer_that_leaves_comes_behind_the_sends(void)
{
    struct scene s;
    scene_open(&s, false);
    struct shmnd_sge to = sge(s.here + (1 << 18), 8, s.token_here);
    EQUAL(post_receive(s.hears, ANSWER, &to, 1), SHMND_SUCCESS);
    ask(&s, 8);
    far_takes(&s, 8);
    answer(&s);
    disconnect(s.answers);
    expect_sends_first(&s, SHMND_RECEIVE, ANSWER, SHMND_SUCCESS);
    world_close(&s.w);
}

static void the_end_of_another_connection_comes_behind_the_sends(void)
{
    struct scene s;
    scene_open(&s, true);
    struct shmnd_sge to = sge(s.here + (1 << 18), 8, s.token_here);
    EQUAL(post_receive(s.hears, ANSWER, &to, 1), SHMND_SUCCESS);
    ask(&s, 8);
    far_takes(&s, 8);
    disconnect(s.answers);
    expect_sends_first(&s, SHMND_RECEIVE, ANSWER, SHMND_CANCELED);
    world_close(&s.w);
}

/* ---- answers that arrive while the copy of the Send is still running ---------------------- */

/* The Send is prepared, and a thread is about to copy. */
static void prepare(struct scene *s, uint32_t bytes)
{
    struct shmnd_sge from = sge(s->here, bytes, s->token_here);
    struct shmnd_sge to = sge(s->there, bytes, s->token_there);
    struct shmnd_sge small = sge(s->here + (1 << 18), 8, s->token_here);
    bool kept;
    EQUAL(post_receive(s->hears, ANSWER, &small, 1), SHMND_SUCCESS);
    EQUAL(post_receive(s->asked, 0, &to, 1), SHMND_SUCCESS);
    EQUAL(shmnd_post_send(&s->asks->q, NULL, &from, 1, 0, &kept), SHMND_SUCCESS);
    EQUAL(shmnd_tx_advance(&s->asks->q), SHMND_RUN);
    s->asks->q.tx.started = true;
}

static void far_answers(struct scene *s)
{
    for (uint32_t i = 0; i < 64 && s->far->got == 0; i++)
        proc_turn(&s->w.p[1]);
    EQUAL(s->far->got, 1);
    answer(s);
}

static void expect_one_send_then_the_answer(struct scene *s)
{
    struct shmnd_cqe out[3];
    uint32_t n = 0;
    for (uint32_t turn = 0; turn < 8; turn++)
        n += queue_poll(s->tiny, out + n, 3 - n);
    EQUAL(n, 2);
    EQUAL(out[0].type, SHMND_SEND);
    EQUAL(out[0].status, SHMND_SUCCESS);
    EQUAL(out[1].type, SHMND_RECEIVE);
    EQUAL((uintptr_t)out[1].context, ANSWER);
}

static void expect_done(struct scene *s)
{
    settle(s->asks);
    CHECK(nothing(s->tiny));
    EQUAL(s->asks->q.wq.oldest, s->asks->q.wq.end);
    EQUAL(s->asks->q.messages, 1);
    EQUAL(s->asks->q.state, SHMND_QP_CONNECTED);
    world_close(&s->w);
}

static void the_answer_comes_before_the_placing_returns(void)
{
    struct scene s;
    scene_open(&s, false);
    prepare(&s, 2000);
    shmnd_tx_run(&s.asks->q);
    far_answers(&s);
    expect_one_send_then_the_answer(&s);
    shmnd_tx_run_done(&s.asks->q);
    expect_done(&s);
}

/* The peer can copy all of a large message, before the sender begins or after it. */
static void the_answer_comes_before_the_copy_of_a_large_message_returns(void)
{
    for (int begun = 0; begun < 2; begun++) {
        struct scene s;
        scene_open(&s, false);
        NOTE("begun %d", begun);
        prepare(&s, 1 << 18);
        if (begun)
            shmnd_tx_run(&s.asks->q);
        far_answers(&s);
        expect_one_send_then_the_answer(&s);
        if (!begun)
            shmnd_tx_run(&s.asks->q);
        shmnd_tx_run_done(&s.asks->q);
        expect_done(&s);
    }
}

/* The peer reports a message as taken that was not sent, and the copy fails: one completion. */
static void a_send_that_completes_too_early_completes_once(void)
{
    struct scene s;
    scene_open(&s, false);
    prepare(&s, 2000);
    struct shmnd_sge from = sge(s.here, 8, s.token_here);
    EQUAL(post_send(s.asks, 1, &from, 1, 0), SHMND_SUCCESS);
    shmnd_release64(&s.asked->q.link.mine->taken, 1);
    for (uint32_t i = 0; i < 2; i++)
        shmnd_cq_complete_finished(&s.tiny->cq);
    EQUAL(shmnd_cq_count(&s.tiny->cq), 1);
    s.asks->q.tx.job.result = SHMND_ACCESS_VIOLATION;
    shmnd_tx_run_done(&s.asks->q);
    settle(s.asks);
    EXPECT(s.tiny, SHMND_SEND, 0, SHMND_SUCCESS);
    EXPECT(s.tiny, SHMND_SEND, 1, SHMND_CANCELED);
    EXPECT(s.tiny, SHMND_RECEIVE, ANSWER, SHMND_CANCELED);
    CHECK(nothing(s.tiny));
    world_close(&s.w);
}

/* ---- flushes ------------------------------------------------------------------------------- */

/* Posts and flushes requests without polling until no post is accepted; all completions arrive. */
static void flushes_do_not_overrun(bool connected, uint32_t more)
{
    struct world w;
    world_open(&w, (struct world_options){0});
    struct queue *c = queue_new(&w.p[0], 2), *far = queue_new(&w.p[1], 64);
    struct pair *e = pair_new(c, c, pair_usual), *peer = pair_new(far, far, pair_usual);
    uint64_t posted = 0;
    uint32_t status = SHMND_SUCCESS;
    if (connected)
        pair_connect(e, peer);
    for (uint32_t round = 0; round < 1024 && status == SHMND_SUCCESS; round++) {
        for (uint32_t i = 0; i < more && status == SHMND_SUCCESS; i++)
            status = post_receive(e, posted++, NULL, 0);
        shmnd_qp_flush(&e->q);
        settle(e);
        CHECK(shmnd_cq_count(&c->cq) <= c->cq.mask + 1);
    }
    EQUAL(status, SHMND_NO_MORE_ENTRIES);
    posted--;
    CHECK(posted >= pair_usual.receives);
    for (uint64_t i = 0; i < posted; i++)
        EXPECT(c, SHMND_RECEIVE, i, SHMND_CANCELED);
    CHECK(nothing(c));
    EQUAL(post_receive(e, 0, NULL, 0), SHMND_SUCCESS);
    world_close(&w);
}

static void many_flushes_do_not_overrun_a_queue(void)
{
    for (uint32_t more = 1; more <= pair_usual.receives; more++) {
        NOTE("%u at a time", more);
        flushes_do_not_overrun(false, more);
        flushes_do_not_overrun(true, more);
    }
}

static const struct check_test tests[] = {
    TEST(the_answer_comes_behind_the_sends),
    TEST(the_answer_of_a_peer_that_leaves_comes_behind_the_sends),
    TEST(the_end_of_another_connection_comes_behind_the_sends),
    TEST(the_answer_comes_before_the_placing_returns),
    TEST(the_answer_comes_before_the_copy_of_a_large_message_returns),
    TEST(a_send_that_completes_too_early_completes_once),
    TEST(many_flushes_do_not_overrun_a_queue),
};
MAIN(tests)
