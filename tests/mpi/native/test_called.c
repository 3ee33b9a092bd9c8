/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank that waits for long tells of its collective (SHMPI_CALLED), and what another one makes
 * of it: another call under one number, another root of one call, and nothing else.
 */
#include "communicators/disputes.h"
#include "ranks.h"

enum { CONTEXT = 17, OTHER_CONTEXT = 25, SIZE = 3 };

static struct shmpi_job *job;
static struct shmpi_engine *rank[SIZE];

static struct shmpi_call call_of(uint64_t number, int kind, int root)
{
    return (struct shmpi_call){
        .context = CONTEXT, .root = root, .number = number << SHMPI_CALL_BITS | (uint64_t)kind};
}

static void job_open(void)
{
    job = guard_alloc(shmpi_job_bytes(SIZE, 8192));
    shmpi_job_lay_out(job, SIZE, 8192, true);
    for (int i = 0; i < SIZE; i++) {
        CHECK((rank[i] = shmpi_engine_new(job, i)) != NULL);
        CHECK(shmpi_context(&rank[i]->matching, CONTEXT) != NULL);
    }
}

static void job_close(void)
{
    for (int i = 0; i < SIZE; i++) {
        struct shmpi_context *c = shmpi_context(&rank[i]->matching, CONTEXT);
        for (int source = 0; source < SIZE; source++)
            while (c->waiting[source].first) {
                struct shmpi_message *m = c->waiting[source].first;
                shmpi_take_waiting(c, m);
                free(m);
            }
        engine_destroy(rank[i]);
    }
    guard_free_all();
}

/* Rank 2 tells rank 0, whose call is `mine`; which rank disagrees with it then, and by what call. */
static int told(struct shmpi_call theirs, struct shmpi_call mine, struct shmpi_call *found)
{
    shmpi_tell_call(rank[2], 0, theirs);
    for (int i = 0; i < 20; i++)
        for (int r = 0; r < SIZE; r++)
            shmpi_progress(rank[r]);
    return shmpi_find_other_call(rank[0], mine, found);
}

static void nothing_is_known_before_a_record(void)
{
    struct shmpi_call found;
    job_open();
    EQUAL(shmpi_find_other_call(rank[0], call_of(1, 2, 0), &found), -1);
    EQUAL(told(call_of(1, 2, 0), call_of(1, 2, 0), &found), -1);
    job_close();
}

static void another_call_under_one_number_disagrees(void)
{
    const uint64_t numbers[] = {1, 0x00ffffff, (uint64_t)1 << 24, (uint64_t)1 << 40};
    job_open();
    for (int i = 0; i < 4; i++) {
        struct shmpi_call theirs = call_of(numbers[i], 9, 1), found;
        EQUAL(told(theirs, call_of(numbers[i], 3, -1), &found), 2);
        EQUAL(found.number, theirs.number);
        EQUAL(found.root, 1);
        EQUAL(found.context, CONTEXT);
        EQUAL(shmpi_find_other_call(rank[1], call_of(numbers[i], 3, -1), &found), -1);
    }
    job_close();
}

static void an_earlier_or_later_number_does_not(void)
{
    struct shmpi_call found;
    job_open();
    EQUAL(told(call_of(7, 9, -1), call_of(8, 3, -1), &found), -1);
    EQUAL(told(call_of(9, 9, -1), call_of(8, 3, -1), &found), -1);
    /* The low 31 bits are those of the call, which was 2^24 collectives before. */
    EQUAL(told(call_of(8, 9, -1), call_of(8 + (1 << 24), 3, -1), &found), -1);
    job_close();
}

static void another_root_of_one_call_disagrees(void)
{
    struct shmpi_call found;
    job_open();
    EQUAL(told(call_of(5, 9, 2), call_of(5, 9, 1), &found), 2);
    EQUAL(found.root, 2);
    EQUAL(found.number, call_of(5, 9, 1).number);
    EQUAL(told(call_of(5, 9, 0), call_of(5, 9, 1), &found), 2);
    EQUAL(found.root, 0);
    EQUAL(told(call_of(5, 9, 1), call_of(5, 9, 1), &found), -1);
    EQUAL(told(call_of(5, 9, -1), call_of(5, 9, 1), &found), -1);
    EQUAL(told(call_of(5, 9, 2), call_of(5, 9, -1), &found), -1);
    EQUAL(told(call_of(4, 9, 2), call_of(5, 9, 1), &found), -1);
    job_close();
}

static void a_call_of_another_context_or_without_a_number_is_not_compared(void)
{
    struct shmpi_call theirs = call_of(5, 9, 2), mine = call_of(5, 3, 1), found;
    job_open();
    theirs.context = OTHER_CONTEXT;
    EQUAL(told(theirs, mine, &found), -1);
    mine.number = 0;
    EQUAL(told(call_of(0, 9, 2), mine, &found), -1);
    job_close();
}

static void a_message_that_came_tells_its_call(void)
{
    struct shmpi_call mine = call_of(5, 3, 0), theirs = call_of(5, 9, -1), found;
    job_open();
    CHECK(shmpi_send_now(rank[1], 0, CONTEXT, (int)theirs.number, "x", 1));
    while (!shmpi_context(&rank[0]->matching, CONTEXT)->waiting[1].first)
        shmpi_progress(rank[0]);
    EQUAL(shmpi_find_other_call(rank[0], mine, &found), 1);
    EQUAL(found.number, theirs.number);
    EQUAL(found.root, -1);
    EQUAL(shmpi_find_other_call(rank[0], theirs, &found), -1);
    job_close();
}

static const struct check_test tests[] = {
    TEST(nothing_is_known_before_a_record),
    TEST(another_call_under_one_number_disagrees),
    TEST(an_earlier_or_later_number_does_not),
    TEST(another_root_of_one_call_disagrees),
    TEST(a_call_of_another_context_or_without_a_number_is_not_compared),
    TEST(a_message_that_came_tells_its_call),
};

MAIN(tests)
