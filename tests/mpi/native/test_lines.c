/* SPDX-License-Identifier: Apache-2.0
 *
 * Small collectives by lines, without an interpreter.
 *
 * Members that are threads run a random order of collectives of all kinds, some of which only one
 * member writes, so that it runs ahead until its ring is full. Every byte that is read is checked.
 */
#include "ranks.h"

#include "collectives/lines.h"

#include <pthread.h>

enum { SIZE = 4, CONTEXT = 16 };

static struct shmpi_job *job;
static const int everyone[SIZE] = {1, 3, 0, 4}; /* places are not ranks of the job */

static void job_open(bool crowded)
{
    job = guard_alloc(shmpi_job_bytes(5, 4096));
    shmpi_job_lay_out(job, 5, 4096, crowded);
}

static struct shmpi_lines *lines_of(int place)
{
    struct shmpi_lines *l = shmpi_lines_new(job, 5, CONTEXT, SIZE, place, everyone);
    CHECK(l != NULL);
    return l;
}

static void awaits(struct shmpi_engine *e, struct shmpi_awaited a)
{
    for (uint32_t turn = 0; !shmpi_arrived(&a); turn++) {
        shmpi_idle_begin(e);
        shmpi_idle_for(e, turn, &a);
        shmpi_idle_end(e);
    }
}

static uint64_t begins(struct shmpi_engine *e, struct shmpi_lines *l, bool shows)
{
    int place;
    while (shows && (place = shmpi_lines_full(l, l->number + 1)) >= 0)
        awaits(e, shmpi_await_room(l, l->number + 1, place));
    return ++l->number;
}

static char byte_of(uint64_t k, int place, uint64_t i)
{
    return (char)(k * 31 + (uint64_t)place * 7 + i * 3 + k / 256);
}

static void reads(struct shmpi_engine *e, struct shmpi_lines *l, uint64_t k, int place,
                  uint32_t kind, uint64_t bytes)
{
    awaits(e, shmpi_await_entry(l, k, place));
    EQUAL(shmpi_lines_bytes(l, k, place, kind), bytes);
    const char *data = shmpi_lines_entry(l, k, place)->data;
    for (uint64_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(k, place, i)) {
            NOTE("byte %lu of %lu, entry %lu of %d", (unsigned long)i, (unsigned long)bytes,
                 (unsigned long)k, place);
            EQUAL(data[i], byte_of(k, place, i));
        }
}

/* One of the kinds: all write and read; the root writes; all others write and the root reads; a
 * collective that goes by messages. */
static void takes_part(struct shmpi_engine *e, struct shmpi_lines *l, uint64_t kind, int root,
                       uint64_t bytes)
{
    bool is_root = root == l->place, writes = kind == 0 || (kind == 1) == is_root;
    bool readsany = kind == 0 || (kind == 2) == is_root;
    char data[SHMPI_LINE_MOST];
    uint64_t k = begins(e, l, writes && kind < 3);
    uint32_t name = SHMPI_LINE_BARRIER + (uint32_t)kind;
    if (kind == 3) {
        shmpi_lines_finish(l, k, false);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = byte_of(k, l->place, i);
    if (writes)
        shmpi_lines_show(l, k, name, data, bytes, !readsany);
    for (int i = 0; readsany && i < l->size; i++)
        if (i != l->place && (kind != 1 || i == root))
            reads(e, l, k, i, name, bytes);
    if (readsany)
        shmpi_lines_finish(l, k, kind == 0);
}

static void *member(void *arg)
{
    int place = *(const int *)arg;
    struct shmpi_engine *e = shmpi_engine_new(job, everyone[place]);
    struct shmpi_lines *l = lines_of(place);
    struct chance same = {7}, own = {100 + (uint64_t)place};
    uint64_t rounds = number_of("LINE_ROUNDS", 4000);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t kind = chance_below(&same, 8), bytes = chance_below(&same, SHMPI_LINE_MOST + 1);
        int root = (int)chance_below(&same, SIZE);
        if (i / 64 % 2) /* a stretch of one kind and one root: it runs ahead */
            kind = 1 + i / 128 % 2, root = (int)(i / 64 % SIZE);
        takes_part(e, l, kind > 3 ? 0 : kind, root, bytes);
        if (!chance_below(&own, 50))
            sched_yield();
    }
    EQUAL(l->number, rounds);
    free(l);
    engine_destroy(e);
    return NULL;
}

static void members_at_the_same_time(void)
{
    for (int crowded = 0; crowded < 2; crowded++) {
        pthread_t thread[SIZE];
        int place[SIZE];
        job_open(crowded);
        for (int i = 0; i < SIZE; i++) {
            place[i] = i;
            EQUAL(pthread_create(&thread[i], NULL, member, &place[i]), 0);
        }
        for (int i = 0; i < SIZE; i++)
            EQUAL(pthread_join(thread[i], NULL), 0);
        guard_free_all();
    }
}

static void a_writer_is_kept_back_by_the_slowest_member(void)
{
    job_open(false);
    struct shmpi_lines *root = lines_of(0), *quick = lines_of(1), *slow = lines_of(2);
    shmnd_put64(&root->ring[3]->finished, 1000);
    for (uint64_t k = 1; k <= SHMPI_LINE_ENTRIES; k++) {
        EQUAL(shmpi_lines_full(root, k), -1);
        shmpi_lines_show(root, k, SHMPI_LINE_BCAST, "x", 1, true);
        shmpi_lines_finish(quick, k, false);
    }
    EQUAL(shmpi_lines_full(root, SHMPI_LINE_ENTRIES + 1), 2);
    struct shmpi_awaited a = shmpi_await_room(root, SHMPI_LINE_ENTRIES + 1, 2);
    CHECK(!shmpi_arrived(&a));
    shmpi_lines_finish(slow, 1, false);
    CHECK(shmpi_arrived(&a));
    EQUAL(shmpi_lines_full(root, SHMPI_LINE_ENTRIES + 1), -1);
    EQUAL(shmpi_lines_full(root, SHMPI_LINE_ENTRIES + 2), 2);
    shmpi_lines_finish(slow, 5, true); /* all had shown entry 5: here that says nothing of others */
    EQUAL(slow->safe, 4);
    free(root);
    free(quick);
    free(slow);
    guard_free_all();
}

static void another_call_is_seen_and_garbage_is_not_a_length(void)
{
    job_open(false);
    struct shmpi_lines *a = lines_of(0), *b = lines_of(1);
    CHECK(!shmpi_lines_elsewhere(a, 1, 1));
    shmpi_lines_show(b, 1, SHMPI_LINE_BCAST, "abc", 3, true);
    CHECK(!shmpi_lines_elsewhere(a, 1, 1));
    EQUAL(shmpi_lines_bytes(a, 1, 1, SHMPI_LINE_BCAST), 3);
    EQUAL(shmpi_lines_bytes(a, 1, 1, SHMPI_LINE_BARRIER), -1);
    EQUAL(shmpi_lines_bytes(a, 1, 1, SHMPI_LINE_REDUCE), -1);
    shmpi_lines_finish(b, 2, false);
    CHECK(shmpi_lines_elsewhere(a, 2, 1));
    struct chance c = {3};
    for (int i = 0; i < 1000; i++) {
        shmnd_put64(&shmpi_lines_entry(b, 3, 1)->mark, chance_next(&c) >> chance_below(&c, 64));
        int bytes = shmpi_lines_bytes(a, 3, 1, SHMPI_LINE_BCAST);
        CHECK(bytes >= -1 && bytes <= SHMPI_LINE_MOST);
    }
    free(a);
    free(b);
    guard_free_all();
}

static void add(const void *left, const void *right, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((double *)to)[i] = ((const double *)left)[i] + ((const double *)right)[i];
}

/* The bits of the tree of schedules, for every number of members. */
static void brackets_match_schedules(void)
{
    for (int n = 1; n <= SHMPI_LINE_MEMBERS; n++) {
        double value[SHMPI_LINE_MEMBERS], rows[SHMPI_LINE_MEMBERS];
        char *row[SHMPI_LINE_MEMBERS], *other[SHMPI_LINE_MEMBERS];
        struct chance c = {(uint64_t)n};
        for (int i = 0; i < n; i++) {
            rows[i] = value[i] = 1.0 / (double)(1 + chance_below(&c, 1000));
            row[i] = (char *)&value[i];
            other[i] = (char *)&rows[i];
        }
        struct shmpi_sched *s = shmpi_sched_new();
        struct shmpi_rows these = {.row = other, .pair = -1};
        char *sum = shmpi_build_rows(s, &these, n, 1);
        for (uint32_t i = 0; i < s->count; i++)
            add(s->steps[i].from, s->steps[i].to, s->steps[i].to, s->steps[i].n);
        CHECK(!memcmp(shmpi_lines_reduce(row, n, add, 1), sum, sizeof(double)));
        shmpi_sched_free(s);
    }
}

static void which_communicators_have_lines(void)
{
    CHECK(shmpi_lines_fit(0, 2) && shmpi_lines_fit(16, SHMPI_LINE_MEMBERS));
    CHECK(!shmpi_lines_fit(0, 1) && !shmpi_lines_fit(16, SHMPI_LINE_MEMBERS + 1));
    CHECK(!shmpi_lines_fit(20, 2)); /* a twin, which agrees after a revocation */
    CHECK(shmpi_lines_fit(8 * (SHMPI_LINE_SLOTS - 1), 2) &&
          !shmpi_lines_fit(8 * SHMPI_LINE_SLOTS, 2));
    job_open(false);
    uint64_t end = (uint64_t)((char *)shmpi_job_ring(job, 5, SHMPI_LINE_SLOTS, 0) - (char *)job);
    EQUAL(end, (char *)shmpi_job_lane(job, 5, 4096, 0, 0) - (char *)job);
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(members_at_the_same_time),
    TEST(a_writer_is_kept_back_by_the_slowest_member),
    TEST(another_call_is_seen_and_garbage_is_not_a_length),
    TEST(brackets_match_schedules),
    TEST(which_communicators_have_lines),
};

MAIN(tests)
