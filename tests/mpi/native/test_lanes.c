/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks as two threads over one job: lanes and bells under the thread sanitizer.
 */
#include <pthread.h>

#include "ranks.h"

#define ROUNDS 500

static struct shmpi_job *job;

/* Each sends to the other and receives from it, sizes on both sides of a line and of a lane. */
static void *half(void *arg)
{
    static const uint64_t sizes[] = {0, 8, 32, 33, 200, 900, 1000, 3000};
    int me = *(int *)arg;
    struct shmpi_engine *e = shmpi_engine_new(job, me);
    char out[3000], in[3000];
    e->peers[1 - me].no_reading = true;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t n = sizes[i % 8];
        struct shmpi_req *s = shmpi_req_new(e), *r = shmpi_req_new(e);
        memset(out, i + me, n);
        r->peer = s->peer = 1 - me;
        r->context = s->context = 16;
        r->tag = s->tag = i;
        r->buffer = in;
        s->buffer = out;
        r->bytes = s->bytes = n;
        CHECK(shmpi_start_receive(e, r));
        CHECK(shmpi_start_send(e, s));
        wait_for(e, &r->done);
        wait_for(e, &s->done);
        EQUAL(r->got, n);
        for (uint64_t k = 0; k < n; k++)
            CHECK(in[k] == (char)(i + 1 - me));
        shmpi_req_free(e, r);
        shmpi_req_free(e, s);
    }
    while (e->unsent_peers)
        shmpi_progress(e);
    return NULL;
}

static void two_ranks_talk_as_threads(void)
{
    int me[2] = {0, 1};
    pthread_t thread[2];
    job = guard_alloc(shmpi_job_bytes(2, 4096));
    shmpi_job_lay_out(job, 2, 4096, true);
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_create(&thread[i], NULL, half, &me[i]), 0);
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
    guard_free_all();
}

static const struct check_test tests[] = {TEST(two_ranks_talk_as_threads)};

MAIN(tests)
