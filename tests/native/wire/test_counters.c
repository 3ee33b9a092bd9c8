/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters: the counts of each kind of request at both ends, and a set that is reused while a
 * reader reads it. world_close() checks in every test that the counters agree with the private
 * state of their queue pairs.
 */
#include <pthread.h>

#include "world.h"

struct stage {
    struct duo d;
    uint8_t *src, *dst;
    uint32_t ta, tb;
};

static void stage_open(struct stage *s, uint64_t rnr_ns)
{
    struct pair_options o = pair_usual;
    o.rnr_ns = rnr_ns;
    duo_open_with(&s->d, (struct world_options){0}, o, o);
    s->src = shared_bytes(s->d.pa, 200000);
    s->dst = shared_bytes(s->d.pb, 200000);
    s->ta = region_new(s->d.pa, s->src, 200000, SHMND_MR_LOCAL_WRITE);
    s->tb = region_new(s->d.pb, s->dst, 200000, 7);
}

static void run(struct stage *s)
{
    world_turns(&s->d.w, 50);
}

#define COUNT(end, word) shmnd_relaxed64(&(end)->counters.word)

static void messages_of_every_way(void)
{
    static const uint32_t lengths[] = {0, 40, 600, 5000, 70000, 190000};
    struct stage s;
    uint64_t bytes = 0;
    stage_open(&s, 10 * W_SECOND);
    for (uint32_t i = 0; i < 6; i++) {
        struct shmnd_sge r = sge(s.dst, 200000, s.tb), m = sge(s.src, lengths[i], s.ta);
        EQUAL(post_receive(s.d.b, i, &r, 1), SHMND_SUCCESS);
        EQUAL(COUNT(s.d.b, posted), i + 1);
        EQUAL(post_send(s.d.a, 100 + i, &m, 1, i & 1 ? SHMND_OP_SILENT_SUCCESS : 0), SHMND_SUCCESS);
        run(&s);
        bytes += lengths[i];
        EQUAL(COUNT(s.d.a, sent), i + 1);
        EQUAL(COUNT(s.d.b, taken), i + 1);
        EQUAL(COUNT(s.d.a, sent_bytes), bytes);
        EQUAL(COUNT(s.d.b, received_bytes), bytes);
    }
    EQUAL(COUNT(s.d.a, failures) + COUNT(s.d.b, failures), 0);
    duo_close(&s.d);
}

static void reads_and_writes(void)
{
    struct stage s;
    stage_open(&s, 10 * W_SECOND);
    uint64_t bytes = 0;
    static const uint32_t lengths[] = {0, 8, 20000, 100000};
    for (uint32_t i = 0; i < 4; i++) {
        struct shmnd_sge x = sge(s.src, lengths[i], s.ta);
        uint32_t silent = i & 1 ? SHMND_OP_SILENT_SUCCESS : 0;
        EQUAL(post_rdma(s.d.a, 1, SHMND_WRITE, &x, 1, s.dst, s.tb, silent), SHMND_SUCCESS);
        EQUAL(post_rdma(s.d.a, 2, SHMND_READ, &x, 1, s.dst, s.tb, silent), SHMND_SUCCESS);
        run(&s);
        bytes += lengths[i];
        EQUAL(COUNT(s.d.a, reads), i + 1);
        EQUAL(COUNT(s.d.a, writes), i + 1);
        EQUAL(COUNT(s.d.a, read_bytes), bytes);
        EQUAL(COUNT(s.d.a, written_bytes), bytes);
    }
    duo_close(&s.d);
}

/* A Send without a receive: `waiting_ns` is set, and it fails after its time-out. */
static void waiting(void)
{
    struct stage s;
    stage_open(&s, W_SECOND / 50);
    struct shmnd_sge m = sge(s.src, 40, s.ta);
    uint64_t before = shmnd_coarse_ns();
    EQUAL(post_send(s.d.a, 1, &m, 1, 0), SHMND_SUCCESS);
    settle(s.d.a);
    EQUAL(COUNT(s.d.a, outstanding), 1);
    CHECK(COUNT(s.d.a, waiting_ns) >= before && COUNT(s.d.a, waiting_ns) <= shmnd_coarse_ns());
    while (COUNT(s.d.a, outstanding))
        settle(s.d.a);
    EQUAL(COUNT(s.d.a, waiting_ns), 0);
    EQUAL(COUNT(s.d.a, failures), 1);
    EQUAL(COUNT(s.d.a, status), SHMND_IO_TIMEOUT);
    EQUAL(COUNT(s.d.a, recalled), 1);
    EQUAL(COUNT(s.d.a, sent_bytes), 0);
    duo_close(&s.d);
}

/* It ceases to wait when a receive is posted. */
static void waited(void)
{
    struct stage s;
    stage_open(&s, 10 * W_SECOND);
    struct shmnd_sge m = sge(s.src, 40, s.ta), r = sge(s.dst, 64, s.tb);
    EQUAL(post_send(s.d.a, 1, &m, 1, 0), SHMND_SUCCESS);
    settle(s.d.a);
    CHECK(COUNT(s.d.a, waiting_ns) != 0);
    EQUAL(post_receive(s.d.b, 2, &r, 1), SHMND_SUCCESS);
    run(&s);
    EQUAL(COUNT(s.d.a, waiting_ns), 0);
    EQUAL(COUNT(s.d.a, outstanding), 0);
    duo_close(&s.d);
}

/* A Flush: cancelled receives are counted, and none of them is counted as posted. */
static void flushed(void)
{
    struct stage s;
    stage_open(&s, 10 * W_SECOND);
    struct shmnd_sge r = sge(s.dst, 64, s.tb);
    for (uint64_t i = 0; i < 5; i++)
        EQUAL(post_receive(s.d.b, i, &r, 1), SHMND_SUCCESS);
    shmnd_qp_flush(&s.d.b->q);
    settle(s.d.b);
    EQUAL(COUNT(s.d.b, unfilled), 5);
    EQUAL(COUNT(s.d.b, failures), 5);
    EQUAL(COUNT(s.d.b, status), SHMND_CANCELED);
    duo_close(&s.d);
}

/* ---- reused while it is read ---------------------------------------------------------- */

#define USES 20000u

/* A message in parts whose receive is posted does not wait, whatever was recalled before. */
static void met_in_parts(void)
{
    struct duo d;
    duo_open_with(&d, (struct world_options){.no_vm = true}, pair_usual, pair_usual);
    uint8_t *from = guard_alloc(8000), *into = guard_alloc(8000);
    struct shmnd_sge m = sge(from, 8000, region_new(d.pa, from, 8000, 0));
    struct shmnd_sge r = sge(into, 8000, region_new(d.pb, into, 8000, SHMND_MR_LOCAL_WRITE));
    EQUAL(post_send(d.a, 1, NULL, 0, 0), SHMND_SUCCESS);
    shmnd_qp_flush(&d.a->q);
    settle(d.a);
    EXPECT(d.qa, SHMND_SEND, 1, SHMND_CANCELED);
    EQUAL(COUNT(d.a, recalled), 1);
    EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
    pair_never_bounces(d.a);
    EQUAL(post_send(d.a, 2, &m, 1, 0), SHMND_SUCCESS);
    settle(d.a);
    CHECK(d.a->q.wq.entries[d.a->q.wq.oldest & d.a->q.wq.mask].state == SHMND_WQE_SENT);
    EQUAL(COUNT(d.a, waiting_ns), 0);
    EXPECT_RECEIVED(d.qb, 1, 8000);
    EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    duo_close(&d);
}

static struct shmnd_counters again;

static void *owner(void *unused)
{
    (void)unused;
    for (uint64_t name = 1; name <= USES; name++) {
        shmnd_counters_clear(&again);
        shmnd_put64(&again.sent, name);
        shmnd_put64(&again.remote[2], name);
        shmnd_counters_open(&again, name);
    }
    return NULL;
}

static void never_of_two_uses(void)
{
    pthread_t thread;
    uint64_t words[sizeof again / 8];
    memset(&again, 0, sizeof again);
    CHECK(pthread_create(&thread, NULL, owner, NULL) == 0);
    do {
        if (!shmnd_counters_read(&again, words))
            continue;
        EQUAL(words[offsetof(struct shmnd_counters, sent) / 8],
              words[offsetof(struct shmnd_counters, name) / 8]);
        EQUAL(words[offsetof(struct shmnd_counters, remote) / 8 + 2],
              words[offsetof(struct shmnd_counters, name) / 8]);
    } while (shmnd_counters_name(&again) != USES);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(shmnd_counters_read(&again, words));
    shmnd_counters_close(&again);
    CHECK(!shmnd_counters_read(&again, words));
    EQUAL(words[0], USES);
}

static const struct check_test tests[] = {
    TEST(messages_of_every_way),
    TEST(reads_and_writes),
    TEST(waiting),
    TEST(waited),
    TEST(flushed),
    TEST(met_in_parts),
    TEST(never_of_two_uses),
};
MAIN(tests)
