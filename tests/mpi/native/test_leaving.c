/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that stays: it gets every message that another rank showed before it left.
 *
 * A rank sends, and leaves, while another one asks whether a message is still to come. The one that
 * stays is at an end only with the message, or if there is none.
 */
#include "ranks.h"

#include <pthread.h>

enum { ROUNDS = 300, BYTES = 100 };

static struct shmpi_engine *rank[2];

static void *leaves(void *with_message)
{
    char data[BYTES];
    memset(data, 7, BYTES);
    if (with_message)
        CHECK(shmpi_send_now(rank[1], 0, 16, 3, data, BYTES));
    shmpi_leave(rank[1]);
    return NULL;
}

static void stays(void)
{
    uint32_t idle = 0;
    while (shmpi_remaining(rank[0], true).peer >= 0 || !idle) {
        struct shmpi_awaited departure = shmpi_await_left(rank[0]);
        shmpi_see_left(rank[0]);
        idle = shmpi_progress(rank[0]) ? 0 : idle + 1;
        if (idle > 4) {
            shmpi_idle_begin(rank[0]);
            shmpi_idle_for(rank[0], idle, &departure);
            shmpi_idle_end(rank[0]);
        }
    }
}

static void round_with(bool message, int source)
{
    struct shmpi_job *job = guard_alloc(shmpi_job_bytes(2, 8192));
    shmpi_job_lay_out(job, 2, 8192, true);
    for (int i = 0; i < 2; i++)
        CHECK((rank[i] = shmpi_engine_new(job, i)) != NULL);
    char into[BYTES] = {0};
    struct shmpi_req *r = shmpi_req_new(rank[0]);
    r->peer = source;
    r->tag = 3;
    r->context = 16;
    r->buffer = into;
    r->bytes = BYTES;
    CHECK(shmpi_start_receive(rank[0], r));
    pthread_t other;
    CHECK(!pthread_create(&other, NULL, leaves, message ? into : NULL));
    stays();
    EQUAL(r->done, message);
    EQUAL(into[BYTES - 1], message ? 7 : 0);
    CHECK(!pthread_join(other, NULL));
    if (!message)
        shmpi_cancel(rank[0], r);
    shmpi_req_free(rank[0], r);
    for (int i = 0; i < 2; i++)
        engine_destroy(rank[i]);
    guard_free_all();
}

static void a_message_before_the_end_is_received(void)
{
    for (int k = 0; k < ROUNDS; k++)
        round_with(true, k % 2 ? 1 : SHMPI_ANY);
}

static void a_message_that_is_not_to_come_is_not_waited_for(void)
{
    for (int k = 0; k < ROUNDS; k++)
        round_with(false, k % 2 ? 1 : SHMPI_ANY);
}

static void a_rank_that_is_released_stays_for_nothing(void)
{
    struct shmpi_job *job = guard_alloc(shmpi_job_bytes(2, 8192));
    shmpi_job_lay_out(job, 2, 8192, true);
    CHECK((rank[0] = shmpi_engine_new(job, 0)) != NULL);
    char into[BYTES];
    struct shmpi_req *r = shmpi_req_new(rank[0]);
    r->peer = 1;
    r->tag = 3;
    r->context = 16;
    r->buffer = into;
    r->bytes = BYTES;
    CHECK(shmpi_start_receive(rank[0], r));
    EQUAL(shmpi_remaining(rank[0], true).peer, 1);
    shmpi_job_release(job, 1);
    EQUAL(shmpi_remaining(rank[0], true).peer, 1);
    shmpi_job_release(job, 0);
    EQUAL(shmpi_remaining(rank[0], true).peer, -1);
    shmpi_cancel(rank[0], r);
    shmpi_req_free(rank[0], r);
    engine_destroy(rank[0]);
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(a_message_before_the_end_is_received),
    TEST(a_message_that_is_not_to_come_is_not_waited_for),
    TEST(a_rank_that_is_released_stays_for_nothing),
};

MAIN(tests)
