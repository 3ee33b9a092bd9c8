/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of bytes at every distance of the two addresses in their pages, against a plain reference:
 * that the same bytes arrive as by memmove(), no other byte changes, and the vectors are used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static uint32_t moves; /* copies by the C library */

static void *counted_memmove(void *to, const void *from, size_t n)
{
    moves++;
    return memmove(to, from, n);
}

#define memmove counted_memmove
#include "wire/copy_bytes.h"
#undef memmove

#define ROOM (4u * SHMND_COPY_PAGE)

static uint8_t *whole_pages(uint32_t pages)
{
    uint8_t *memory = aligned_alloc(SHMND_COPY_PAGE, pages * (size_t)SHMND_COPY_PAGE);
    CHECK(memory);
    return memory;
}

static void fill(uint8_t *memory, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        memory[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
}

/* Copies within one memory of ROOM bytes, or from another one, and compares all of it. */
static void copy_and_compare(uint32_t to, uint32_t from, uint32_t n, bool within)
{
    uint8_t *memory = whole_pages(4), *other = whole_pages(4), *expected = whole_pages(4);
    fill(memory, ROOM, 1);
    fill(other, ROOM, 7);
    memcpy(expected, memory, ROOM);
    const uint8_t *source = (within ? memory : other) + from;
    for (uint32_t i = 0; i < n; i++)
        expected[to + i] = source[i];
    shmnd_copy_bytes(memory + to, source, n);
    CHECK(memcmp(memory, expected, ROOM) == 0);
    free(memory);
    free(other);
    free(expected);
}

static void every_distance_and_many_lengths(void)
{
    static const uint32_t lengths[] = {0, 1, 2047, 2048, 2049, 2063, 2064, 2080, 2111, 2112, 2113};
    for (uint32_t from = 0; from < 2; from++)
        for (uint32_t distance = 0; distance < 70; distance++)
            for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
                copy_and_compare(from * 17 + distance, from * 17, lengths[i], false);
    for (uint32_t n = 2049; n < 2049 + 130; n++)
        copy_and_compare(3, SHMND_COPY_PAGE - 5, n, false);
}

/* Of two ranges that overlap, the source is the one from before the copy. */
static void ranges_that_overlap(void)
{
    for (uint32_t distance = 1; distance < 40; distance += 3) {
        copy_and_compare(distance, 0, 3000, true);
        copy_and_compare(0, distance, 3000, true);
        copy_and_compare(SHMND_COPY_PAGE + distance, 0, 6000, true);
        copy_and_compare(distance, SHMND_COPY_PAGE, 6000, true); /* close, and before its source */
    }
}

/* The copies that the C library makes slowly, and no others, are made with vectors. */
static void vectors_for_a_target_close_behind_its_source(void)
{
    uint8_t *to = whole_pages(3), *from = whole_pages(2);
    fill(from, 2 * SHMND_COPY_PAGE, 3);
    for (uint32_t i = 0; i < SHMND_COPY_PAGE; i++) {
        bool close = i > 0 && i < SHMND_COPY_CLOSE;
        EQUAL(shmnd_copy_is_slow(to + i, from, SHMND_COPY_LONG + 1), close);
        moves = 0;
        shmnd_copy_bytes(to + i, from, SHMND_COPY_LONG + 1);
        EQUAL(moves, !close);
        EQUAL(shmnd_copy_is_slow(to + i, from, SHMND_COPY_LONG), false);
        EQUAL(shmnd_copy_is_slow(to, from + SHMND_COPY_PAGE - i, SHMND_COPY_LONG + 1), close);
    }
    EQUAL(shmnd_copy_is_slow(to + 8, to, SHMND_COPY_LONG + 1), false);
    EQUAL(shmnd_copy_is_slow(to + SHMND_COPY_PAGE + 8, to, SHMND_COPY_PAGE + 8), true);
    EQUAL(shmnd_copy_is_slow(to + SHMND_COPY_PAGE + 8, to, SHMND_COPY_PAGE + 9), false);
    free(to);
    free(from);
}

struct parts {
    unsigned made, fails_at; /* the copies so far, and that which fails; 0: none */
};

/* In place of a copy by the kernel: both sides must have the same place in their pages. */
static int copy_part(void *processes, uint8_t *here, uint8_t *there, uint64_t n, bool writes)
{
    struct parts *parts = processes;
    if (++parts->made == parts->fails_at)
        return ESRCH;
    EQUAL((uintptr_t)here % SHMND_COPY_PAGE, (uintptr_t)there % SHMND_COPY_PAGE);
    CHECK(n <= SHMND_STAGE_BYTES);
    memcpy(writes ? there : here, writes ? here : there, n);
    return 0;
}

static void a_stage_between_any_addresses(void)
{
    enum { LENGTH = 2 * SHMND_STAGE_BYTES + 5, BYTES = LENGTH + SHMND_COPY_PAGE + 1 };
    uint8_t *here = malloc(BYTES), *there = malloc(BYTES);
    CHECK(here && there);
    for (int i = 0; i < BYTES; i++)
        here[i] = (uint8_t)(i * 7 + i / 251);
    for (uint32_t at = 0; at < SHMND_COPY_PAGE; at += 257) {
        struct parts parts = {0};
        uint8_t *source = here + SHMND_COPY_PAGE - at;
        memset(there, 0, BYTES);
        EQUAL(shmnd_copy_by_stage(copy_part, &parts, source, there + at, LENGTH, true), 0);
        EQUAL(memcmp(there + at, source, LENGTH), 0);
        CHECK(!there[at + LENGTH]);
        memset(source, 0, LENGTH);
        EQUAL(shmnd_copy_by_stage(copy_part, &parts, source, there + at, LENGTH, false), 0);
        EQUAL(memcmp(there + at, source, LENGTH), 0);
        EQUAL(parts.made, 6);
    }
    free(there);
    free(here);
}

static void a_part_that_fails_ends_a_staged_copy(void)
{
    enum { LENGTH = 3 * SHMND_STAGE_BYTES };
    uint8_t *here = calloc(1, LENGTH), *there = malloc(LENGTH);
    CHECK(here && there);
    memset(there, 1, LENGTH);
    struct parts parts = {.fails_at = 2};
    EQUAL(shmnd_copy_by_stage(copy_part, &parts, here, there, LENGTH, false), ESRCH);
    EQUAL(parts.made, 2);
    CHECK(here[SHMND_STAGE_BYTES - 1] && !here[SHMND_STAGE_BYTES]);
    free(there);
    free(here);
}

static const struct check_test tests[] = {
    TEST(every_distance_and_many_lengths),
    TEST(ranges_that_overlap),
    TEST(a_stage_between_any_addresses),
    TEST(a_part_that_fails_ends_a_staged_copy),
    TEST(vectors_for_a_target_close_behind_its_source),
};
MAIN(tests)
