/* SPDX-License-Identifier: Apache-2.0
 *
 * Dead ranks, revoked contexts and notes, without an interpreter.
 *
 * Every operation that needs a dead rank ends with an error, others go on, and nothing is left in
 * a queue. In a revoked context all receives and sends end on all ranks. A note is read whole or
 * not at all, while its writer changes it all the time.
 */
#include "ranks.h"

#include <pthread.h>

enum { SIZE = 3 };

static struct shmpi_job *job;
static struct shmpi_engine *rank[SIZE];
static const int everyone[SIZE] = {0, 1, 2};

static void job_open(void)
{
    job = guard_alloc(shmpi_job_bytes(SIZE, 8192));
    shmpi_job_lay_out(job, SIZE, 8192, true);
    for (int i = 0; i < SIZE; i++)
        CHECK((rank[i] = shmpi_engine_new(job, i)) != NULL);
}

static void engine_free(struct shmpi_engine *e, bool dead)
{
    for (int b = 0; b < SHMPI_BUCKETS; b++)
        for (struct shmpi_context *c = e->matching.buckets[b]; c; c = c->next) {
            for (int i = 0; !dead && i < SIZE; i++)
                CHECK(!c->posted[i].first && !c->waiting[i].first && !c->any.first);
        }
    for (uint32_t i = 0; i < e->table_size; i++)
        CHECK(dead || !e->table[i]);
    CHECK(dead || (!e->copying && !e->pushing && !e->ready && !e->unsent_peers));
    engine_destroy(e);
}

static void job_close(int dead)
{
    for (int i = 0; i < SIZE; i++)
        engine_free(rank[i], i == dead);
    guard_free_all();
}

static struct shmpi_req *receive(int who, int from, int tag, void *to, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_new(rank[who]);
    r->peer = from;
    r->tag = tag;
    r->context = 16;
    r->buffer = to;
    r->bytes = n;
    CHECK(shmpi_start_receive(rank[who], r));
    return r;
}

static struct shmpi_req *sending(int who, int to, int tag, const void *from, uint64_t n, bool sync)
{
    struct shmpi_req *r = shmpi_req_new(rank[who]);
    r->peer = to;
    r->tag = tag;
    r->context = 16;
    r->buffer = (char *)(uintptr_t)from;
    r->bytes = n;
    r->sync = sync;
    CHECK(shmpi_start_send(rank[who], r));
    return r;
}

static void ends(int who, struct shmpi_req *r, int fault)
{
    for (int turns = 0; !r->done; turns++) {
        CHECK(turns < 1000);
        for (int i = 0; i < SIZE; i++)
            shmpi_progress(rank[i]);
    }
    EQUAL(r->fault, fault);
    shmpi_req_free(rank[who], r);
}

static void ends_alone(int who, struct shmpi_req *r, int fault)
{
    for (int turns = 0; !r->done; turns++) {
        CHECK(turns < 1000);
        shmpi_progress(rank[who]);
    }
    EQUAL(r->fault, fault);
    shmpi_req_free(rank[who], r);
}

static char big[60000], into[60000];

static void waits_for_a_dead_rank_end_and_the_rest_continues(void)
{
    job_open();
    char a = 0, b = 0;
    CHECK(shmpi_send_now(rank[1], 0, 16, 5, "x", 1)); /* shown whole before the death */
    struct shmpi_req *named = receive(0, 1, 7, &a, 1);
    struct shmpi_req *earlier = receive(0, 1, 5, &b, 1);
    struct shmpi_req *any = receive(0, SHMPI_ANY, 8, &a, 1);
    struct shmpi_req *other = receive(0, 2, 9, &a, 1);
    struct shmpi_req *large = sending(0, 1, 1, big, sizeof big, false);
    struct shmpi_req *sync = sending(0, 1, 2, big, 10, true);
    struct shmpi_req *many[40];
    for (int i = 0; i < 40; i++) /* more than the lane holds: some are unsent */
        many[i] = sending(0, 1, 3, big, 1500, false);
    CHECK(rank[0]->unsent_peers);
    EQUAL(shmpi_job_mark_dead(job, 1), 1);
    ends_alone(0, named, SHMPI_FAILED_PEER);
    ends_alone(0, earlier, SHMPI_OK);
    EQUAL(b, 'x');
    ends_alone(0, large, SHMPI_FAILED_PEER);
    ends_alone(0, sync, SHMPI_FAILED_PEER);
    for (int i = 0; i < 40; i++) {
        CHECK(many[i]->done);
        CHECK(!many[i]->fault || many[i]->fault == SHMPI_FAILED_PEER);
        shmpi_req_free(rank[0], many[i]);
    }
    CHECK(!any->done && !other->done);
    shmpi_stop(rank[0], any, SHMPI_FAILED_PEER);
    ends_alone(0, any, SHMPI_FAILED_PEER);
    CHECK(shmpi_send_now(rank[2], 0, 16, 9, "y", 1));
    ends_alone(0, other, SHMPI_OK);
    EQUAL(a, 'y');
    ends_alone(0, receive(0, 1, 5, &b, 1), SHMPI_FAILED_PEER);
    ends_alone(0, sending(0, 1, 5, &b, 1, false), SHMPI_FAILED_PEER);
    CHECK(!shmpi_send_now(rank[0], 1, 16, 5, "z", 1));
    EQUAL(shmpi_death_of(rank[0], 1), 1);
    EQUAL(shmpi_death_of(rank[0], 2), 0);
    job_close(1);
}

/* An announced message of a rank that is dead by now: its memory is not read. */
static void memory_of_a_dead_rank_is_not_read(void)
{
    job_open();
    struct shmpi_req *large = sending(1, 0, 4, big, sizeof big, false);
    shmpi_progress(rank[0]);
    shmpi_job_mark_dead(job, 1);
    shmpi_progress(rank[0]);
    ends_alone(0, receive(0, 1, 4, into, sizeof into), SHMPI_FAILED_PEER);
    shmpi_give_up(rank[1], large, SHMPI_OK);
    shmpi_req_free(rank[1], large);
    job_close(1);
}

static void a_collective_without_a_member_stops_at_every_step(void)
{
    for (int steps = 0; steps < 8; steps++) {
        job_open();
        struct shmpi_sched *s[SIZE];
        uint64_t value[SIZE] = {1, 2, 3}, result[SIZE];
        for (int i = 0; i < SIZE; i++) {
            struct shmpi_group g = {SIZE, i, everyone};
            CHECK((s[i] = shmpi_sched_new()) != NULL);
            s[i]->context = 17;
            shmpi_build_bcast(s[i], &g, 1, (char *)&value[i], 8);
            shmpi_build_barrier(s[i], &g);
            shmpi_build_scan(s[i], &g, (char *)&value[i], (char *)&result[i], 0, 0, false);
            if (i != 1 || steps > 3)
                shmpi_sched_start(rank[i], s[i]);
        }
        for (int k = 0; k < steps; k++)
            shmpi_progress(rank[k % SIZE]);
        shmpi_job_mark_dead(job, 1);
        for (int i = 0; i < SIZE; i += 2) {
            shmpi_progress(rank[i]);
            if (!s[i]->done)
                shmpi_sched_stop(rank[i], s[i], SHMPI_FAILED_PEER);
            CHECK(s[i]->done);
            shmpi_sched_free(s[i]);
        }
        /* What the dead one had under way is its own memory. */
        if (!s[1]->done)
            shmpi_sched_stop(rank[1], s[1], SHMPI_OK);
        shmpi_sched_free(s[1]);
        for (int i = 0; i < SIZE; i++) { /* messages that no receive waits for any more */
            struct shmpi_context *c = shmpi_context(&rank[i]->matching, 17);
            shmpi_refuse_waiting(rank[i], c);
        }
        job_close(1);
    }
}

static void all_that_waits_in_a_revoked_context_ends_everywhere(void)
{
    for (int late = 0; late < 2; late++) {
        job_open();
        char a;
        struct shmpi_req *posted = receive(0, 1, 7, &a, 1), *any = receive(2, SHMPI_ANY, 7, &a, 1);
        struct shmpi_req *self = sending(0, 0, 6, big, 20000, true);
        if (late) /* the news is there before the messages */
            CHECK(shmpi_revoke(rank[1], 16));
        struct shmpi_req *large = sending(0, 1, 1, big, sizeof big, false);
        struct shmpi_req *sync = sending(2, 1, 2, big, 10, true);
        struct shmpi_req *small = sending(2, 1, 2, big, 10, false);
        if (!late) {
            shmpi_progress(rank[1]);
            CHECK(shmpi_revoke(rank[1], 16));
        }
        CHECK(shmpi_send_revoked(rank[1], 0, 16) && shmpi_send_revoked(rank[1], 2, 16));
        ends(0, posted, SHMPI_REVOKED);
        ends(2, any, SHMPI_REVOKED);
        ends(0, self, SHMPI_REVOKED);
        ends(0, large, SHMPI_REVOKED);
        ends(2, sync, SHMPI_REVOKED);
        CHECK(small->done);
        shmpi_req_free(rank[2], small);
        for (int i = 0; i < SIZE; i++) {
            CHECK(shmpi_revoked(rank[i], 16) && shmpi_revoked(rank[i], 19));
            CHECK(!shmpi_revoked(rank[i], 20));
            ends(i, receive(i, (i + 1) % SIZE, 7, &a, 1), SHMPI_REVOKED);
            ends(i, sending(i, (i + 1) % SIZE, 7, big, 9000, false), SHMPI_REVOKED);
        }
        job_close(-1);
    }
}

static int contexts_of(const struct shmpi_engine *e)
{
    int n = 0;
    for (int b = 0; b < SHMPI_BUCKETS; b++)
        for (const struct shmpi_context *c = e->matching.buckets[b]; c; c = c->next)
            n++;
    return n;
}

static struct shmpi_req *in_context(int who, int peer, uint32_t context, char *buffer, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_new(rank[who]);
    r->peer = peer;
    r->tag = 7;
    r->context = context;
    r->buffer = buffer;
    r->bytes = n;
    return r;
}

/* Communicators of eight contexts each, as the binding has them, in an order of their own. */
static void a_revoked_communicator_that_is_freed_still_refuses(void)
{
    enum { MANY = 500, FIRST = 64 };
    job_open();
    struct shmpi_engine *e = rank[1];
    char a;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t first = FIRST + 8 * (i * 7 % MANY);
        if (i % 2) /* some have no context yet: the news is faster than their first message */
            CHECK(shmpi_context(&e->matching, first) && shmpi_context(&e->matching, first + 3));
        CHECK(shmpi_revoke(e, first) && shmpi_revoke(e, first));
        shmpi_forget_contexts(e, first, SHMPI_REVOKED_AT_ONCE);
    }
    EQUAL(contexts_of(e), 0);
    EQUAL(e->matching.revoked_count, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        for (uint32_t k = 0; k < 8; k++)
            EQUAL(shmpi_revoked(e, FIRST + 8 * i + k), k < SHMPI_REVOKED_AT_ONCE);
    CHECK(!shmpi_revoked(e, FIRST - 1) && !shmpi_revoked(e, FIRST + 8 * MANY));
    struct shmpi_req *s = in_context(0, 1, FIRST + 8 * 3, big, 20000);
    CHECK(shmpi_start_send(rank[0], s));
    ends(0, s, SHMPI_REVOKED);
    struct shmpi_req *r = in_context(1, 0, FIRST + 8 * 4 + 1, &a, 1);
    CHECK(shmpi_start_receive(e, r));
    ends(1, r, SHMPI_REVOKED);
    CHECK(!shmpi_probe(e, FIRST + 8 * 3, 0, 7));
    EQUAL(e->matching.refusing->messages, 0);
    job_close(-1);
}

/* ---- notes
 * ------------------------------------------------------------------------------------ */

enum { NOTES = 20000 };

static shmnd_word32 over;

static void *writes_notes(void *arg)
{
    struct shmpi_rank *block = arg;
    char call[64], comm[128];
    for (int i = 1; i <= NOTES; i++) {
        memset(call, 'a' + i % 26, sizeof call - 1);
        memset(comm, 'a' + i % 26, sizeof comm - 1);
        call[1 + i % 31] = comm[1 + i % 71] = 0;
        shmpi_note(block, (uint32_t)i, i, i, call, comm);
    }
    shmnd_release32(&over, 1);
    return NULL;
}

static void a_note_is_read_whole(void)
{
    struct shmpi_rank *block = guard_alloc(sizeof *block);
    struct shmpi_wait w;
    pthread_t writer;
    uint32_t seen = 0;
    memset(block, 0, sizeof *block);
    EQUAL(pthread_create(&writer, NULL, writes_notes, block), 0);
    while (!shmnd_acquire32(&over)) {
        if (!shmpi_read_note(block, &w) || !w.count)
            continue;
        seen++;
        EQUAL(w.peer, (int)w.count);
        EQUAL(w.tag, (int)w.count);
        EQUAL(w.call[0], 'a' + (int)(w.count % 26));
        EQUAL(w.comm[0], w.call[0]);
        EQUAL(strlen(w.call), 1 + w.count % 31);
        EQUAL(strlen(w.comm), 1 + w.count % 71);
    }
    EQUAL(pthread_join(writer, NULL), 0);
    CHECK(shmpi_read_note(block, &w));
    EQUAL(w.count, NOTES);
    shmpi_note_end(block);
    CHECK(shmpi_read_note(block, &w) && !w.count);
    shmnd_put32(&block->notes, shmnd_relaxed32(&block->notes) | 1); /* a writer that died */
    CHECK(!shmpi_read_note(block, &w));
    NOTE("%u notes were read", seen);
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(waits_for_a_dead_rank_end_and_the_rest_continues),
    TEST(memory_of_a_dead_rank_is_not_read),
    TEST(a_collective_without_a_member_stops_at_every_step),
    TEST(all_that_waits_in_a_revoked_context_ends_everywhere),
    TEST(a_revoked_communicator_that_is_freed_still_refuses),
    TEST(a_note_is_read_whole),
};

MAIN(tests)
