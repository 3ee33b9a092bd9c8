/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of two ranks in one process, for long messages in private memory or in the ranks' arenas.
 */
#ifndef TEST_LONG_MESSAGES_H
#define TEST_LONG_MESSAGES_H

#include "ranks.h"

enum { LARGEST = 700000, LANE = 65536, ARENA = 32 << 20 };

static struct shmpi_job *job;
static struct shmpi_engine *rank[2];
static bool mapped; /* messages lie in arenas */

static void job_open(bool crowded)
{
    job = guard_alloc(mapped ? shmpi_arena_at(2, LANE, ARENA, 2) : shmpi_job_bytes(2, LANE));
    shmpi_job_lay_out(job, 2, LANE, crowded);
    if (mapped)
        shmpi_job_add_arenas(job, ARENA);
    for (int i = 0; i < 2; i++)
        CHECK((rank[i] = shmpi_engine_new(job, i)) != NULL);
}

static void engine_free(struct shmpi_engine *e)
{
    CHECK(!e->copying && !e->pushing);
    EQUAL(e->peers[1 - e->rank].shares, 0);
    engine_destroy(e);
}

static void job_close(void)
{
    engine_free(rank[0]);
    engine_free(rank[1]);
    guard_free_all();
}

static struct shmpi_req *begin(struct shmpi_engine *e, bool receives, int tag, char *data,
                               uint64_t n)
{
    struct shmpi_req *r = shmpi_req_new(e);
    r->peer = 1 - e->rank;
    r->context = 16;
    r->tag = tag;
    r->buffer = data;
    r->bytes = n;
    CHECK(receives ? shmpi_start_receive(e, r) : shmpi_start_send(e, r));
    return r;
}

/* Memory of a rank for a message. */
static char *memory(int of, uint64_t n)
{
    bool zero;
    if (!mapped)
        return malloc(n);
    char *data =
        shmpi_arena_take(&rank[of]->arena, n < SHMPI_ARENA_LEAST ? SHMPI_ARENA_LEAST : n, &zero);
    CHECK(data != NULL);
    return data;
}

static void returned(int of, char *data)
{
    if (mapped)
        shmpi_arena_return(&rank[of]->arena, data);
    else
        free(data);
}

/* Byte i of a message is 7 i + i / 4096 + seed. Within a page that is a stretch of the multiples of
 * 7: whole pages are copied and compared, which a sanitizer sees as one access each. */
enum { PAGE_BYTES = 4096, INVERSE_OF_7 = 183 };

static uint8_t multiples[PAGE_BYTES + 256];

static __attribute__((constructor)) void multiples_fill(void)
{
    for (uint32_t i = 0; i < sizeof multiples; i++)
        multiples[i] = (uint8_t)(i * 7);
}

static const uint8_t *page_of(uint64_t at, int seed)
{
    return multiples + (uint8_t)((at / PAGE_BYTES + (uint64_t)seed) * INVERSE_OF_7);
}

static char *filled(int of, uint64_t n, int seed)
{
    char *data = memory(of, n);
    for (uint64_t at = 0; at < n; at += PAGE_BYTES)
        memcpy(data + at, page_of(at, seed), n - at < PAGE_BYTES ? n - at : PAGE_BYTES);
    return data;
}

static void is_filled(const char *data, uint64_t n, int seed)
{
    for (uint64_t at = 0; at < n; at += PAGE_BYTES) {
        uint64_t most = n - at < PAGE_BYTES ? n - at : PAGE_BYTES;
        if (!memcmp(data + at, page_of(at, seed), most))
            continue;
        for (uint64_t i = at; i < at + most; i++) {
            NOTE("byte %lu of %lu", (unsigned long)i, (unsigned long)n);
            EQUAL((uint8_t)data[i], (uint8_t)(i * 7 + i / PAGE_BYTES + (uint64_t)seed));
        }
        CHECK(!"changed while it was compared");
    }
}

/* The end of a job of one message. */
static void message_close(struct shmpi_req *out, struct shmpi_req *in, char *from, char *to)
{
    shmpi_req_free(rank[0], out);
    shmpi_req_free(rank[1], in);
    while (shmpi_progress(rank[0]) + shmpi_progress(rank[1])) {
    }
    returned(0, from);
    returned(1, to);
    job_close();
}

#endif
