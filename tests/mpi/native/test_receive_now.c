/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives without a request: which messages they take, and which they leave to matching.
 */
#include "turns.h"

enum { HERE = 16, ELSEWHERE = 17 };

static int came_in; /* what the last receive got */
static struct shmpi_came came;

static bool sent(int from, uint32_t context, int tag, int what)
{
    return shmpi_send_now(rank[from], 0, context, tag, &what, sizeof what);
}

static bool received_now(int from, int tag)
{
    came_in = -1;
    return shmpi_receive_now(rank[0], from, HERE, tag, (char *)&came_in, sizeof came_in, &came);
}

static struct shmpi_req *posted(int from, int tag)
{
    struct shmpi_req *r = shmpi_req_new(rank[0]);
    r->peer = from;
    r->tag = tag;
    r->context = HERE;
    r->bytes = sizeof came_in;
    r->buffer = (char *)&came_in;
    CHECK(shmpi_start_receive(rank[0], r));
    return r;
}

/* What a receive without a request left, one with a request gets. */
static void is_left(int tag, int what, int fault)
{
    CHECK(!received_now(1, tag));
    struct shmpi_req *r = posted(1, tag);
    for (int turns = 0; turns < 100 && !r->done; turns++)
        turn_of_all();
    CHECK(r->done);
    EQUAL(r->fault, fault);
    EQUAL(came_in, what);
    shmpi_req_free(rank[0], r);
}

static void the_next_short_message_is_taken(void)
{
    job_open(2, 4096);
    for (int i = 0; i < 500; i++) { /* several laps */
        CHECK(sent(1, HERE, i, i));
        CHECK(received_now(1, i % 2 ? i : SHMPI_ANY));
        EQUAL(came_in, i);
        EQUAL(came.tag, i);
        EQUAL(came.bytes, sizeof i);
    }
    CHECK(!received_now(1, SHMPI_ANY));
    job_close();
}

static void decisions_of_matching_are_left_to_it(void)
{
    job_open(2, 8192);
    CHECK(!received_now(0, 1) && !received_now(SHMPI_ANY, 1));
    CHECK(sent(1, ELSEWHERE, 1, 10) && sent(1, HERE, 1, 11)); /* behind one of another context */
    is_left(1, 11, SHMPI_OK);
    CHECK(sent(1, HERE, 2, 12) && sent(1, HERE, 1, 13)); /* behind one of another tag */
    is_left(1, 13, SHMPI_OK);
    CHECK(sent(1, HERE, 2, 14)); /* the earlier one waits */
    is_left(2, 12, SHMPI_OK);
    CHECK(received_now(1, 2)); /* nothing is before it any more */
    EQUAL(came_in, 14);
    for (int from = SHMPI_ANY; from <= 1; from += 2) {
        struct shmpi_req *other = posted(from, 3); /* a receive is before it */
        CHECK(sent(1, HERE, 3, 15) && !received_now(1, 3));
        shmpi_progress(rank[0]);
        CHECK(other->done);
        EQUAL(came_in, 15);
        shmpi_req_free(rank[0], other);
    }
    struct shmpi_message *m = shmpi_probe(rank[0], ELSEWHERE, 1, 1);
    CHECK(m);
    shmpi_claim(rank[0], m);
    free(m);
    job_close();
}

static void long_and_synchronous_ones_are_left(void)
{
    job_open(2, 8192);
    int two[2] = {20, 21};
    CHECK(shmpi_send_now(rank[1], 0, HERE, 1, two, sizeof two));
    is_left(1, 20, SHMPI_TRUNCATED);
    struct shmpi_req *s = shmpi_req_new(rank[1]);
    s->tag = 1;
    s->context = HERE;
    s->bytes = sizeof *two;
    s->buffer = (char *)two;
    s->sync = true;
    CHECK(shmpi_start_send(rank[1], s) && !s->done);
    is_left(1, 20, SHMPI_OK);
    turn_of_all();
    CHECK(s->done);
    shmpi_req_free(rank[1], s);
    job_close();
}

static void nothing_is_taken_of_a_revoked_context_or_a_lost_rank(void)
{
    job_open(2, 8192);
    CHECK(sent(1, HERE, 1, 30));
    rank[0]->peers[1].dead = true;
    CHECK(!received_now(1, 1));
    rank[0]->peers[1].dead = false;
    rank[0]->peers[1].broken = true;
    CHECK(!received_now(1, 1));
    rank[0]->peers[1].broken = false;
    shmpi_context(&rank[0]->matching, HERE)->revoked = true;
    CHECK(!received_now(1, 1));
    shmpi_context(&rank[0]->matching, HERE)->revoked = false;
    CHECK(received_now(1, 1));
    job_close();
}

/* A rank that receives from one rank alone takes the records of the others all the same: each
 * before its next message. */
static void others_are_not_forgotten(void)
{
    job_open(3, 8192);
    for (int i = 0; i < 100; i++) {
        CHECK(sent(2, ELSEWHERE, i, i) && sent(1, HERE, 1, i) && received_now(1, 1));
        struct shmpi_message *m = shmpi_probe(rank[0], ELSEWHERE, 2, i);
        CHECK(m && m->bytes == sizeof i);
        shmpi_claim(rank[0], m);
        free(m);
    }
    job_close();
}

/* What another rank says may end what the receive would do. */
static void a_revocation_by_another_rank_is_seen_first(void)
{
    job_open(3, 8192);
    CHECK(sent(1, HERE, 1, 50));
    CHECK(shmpi_send_revoked(rank[2], 0, HERE));
    CHECK(!received_now(1, 1));
    EQUAL(came_in, -1);
    is_left(1, -1, SHMPI_REVOKED);
    job_close();
}

/* With work under way, a message is for progress, which does both. */
static void with_work_to_do_nothing_is_taken(void)
{
    job_open(3, 8192);
    struct shmpi_engine *e = rank[0];
    struct shmpi_req *r = shmpi_req_new(e);
    struct shmpi_req **lists[] = {&e->copying, &e->pushing, &e->ended};
    CHECK(sent(1, HERE, 1, 70));
    for (int i = 0; i < 3; i++) {
        *lists[i] = r;
        CHECK(!received_now(1, 1));
        *lists[i] = NULL;
    }
    e->ready = (struct shmpi_sched *)r;
    CHECK(!received_now(1, 1));
    e->ready = NULL;
    shmpi_job_mark_dead(job, 2);
    CHECK(!received_now(1, 1));
    shmpi_refresh(e);
    CHECK(received_now(1, 1));
    shmpi_req_free(e, r);
    job_close();
}

/* With unsent records, a message is for progress, which writes them. */
static void unsent_records_are_not_forgotten(void)
{
    job_open(2, 4096);
    int n = 0;
    while (shmpi_send_now(rank[0], 1, HERE, 1, &n, sizeof n))
        n++;
    struct shmpi_req *s = shmpi_req_new(rank[0]);
    s->peer = 1;
    s->tag = 1;
    s->context = HERE;
    s->bytes = sizeof n;
    s->buffer = (char *)&n;
    CHECK(shmpi_start_send(rank[0], s) && !s->done);
    CHECK(sent(1, HERE, 1, 60) && !received_now(1, 1));
    is_left(1, 60, SHMPI_OK);
    for (int turns = 0; turns < 100 && !s->done; turns++)
        turn_of_all();
    CHECK(s->done);
    shmpi_req_free(rank[0], s);
    for (int i = 0; i <= n; i++) {
        struct shmpi_message *m = shmpi_probe(rank[1], HERE, 0, 1);
        CHECK(m);
        shmpi_claim(rank[1], m);
        free(m);
    }
    job_close();
}

static const struct check_test tests[] = {
    TEST(the_next_short_message_is_taken),
    TEST(decisions_of_matching_are_left_to_it),
    TEST(long_and_synchronous_ones_are_left),
    TEST(nothing_is_taken_of_a_revoked_context_or_a_lost_rank),
    TEST(others_are_not_forgotten),
    TEST(a_revocation_by_another_rank_is_seen_first),
    TEST(with_work_to_do_nothing_is_taken),
    TEST(unsent_records_are_not_forgotten),
};

MAIN(tests)
