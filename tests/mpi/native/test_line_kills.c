/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank dies at each step of a small collective, as by SIGKILL; the other one gets what was shown
 * whole, and then learns of the death.
 */
#define SHMND_KILL_POINTS

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "collectives/lines.h"
#include "transport/collectives/shapes.h"

#include "check.h"

enum { LANE = 4096, CALLS = 30 };

static const char *const steps[] = {"entry-filled", "entry-shown", "entries-read", "finished"};
static const int both[2] = {0, 1};
static const char *dies_at; /* NULL: this process goes on */
static int dies_after;

void shmnd_kill_point(const char *name)
{
    if (dies_at && !strcmp(name, dies_at) && !dies_after--)
        kill(getpid(), SIGKILL);
}

/* False: the other rank has died. */
static bool awaits(struct shmpi_engine *e, pid_t other, struct shmpi_awaited a)
{
    for (uint32_t turn = 0;; turn++) {
        shmpi_progress(e);
        bool dead = e->peers[1 - e->rank].dead; /* before the last look: what was shown counts */
        if (shmpi_arrived(&a))
            return true;
        if (dead)
            return false;
        if (other && waitpid(other, NULL, WNOHANG) == other)
            shmpi_job_mark_dead(e->job, 1);
        shmpi_idle_begin(e);
        shmpi_idle_for(e, turn, &a);
        shmpi_idle_end(e);
    }
}

/* Calls in which both write, rank 1 alone, rank 0 alone. Returns how many were complete. */
static int calls(struct shmpi_engine *e, pid_t other)
{
    struct shmpi_lines *l = shmpi_lines_new(e->job, 2, 16, 2, e->rank, both);
    int complete = 0;
    for (uint64_t k = 1; k <= CALLS; k++) {
        bool all = k % 3 == 0, writes = all || k % 3 == (uint64_t)(2 - e->rank);
        bool gets = all || !writes;
        if (writes && shmpi_lines_full(l, k) >= 0 &&
            !awaits(e, other, shmpi_await_room(l, k, 1 - e->rank)))
            break;
        if (writes)
            shmpi_lines_show(l, k, SHMPI_LINE_BCAST, &k, sizeof k, !gets);
        if (gets && !awaits(e, other, shmpi_await_entry(l, k, 1 - e->rank)))
            break;
        if (gets) {
            EQUAL(shmpi_lines_bytes(l, k, 1 - e->rank, SHMPI_LINE_BCAST), sizeof k);
            CHECK(!memcmp(shmpi_lines_entry(l, k, 1 - e->rank)->data, &k, sizeof k));
            shmpi_lines_finish(l, k, all);
        }
        complete++;
    }
    free(l);
    return complete;
}

static void a_rank_dies_at_each_step(void)
{
    int whole = 0, cut = 0;
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++)
        for (int after = 0; after < 30; after += 1 + after / 4) {
            struct shmpi_job *job = mmap(NULL, shmpi_job_bytes(2, LANE), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            CHECK(job != MAP_FAILED);
            shmpi_job_lay_out(job, 2, LANE, after % 2);
            pid_t other = fork();
            CHECK(other >= 0);
            if (!other) {
                dies_at = steps[step];
                dies_after = after;
                calls(shmpi_engine_new(job, 1), 0);
                _exit(0);
            }
            NOTE("%s, %d times before", steps[step], after);
            int complete = calls(shmpi_engine_new(job, 0), other);
            /* Of two ranks, one is at most a ring ahead; an entry that is shown is never lost. */
            CHECK(complete >= after);
            whole += complete == CALLS;
            cut += complete < CALLS;
            waitpid(other, NULL, 0);
            munmap(job, shmpi_job_bytes(2, LANE));
        }
    NOTE("%d ran to the end, %d did not", whole, cut);
    CHECK(whole && cut > 10);
}

static const struct check_test tests[] = {TEST(a_rank_dies_at_each_step)};

MAIN(tests)
