/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of files: every data byte has the place that counting them one by one gives, at any part of
 * a view, and the bytes before a place are counted as they lie.
 */
#include "files/view.h"

#include "check.h"

enum { ITEMS = 7, MOST = 4096 };

struct sample {
    mpi_runs runs;
    mpi_view view;
    ptrdiff_t true_lb, true_extent;
    int64_t place[MOST]; /* of each data byte */
    size_t bytes;
};

static unsigned long seed = 1;

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(seed >> 33) % below;
}

/* A view of a random item: runs in ascending order, some of several blocks. */
static void sample_make(struct sample *s)
{
    ptrdiff_t at = draw(9);
    memset(s, 0, sizeof *s);
    for (unsigned i = 1 + draw(5); i; i--) {
        size_t bytes = 1 + draw(12), count = 1 + draw(4);
        ptrdiff_t stride = (ptrdiff_t)bytes + draw(7);
        CHECK(!mpi_runs_push(&s->runs, (mpi_run){at, bytes, count, count > 1 ? stride : 0, 0, 0}));
        at += (ptrdiff_t)(count - 1) * stride + (ptrdiff_t)bytes + draw(9);
    }
    const mpi_run *last = &s->runs.run[s->runs.n - 1];
    s->true_lb = s->runs.run[0].off;
    s->true_extent = last->off + (ptrdiff_t)(last->count - 1) * last->stride +
                     (ptrdiff_t)last->bytes - s->true_lb;
    /* Items may lie between the blocks of others. */
    s->view = (mpi_view){&s->runs, draw(3) ? at + draw(20) : 1 + draw(40), draw(100)};
    for (int64_t item = 0; item < ITEMS; item++)
        for (size_t i = 0; i < s->runs.n; i++)
            for (size_t block = 0; block < s->runs.run[i].count; block++)
                for (size_t byte = 0; byte < s->runs.run[i].bytes; byte++)
                    s->place[s->bytes++] =
                        s->view.start + item * s->view.extent + s->runs.run[i].off +
                        (ptrdiff_t)block * s->runs.run[i].stride + (ptrdiff_t)byte;
}

static void every_byte_has_its_place(void)
{
    for (int round = 0; round < 3000; round++) {
        struct sample s;
        sample_make(&s);
        for (size_t at = 0; at < s.bytes; at++) {
            size_t row;
            CHECK(mpi_view_place(&s.view, at, &row) == s.place[at]);
            CHECK(row > 0);
            for (size_t k = 0; k < row && at + k < s.bytes; k++)
                CHECK(s.place[at + k] == s.place[at] + (int64_t)k);
        }
        mpi_runs_free(&s.runs);
    }
}

static void bytes_before_a_place_are_counted(void)
{
    for (int round = 0; round < 3000; round++) {
        struct sample s;
        sample_make(&s);
        /* Items behind the last one that was laid out begin at this place. */
        int64_t known = s.view.start + ITEMS * s.view.extent + s.true_lb;
        for (int64_t end = 0; end <= known; end += 1 + draw(5)) {
            size_t expected = 0;
            for (size_t at = 0; at < s.bytes; at++)
                expected += s.place[at] < end;
            CHECK(mpi_view_before(&s.view, s.true_lb, s.true_extent, end) == expected);
        }
        mpi_runs_free(&s.runs);
    }
}

static void a_part_is_moved_in_place(void)
{
    FILE *file = tmpfile();
    CHECK(file);
    for (int round = 0; round < 300; round++) {
        struct sample s;
        char written[MOST], all[MOST], got[MOST];
        sample_make(&s);
        if (s.view.extent < s.true_extent) {
            mpi_runs_free(&s.runs);
            continue; /* bytes that lie in two items have no one content */
        }
        CHECK(!ftruncate(fileno(file), 0));
        for (size_t at = 0; at < s.bytes; at++)
            written[at] = (char)draw(256);
        size_t first = draw((unsigned)s.bytes), moved = 0;
        int why;
        do
            why = mpi_view_move(&s.view, fileno(file), written + first + moved, first + moved,
                                s.bytes - first - moved, 1, &moved);
        while (why == MPI_VIEW_MORE);
        CHECK(why == MPI_VIEW_DONE && moved == s.bytes - first);
        ssize_t length = pread(fileno(file), all, sizeof all, 0);
        for (size_t at = first; at < s.bytes; at++)
            CHECK(s.place[at] < length && all[s.place[at]] == written[at]);
        CHECK(length == s.place[s.bytes - 1] + 1);
        moved = 0;
        do
            why = mpi_view_move(&s.view, fileno(file), got + moved, first + moved,
                                s.bytes - first - moved, 0, &moved);
        while (why == MPI_VIEW_MORE);
        CHECK(why == MPI_VIEW_DONE && !memcmp(got, written + first, moved));
        moved = 0;
        why = mpi_view_move(&s.view, fileno(file), got, s.bytes, 1, 0, &moved);
        CHECK(why == MPI_VIEW_END && moved == 0);
        mpi_runs_free(&s.runs);
    }
    fclose(file);
}

static const struct check_test tests[] = {
    TEST(every_byte_has_its_place),
    TEST(bytes_before_a_place_are_counted),
    TEST(a_part_is_moved_in_place),
};

MAIN(tests)
