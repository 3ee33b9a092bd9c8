/* SPDX-License-Identifier: Apache-2.0
 *
 * The locks of a window: one writer or some readers, and what another rank knows of those that have
 * them, or have died with them or while they asked for them.
 */
#include "ranks.h"
#include "transport/one_sided.h"

#include <pthread.h>

enum { RANKS = 4, LOCK = 1, ROUNDS = 20000 };

static const int to_job[RANKS] = {0, 1, 2, 3};
static struct shmpi_job *job;
static struct shmpi_engine *here;
static struct shmpi_gate *gates;
static char *rows;
static struct shmpi_holders of[RANKS];
static uint64_t counted, changed_for_readers;

static void begin(void)
{
    job = guard_alloc(shmpi_job_bytes(RANKS, 8192));
    shmpi_job_lay_out(job, RANKS, 8192, true);
    CHECK((here = shmpi_engine_new(job, 0)) != NULL);
    gates = guard_alloc(RANKS * sizeof *gates);
    rows = guard_alloc((size_t)RANKS * RANKS);
    memset(gates, 0, RANKS * sizeof *gates);
    memset(rows, 0, (size_t)RANKS * RANKS);
    for (int i = 0; i < RANKS; i++)
        of[i] = (struct shmpi_holders){RANKS, i, to_job, gates, rows};
}

static void end(void)
{
    engine_destroy(here);
    guard_free_all();
}

static void dies(int rank)
{
    shmpi_job_mark_dead(job, (uint32_t)rank);
    shmpi_job_leave(job, (uint32_t)rank);
    shmpi_see_failures(here);
}

static int holder(bool *left)
{
    return shmpi_holder(here, &of[0], LOCK, left);
}

static void a_writer_is_known_from_the_moment_that_it_has_the_lock(void)
{
    bool left;
    begin();
    EQUAL(holder(&left), -1);
    for (int i = 0; i < RANKS; i++) {
        CHECK(shmpi_gate_enter(&gates[LOCK], true, i));
        CHECK(!shmpi_gate_enter(&gates[LOCK], true, 3));
        CHECK(!shmpi_gate_enter(&gates[LOCK], false, 3));
        EQUAL(holder(&left), i ? i : -1); /* its own lock is none of another rank */
        CHECK(!left);
        shmpi_gate_leave(&gates[LOCK], true);
        EQUAL(holder(&left), -1);
    }
    CHECK(shmpi_gate_enter(&gates[LOCK], true, 2)); /* and it dies before its next step */
    dies(2);
    EQUAL(holder(&left), 2);
    CHECK(left);
    end();
}

static void an_accumulation_is_known_by_its_rank(void)
{
    begin();
    EQUAL(shmpi_taker(&of[0], LOCK), -1);
    for (int i = 0; i < RANKS; i++) {
        CHECK(shmpi_gate_take(&gates[LOCK], i));
        CHECK(!shmpi_gate_take(&gates[LOCK], 3));
        EQUAL(shmpi_taker(&of[0], LOCK), i ? i : -1);
        EQUAL(shmpi_taker(&of[0], 0), -1);
        shmpi_gate_return(&gates[LOCK]);
    }
    EQUAL(shmpi_taker(&of[0], LOCK), -1);
    end();
}

static void a_reader_is_known_while_it_surely_has_the_lock(void)
{
    bool left;
    begin();
    shmpi_mark(&of[1], LOCK, SHMPI_ASKS);
    CHECK(shmpi_gate_enter(&gates[LOCK], false, 1));
    EQUAL(holder(&left), -1);
    shmpi_mark(&of[1], LOCK, SHMPI_HOLDS);
    EQUAL(holder(&left), 1);
    CHECK(!left);
    shmpi_mark(&of[3], LOCK, SHMPI_ASKS);
    CHECK(shmpi_gate_enter(&gates[LOCK], false, 3));
    shmpi_mark(&of[3], LOCK, SHMPI_HOLDS);
    dies(1);
    EQUAL(holder(&left), 1); /* the one that will not return it */
    CHECK(left);
    EQUAL(shmpi_lost_reader(here, &of[0], LOCK), -1);
    end();
}

static void only_a_reader_that_died_between_its_marks_may_have_the_lock(void)
{
    bool left;
    begin();
    dies(3); /* without a mark */
    EQUAL(shmpi_lost_reader(here, &of[0], LOCK), -1);
    shmpi_mark(&of[1], LOCK, SHMPI_ASKS);
    CHECK(shmpi_gate_enter(&gates[LOCK], false, 1));
    EQUAL(shmpi_lost_reader(here, &of[0], LOCK), -1); /* it lives */
    dies(1);
    EQUAL(holder(&left), -1);
    EQUAL(shmpi_lost_reader(here, &of[0], LOCK), 1);
    EQUAL(shmpi_lost_reader(here, &of[0], 0), -1);
    end();
}

/* A rank as a thread: writes and reads by turns, counts what it writes, and what changes while it
 * reads. */
static void *by_turns(void *number)
{
    int rank = (int)(uintptr_t)number;
    for (int k = 0; k < ROUNDS; k++) {
        bool writes = (k + rank) % 2;
        while (!shmpi_gate_enter(&gates[LOCK], writes, rank))
            sched_yield();
        if (writes) {
            counted++;
        } else {
            uint64_t before = counted;
            sched_yield(); /* a writer that does not wait for readers comes here */
            __atomic_fetch_add(&changed_for_readers,
                               __atomic_load_n(&counted, __ATOMIC_RELAXED) != before,
                               __ATOMIC_RELAXED);
        }
        shmpi_gate_leave(&gates[LOCK], writes);
        while (!shmpi_gate_take(&gates[LOCK], rank))
            sched_yield();
        shmpi_gate_return(&gates[LOCK]);
    }
    return NULL;
}

static void a_writer_is_alone(void)
{
    pthread_t threads[RANKS];
    begin();
    counted = changed_for_readers = 0;
    for (uintptr_t i = 0; i < RANKS; i++)
        CHECK(!pthread_create(&threads[i], NULL, by_turns, (void *)i));
    for (int i = 0; i < RANKS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    EQUAL(counted, RANKS * ROUNDS / 2);
    EQUAL(changed_for_readers, 0);
    EQUAL(shmnd_relaxed64(&gates[LOCK].access), 0);
    EQUAL(shmnd_relaxed64(&gates[LOCK].atomic), 0);
    end();
}

static const struct check_test tests[] = {
    TEST(a_writer_is_known_from_the_moment_that_it_has_the_lock),
    TEST(an_accumulation_is_known_by_its_rank),
    TEST(a_reader_is_known_while_it_surely_has_the_lock),
    TEST(only_a_reader_that_died_between_its_marks_may_have_the_lock),
    TEST(a_writer_is_alone),
};

MAIN(tests)
