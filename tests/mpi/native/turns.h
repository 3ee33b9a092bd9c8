/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole job in one process, whose ranks make progress by turns.
 */
#ifndef TEST_TURNS_H
#define TEST_TURNS_H

#include "ranks.h"

#define MOST 5

static struct shmpi_job *job;
static struct shmpi_engine *rank[MOST];
static uint64_t arena_bytes; /* of each rank; 0: there are no arenas */

static void job_open(uint32_t size, uint64_t lane)
{
    uint64_t whole = arena_bytes ? shmpi_arena_at(size, lane, arena_bytes, (int)size)
                                 : shmpi_job_bytes(size, lane);
    job = guard_alloc(whole);
    shmpi_job_lay_out(job, size, lane, true);
    if (arena_bytes)
        shmpi_job_add_arenas(job, arena_bytes);
    CHECK(shmpi_job_fits(job, whole));
    for (uint32_t i = 0; i < size; i++)
        CHECK((rank[i] = shmpi_engine_new(job, (int)i)) != NULL);
}

static void queue_is_empty(const struct shmpi_queue *q)
{
    CHECK(!q->first && !q->last);
}

static void engine_free(struct shmpi_engine *e)
{
    EQUAL(e->unsent_peers, 0);
    CHECK(!e->copying && !e->pushing && !e->ready);
    for (int b = 0; b < SHMPI_BUCKETS; b++)
        for (struct shmpi_context *c = e->matching.buckets[b]; c; c = c->next) {
            EQUAL(c->messages, 0);
            queue_is_empty(&c->any);
            for (int i = 0; i < e->size; i++) {
                queue_is_empty(&c->posted[i]);
                queue_is_empty(&c->waiting[i]);
            }
        }
    for (uint32_t i = 0; i < e->table_size; i++)
        CHECK(!e->table[i]);
    engine_destroy(e);
}

static void job_close(void)
{
    for (uint32_t i = 0; i < job->size; i++)
        engine_free(rank[i]);
    guard_free_all();
}

static void turn_of_all(void)
{
    for (uint32_t i = 0; i < job->size; i++)
        shmpi_progress(rank[i]);
}

#endif
