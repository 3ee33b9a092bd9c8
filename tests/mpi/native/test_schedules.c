/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as schedules, compared with the order of ranks and the brackets that they promise.
 */
#include "turns.h"

/* Not commutative: digits in a row, so that any other order shows. */
static int append(void *arg, const void *left_, const void *right_, void *to_, uint64_t items)
{
    const uint64_t *left = left_, *right = right_;
    uint64_t *to = to_;
    (void)arg;
    for (uint64_t i = 0; i < items; i++) {
        uint64_t digits = 1;
        while (digits <= right[i])
            digits *= 10;
        to[i] = right[i] + left[i] * digits;
    }
    return 0;
}

static const int everyone[MOST] = {0, 1, 2, 3, 4};

static uint64_t row_of(int first, int last)
{
    uint64_t row = 0;
    for (int i = first; i <= last; i++)
        row = row * 10 + (uint64_t)i + 1;
    return row;
}

static void run_all(struct shmpi_sched **s, shmpi_reduce reduce)
{
    for (uint32_t i = 0; i < job->size; i++) {
        CHECK(!s[i]->no_memory);
        s[i]->context = 17;
        s[i]->reduce = reduce;
        shmpi_sched_start(rank[i], s[i]);
    }
    for (uint32_t i = 0; i < job->size; i++) {
        for (uint32_t turns = 0; !s[i]->done; turns++) {
            CHECK(turns < 10000);
            turn_of_all();
        }
        EQUAL(s[i]->fault, 0);
        shmpi_sched_free(s[i]);
    }
}

static void collectives_of(uint32_t size, uint64_t items)
{
    struct shmpi_sched *s[MOST];
    uint64_t *mine[MOST], *result[MOST], bytes = items * 8;
    job_open(size, 8192);
    for (uint32_t i = 0; i < size; i++) {
        mine[i] = malloc(bytes);
        result[i] = calloc(items, 8);
        for (uint64_t k = 0; k < items; k++)
            mine[i][k] = i + 1;
    }
    for (int what = 0; what < 3 + 2 * (int)size; what++) {
        int root = what < 3 ? 0 : (what - 3) % (int)size;
        for (uint32_t i = 0; i < size; i++) {
            struct shmpi_group g = {(int)size, (int)i, everyone};
            char *from = (char *)mine[i], *to = (char *)result[i];
            CHECK((s[i] = shmpi_sched_new()) != NULL);
            s[i]->tag = what;
            if (what == 0)
                shmpi_build_allreduce(s[i], &g, from, to, items, bytes);
            else if (what == 1)
                shmpi_build_scan(s[i], &g, from, to, items, bytes, false);
            else if (what == 2)
                shmpi_build_barrier(s[i], &g);
            else if (what < 3 + (int)size)
                shmpi_build_reduce(s[i], &g, root, from, to, items, bytes);
            else
                shmpi_build_bcast(s[i], &g, root, to, bytes);
        }
        run_all(s, append);
        for (uint32_t i = 0; i < size; i++) {
            NOTE("collective %d of %u ranks, rank %u", what, size, i);
            if (what == 0 || what >= 3 + (int)size || (what >= 3 && (int)i == root))
                EQUAL(result[i][items - 1], row_of(0, (int)size - 1));
            if (what == 1)
                EQUAL(result[i][items - 1], row_of(0, (int)i));
        }
    }
    for (uint32_t i = 0; i < size; i++) {
        free(mine[i]);
        free(result[i]);
    }
    job_close();
}

static void collectives_keep_the_order_of_ranks(void)
{
    for (uint32_t size = 1; size <= MOST; size++) {
        for (uint64_t items = 1; items < 30000; items = items * 30 + 1)
            collectives_of(size, items); /* the last ones by slices */
    }
}

static uint64_t words = 1;     /* of an item */
static uint64_t from_afar = 0; /* reductions that read the memory of another rank */

/* The brackets show in the result, and so does the order of the operands. */
static int nest(void *arg, const void *left, const void *right, void *to, uint64_t items)
{
    const uint64_t *a = left, *b = right;
    uint64_t *c = to;
    (void)arg;
    from_afar += left != to && right != to;
    for (uint64_t i = 0; i < items * words; i++)
        c[i] = 3 * a[i] + 5 * b[i] + a[i] * b[i];
    return 0;
}

static uint64_t nested(uint64_t *row, uint32_t n)
{
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i + step < n; i += 2 * step)
            row[i] = 3 * row[i] + 5 * row[i + step] + row[i] * row[i + step];
    return row[0];
}

/* Words of one rank, in its arena if it has one. */
static uint64_t *words_of(uint32_t of_rank, uint64_t n)
{
    bool zero;
    if (!rank[of_rank]->arenas)
        return calloc(n, 8);
    uint64_t bytes = n * 8 < SHMPI_ARENA_LEAST ? SHMPI_ARENA_LEAST : n * 8;
    uint64_t *data = shmpi_arena_take(&rank[of_rank]->arena, bytes, &zero);
    CHECK(data != NULL && zero);
    return data;
}

static void returned(uint32_t of_rank, uint64_t *data)
{
    if (!rank[of_rank]->arenas)
        free(data); /* arenas end with their job */
}

static uint64_t part_of(uint32_t of_rank, uint64_t item)
{
    return 5 * item + of_rank + 1;
}

enum { ALL, SLICES, FIRST_SLICE_PLACE, SHAPES };

/* The own parts are left as they are, unless they are the place of the result. */
static void placed_by(uint32_t size, uint64_t items, int shape, bool in_place)
{
    struct shmpi_sched *s[MOST];
    uint64_t *mine[MOST], *apart[MOST], *got[MOST], first[MOST + 1] = {0};
    job_open(size, 8192);
    for (uint32_t i = 0; i < size; i++)
        first[i + 1] = i + 1 == size ? items : first[i] + (items / size) * (i % 2);
    for (uint32_t i = 0; i < size; i++) {
        struct shmpi_group g = {(int)size, (int)i, everyone};
        mine[i] = words_of(i, items * words);
        apart[i] = words_of(i, items * words);
        for (uint64_t k = 0; k < items * words; k++)
            mine[i][k] = part_of(i, k);
        CHECK((s[i] = shmpi_sched_new()) != NULL);
        s[i]->to_any_place = true;
        got[i] = (in_place ? mine : apart)[i] + (shape == SLICES ? first[i] * words : 0);
        char *from = (char *)mine[i], *to = (char *)got[i];
        if (shape == ALL)
            shmpi_build_allreduce(s[i], &g, from, to, items, items * words * 8);
        else
            shmpi_build_reduce_slices(s[i], &g, from, to, first, words * 8);
    }
    run_all(s, nest);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t begin = shape == ALL ? 0 : first[i] * words;
        uint64_t end = (shape == ALL ? items : first[i + 1]) * words;
        for (uint64_t k = 0; k < end - begin; k++) {
            uint64_t row[MOST];
            for (uint32_t j = 0; j < size; j++)
                row[j] = part_of(j, begin + k);
            NOTE("shape %d of %u ranks, rank %u, item %llu", shape, size, i, (unsigned long long)k);
            EQUAL(got[i][k], nested(row, size));
        }
        for (uint64_t k = 0; k < items * words && !in_place; k++)
            EQUAL(mine[i][k], part_of(i, k));
        returned(i, mine[i]);
        returned(i, apart[i]);
    }
    job_close();
}

static void results_lie_where_nothing_is_copied(void)
{
    for (uint32_t size = 1; size <= MOST; size++)
        for (int shape = ALL; shape < SHAPES; shape++)
            for (uint64_t items = 7; items < 20000; items = items * 50 + 1)
                for (int in_place = 0; in_place < 2; in_place++)
                    placed_by(size, items, shape, in_place);
}

/* What is received from an arena is reduced piece by piece, each of whole items. */
static void data_in_an_arena_are_reduced_as_they_are_read(void)
{
    static const uint64_t lengths[] = {1, 3, 5 << 14};
    arena_bytes = 32 << 20;
    from_afar = 0;
    results_lie_where_nothing_is_copied();
    CHECK(from_afar > 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        words = lengths[i]; /* the last item is longer than what is read between two polls */
        for (uint32_t size = 2; size <= 3; size++)
            for (int shape = ALL; shape < SHAPES; shape++)
                for (int in_place = 0; in_place < 2; in_place++)
                    placed_by(size, words > 3 ? size : (1 << 17) / words, shape, in_place);
    }
    words = 1;
    arena_bytes = 0;
}

static const struct check_test tests[] = {
    TEST(collectives_keep_the_order_of_ranks),
    TEST(results_lie_where_nothing_is_copied),
    TEST(data_in_an_arena_are_reduced_as_they_are_read),
};

MAIN(tests)
