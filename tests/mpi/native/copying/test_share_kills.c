/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank dies at each step of a long message, as by SIGKILL; the other one ends, with the message
 * or with an error, and its queues are empty.
 */
#define SHMND_KILL_POINTS

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "transport/collectives/shapes.h"

#include "check.h"

enum { LANE = 65536, BYTES = 600000, ARENA = 2 << 20 };

static const char *const steps[] = {
    "asked", "cleared", "unit-taken", "piece-shown", "unit-placed", "stretch-taken", "stretch-read",
};
static bool mapped;         /* the message lies in arenas */
static bool by_kernel;      /* else, both sides copy it by the kernel, and not by the lane */
static const char *dies_at; /* NULL: this process goes on */
static int dies_after;

void shmnd_kill_point(const char *name)
{
    if (dies_at && !strcmp(name, dies_at) && !dies_after--)
        kill(getpid(), SIGKILL);
}

static struct shmpi_req *begin(struct shmpi_engine *e, bool receives, char *data)
{
    *shmpi_way_of(&e->peers[1 - e->rank].ways, BYTES) =
        (struct shmpi_way){.messages = SHMPI_WAY_TRIALS, .by_kernel = by_kernel};
    struct shmpi_req *r = shmpi_req_new(e);
    r->peer = 1 - e->rank;
    r->context = 16;
    r->buffer = data;
    r->bytes = BYTES;
    CHECK(receives ? shmpi_start_receive(e, r) : shmpi_start_send(e, r));
    return r;
}

static char *memory(struct shmpi_engine *e)
{
    bool zero;
    return mapped ? shmpi_arena_take(&e->arena, BYTES, &zero) : calloc(1, BYTES);
}

static void turns(struct shmpi_engine *e, const bool *done)
{
    for (uint32_t turn = 0; !*done; turn++)
        if (shmpi_progress(e))
            turn = 0;
        else
            shmpi_idle(e, turn);
}

static void dies(struct shmpi_job *job, bool receives)
{
    struct shmpi_engine *e = shmpi_engine_new(job, 1);
    struct shmpi_req *r = begin(e, receives, memory(e));
    turns(e, &r->done);
    while (e->unsent_peers)
        shmpi_progress(e);
    _exit(0);
}

static void lives(struct shmpi_job *job, pid_t other, bool receives, int *completed, int *failed)
{
    struct shmpi_engine *e = shmpi_engine_new(job, 0);
    char *data = memory(e);
    memset(data, 1, BYTES);
    struct shmpi_req *r = begin(e, receives, data);
    bool marked_dead = false;
    for (long turn = 0; !r->done || !marked_dead; turn++) {
        CHECK(turn < 200000000);
        shmpi_progress(e);
        if (!marked_dead && waitpid(other, NULL, WNOHANG) == other) {
            shmpi_job_mark_dead(job, 1);
            marked_dead = true;
        }
    }
    shmpi_progress(e);
    CHECK(r->fault == SHMPI_OK || r->fault == SHMPI_FAILED_PEER || r->fault == SHMPI_BROKEN);
    for (int i = 0; receives && !r->fault && i < BYTES; i++)
        CHECK(data[i] == 0);
    CHECK(!e->copying && !e->pushing && !e->unsent_peers);
    for (uint32_t i = 0; i < e->table_size; i++)
        CHECK(!e->table[i]);
    *completed += r->fault == SHMPI_OK;
    *failed += r->fault != SHMPI_OK;
    shmpi_req_free(e, r);
    if (!mapped)
        free(data);
}

static void a_rank_dies_at_each_step(void)
{
    int completed = 0, failed = 0;
    uint64_t bytes = shmpi_arena_at(2, LANE, ARENA, 2);
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++)
        for (int after = 0; after < 4; after++)
            for (int receives = 0; receives < 2; receives++) {
                struct shmpi_job *job =
                    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                CHECK(job != MAP_FAILED);
                shmpi_job_lay_out(job, 2, LANE, !mapped && after % 2);
                if (mapped)
                    shmpi_job_add_arenas(job, ARENA);
                pid_t other = fork();
                CHECK(other >= 0);
                if (!other) {
                    dies_at = steps[step];
                    dies_after = after;
                    dies(job, !receives);
                }
                NOTE("%s, %d times before", steps[step], after);
                lives(job, other, receives, &completed, &failed);
                munmap(job, bytes);
            }
    NOTE("%d completed, %d failed", completed, failed);
    CHECK(completed && failed > 2);
}

static void a_rank_dies_at_each_step_of_a_message_by_the_kernel(void)
{
    by_kernel = true;
    a_rank_dies_at_each_step();
    by_kernel = false;
}

static void a_rank_dies_at_each_step_of_a_message_in_arenas(void)
{
    mapped = true;
    a_rank_dies_at_each_step();
}

static const struct check_test tests[] = {
    TEST(a_rank_dies_at_each_step),
    TEST(a_rank_dies_at_each_step_of_a_message_by_the_kernel),
    TEST(a_rank_dies_at_each_step_of_a_message_in_arenas),
};

MAIN(tests)
