/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank that waits for long tells of its collective (SHMPI_CALLED), and what another one
 * makes of it: another call under one number, another root of one call, and nothing else. One that
 * has left the call, or has not begun it, answers by its own (SHMPI_CALLED_ELSE).
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

/* Rank 2 tells rank 0, whose call is `mine`; which rank disagrees with it then, and by what
 * call. */
static int disagreeing(struct shmpi_call theirs, struct shmpi_call mine, struct shmpi_call *found)
{
    shmpi_send_call(rank[2], 0, theirs);
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
    EQUAL(disagreeing(call_of(1, 2, 0), call_of(1, 2, 0), &found), -1);
    job_close();
}

static void another_call_under_one_number_disagrees(void)
{
    const uint64_t numbers[] = {1, 0x00ffffff, (uint64_t)1 << 24, (uint64_t)1 << 40};
    job_open();
    for (int i = 0; i < 4; i++) {
        struct shmpi_call theirs = call_of(numbers[i], 9, 1), found;
        EQUAL(disagreeing(theirs, call_of(numbers[i], 3, -1), &found), 2);
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
    EQUAL(disagreeing(call_of(7, 9, -1), call_of(8, 3, -1), &found), -1);
    EQUAL(disagreeing(call_of(9, 9, -1), call_of(8, 3, -1), &found), -1);
    /* The low 31 bits are those of the call, which was 2^24 collectives before. */
    EQUAL(disagreeing(call_of(8, 9, -1), call_of(8 + (1 << 24), 3, -1), &found), -1);
    job_close();
}

static void another_root_of_one_call_disagrees(void)
{
    struct shmpi_call found;
    job_open();
    EQUAL(disagreeing(call_of(5, 9, 2), call_of(5, 9, 1), &found), 2);
    EQUAL(found.root, 2);
    EQUAL(found.number, call_of(5, 9, 1).number);
    EQUAL(disagreeing(call_of(5, 9, 0), call_of(5, 9, 1), &found), 2);
    EQUAL(found.root, 0);
    EQUAL(disagreeing(call_of(5, 9, 1), call_of(5, 9, 1), &found), -1);
    EQUAL(disagreeing(call_of(5, 9, -1), call_of(5, 9, 1), &found), -1);
    EQUAL(disagreeing(call_of(5, 9, 2), call_of(5, 9, -1), &found), -1);
    EQUAL(disagreeing(call_of(4, 9, 2), call_of(5, 9, 1), &found), -1);
    job_close();
}

static void a_call_of_another_context_or_without_a_number_is_not_compared(void)
{
    struct shmpi_call theirs = call_of(5, 9, 2), mine = call_of(5, 3, 1), found;
    job_open();
    theirs.context = OTHER_CONTEXT;
    EQUAL(disagreeing(theirs, mine, &found), -1);
    mine.number = 0;
    EQUAL(disagreeing(call_of(0, 9, 2), mine, &found), -1);
    job_close();
}

static void a_message_that_came_names_its_call(void)
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

/* ---- answers --------------------------------------------------------------------------------- */

enum { BCAST = 3, REDUCE = 9 };

static struct shmpi_calls calls;

static void job_open_with_calls(void)
{
    job_open();
    memset(&calls, 0, sizeof calls);
    shmpi_calls_open(rank[0], &calls, CONTEXT);
}

static void job_close_with_calls(void)
{
    shmpi_calls_close(&calls);
    CHECK(rank[0]->calls == NULL);
    job_close();
}

static void begin(int number, int kind, int root)
{
    for (int i = 0; i < number; i++)
        shmpi_calls_begin(rank[0], &calls, (unsigned int)kind, root);
}

/* Rank 2 waits for rank 0 in this call. Which rank is known to disagree, and what it called. */
static int answered(struct shmpi_call theirs, struct shmpi_call *found)
{
    struct shmpi_call unused;
    disagreeing(theirs, call_of(0, 0, 0), &unused);
    return shmpi_find_other_call(rank[2], theirs, found);
}

static void a_rank_that_has_left_a_call_answers_by_it(void)
{
    struct shmpi_call found;
    job_open_with_calls();
    begin(3, BCAST, 0);
    begin(1, REDUCE, -1);
    EQUAL(answered(call_of(2, REDUCE, -1), &found), 0);
    EQUAL(found.number, call_of(2, BCAST, 0).number);
    EQUAL(answered(call_of(3, BCAST, 1), &found), 0);
    EQUAL(found.root, 0);
    EQUAL(answered(call_of(4, BCAST, 1), &found), 0);
    EQUAL(found.number, call_of(4, REDUCE, 0).number);
    job_close_with_calls();
}

static void a_rank_that_agrees_answers_nothing(void)
{
    struct shmpi_call found;
    job_open_with_calls();
    begin(3, BCAST, 1);
    EQUAL(answered(call_of(1, BCAST, 1), &found), -1);
    EQUAL(answered(call_of(3, BCAST, -1), &found), -1);
    EQUAL(rank[2]->peers[0].answer.context, 0);
    job_close_with_calls();
}

static void a_call_that_is_waited_for_is_compared_when_it_begins(void)
{
    struct shmpi_call theirs = call_of(4, REDUCE, 2), found;
    job_open_with_calls();
    begin(1, BCAST, 0);
    EQUAL(answered(theirs, &found), -1);
    begin(2, BCAST, 0);
    EQUAL(answered(call_of(9, REDUCE, 2), &found), -1);
    EQUAL(answered(theirs, &found), -1);
    begin(1, BCAST, 0);
    for (int i = 0; i < 20; i++)
        shmpi_progress(rank[2]);
    EQUAL(shmpi_find_other_call(rank[2], theirs, &found), 0);
    EQUAL(found.number, call_of(4, BCAST, 0).number);
    begin(5, REDUCE, 2);
    EQUAL(answered(call_of(9, REDUCE, 2), &found), -1);
    job_close_with_calls();
}

static void only_the_last_calls_of_one_communicator_are_compared(void)
{
    struct shmpi_call found, theirs = call_of(5, REDUCE, -1);
    job_open_with_calls();
    begin(SHMPI_CALLS_KEPT + 5, BCAST, 0);
    EQUAL(answered(theirs, &found), -1);
    EQUAL(answered(call_of(6, REDUCE, -1), &found), 0);
    theirs.context = OTHER_CONTEXT;
    EQUAL(answered(theirs, &found), -1);
    EQUAL(answered(call_of(0, REDUCE, -1), &found), -1);
    EQUAL(answered(call_of((uint64_t)1 << 56, REDUCE, -1), &found), -1);
    job_close_with_calls();
}

static void an_interrupted_call_is_taken_back(void)
{
    struct shmpi_call found;
    job_open_with_calls();
    begin(2, BCAST, 0);
    shmpi_calls_undo(&calls);
    EQUAL(shmpi_calls_last(&calls).number, call_of(1, BCAST, 0).number);
    EQUAL(answered(call_of(2, REDUCE, -1), &found), -1);
    begin(1, REDUCE, -1);
    EQUAL(answered(call_of(2, REDUCE, -1), &found), -1);
    job_close_with_calls();
}

static void calls_are_closed_in_any_order_and_twice(void)
{
    struct shmpi_calls more[3] = {{.begun = 0}};
    job_open_with_calls();
    for (int i = 0; i < 3; i++)
        shmpi_calls_open(rank[0], &more[i], CONTEXT);
    shmpi_calls_open(rank[0], &more[1], OTHER_CONTEXT);
    shmpi_calls_close(&more[0]);
    shmpi_calls_close(&more[0]);
    shmpi_calls_close(&more[1]);
    CHECK(rank[0]->calls == &more[2]);
    shmpi_calls_close(&more[2]);
    CHECK(rank[0]->calls == &calls);
    job_close_with_calls();
}

static const struct check_test tests[] = {
    TEST(nothing_is_known_before_a_record),
    TEST(another_call_under_one_number_disagrees),
    TEST(an_earlier_or_later_number_does_not),
    TEST(another_root_of_one_call_disagrees),
    TEST(a_call_of_another_context_or_without_a_number_is_not_compared),
    TEST(a_message_that_came_names_its_call),
    TEST(a_rank_that_has_left_a_call_answers_by_it),
    TEST(a_rank_that_agrees_answers_nothing),
    TEST(a_call_that_is_waited_for_is_compared_when_it_begins),
    TEST(only_the_last_calls_of_one_communicator_are_compared),
    TEST(an_interrupted_call_is_taken_back),
    TEST(calls_are_closed_in_any_order_and_twice),
};

MAIN(tests)
