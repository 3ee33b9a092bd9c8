/* SPDX-License-Identifier: Apache-2.0
 *
 * What the native tests of ranks share: waiting for an operation, and freeing an engine.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include "transport/collectives/shapes.h"

#include "check.h"

static inline void wait_for(struct shmpi_engine *e, const bool *done)
{
    for (uint32_t turn = 0; !*done; turn++)
        if (shmpi_progress(e))
            turn = 0;
        else
            shmpi_idle(e, turn);
}

/* Frees an engine with all that it keeps; its test has checked before what must not be left. */
static inline void engine_destroy(struct shmpi_engine *e)
{
    for (int b = 0; b < SHMPI_BUCKETS; b++)
        while (e->matching.buckets[b]) {
            struct shmpi_context *c = e->matching.buckets[b];
            e->matching.buckets[b] = c->next;
            free(c);
        }
    while (e->pool) {
        struct shmpi_req *r = e->pool;
        e->pool = r->next;
        free(r);
    }
    free(e->matching.refusing);
    free(e->matching.revoked);
    free(e->table);
    free(e->generations);
    free(e->peers);
    shmpi_arena_close(&e->arena);
    free(e);
}

#endif
