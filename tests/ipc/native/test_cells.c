/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells and signals: one step at a time, with a writer that died at each step, and in
 * threads that play processes.
 */
#include "cell.h"
#include "check.h"
#include "signals.h"
#include <pthread.h>
#include <sched.h>

#define WORDS 24u

static struct shmnd_cell *cell_new(void)
{
    return guard_alloc(shmnd_cell_bytes(WORDS * 8));
}

static void fill(uint64_t *value, uint64_t with)
{
    for (uint32_t i = 0; i < WORDS; i++)
        value[i] = with * 1000 + i;
}

static void nothing_then_the_newest(void)
{
    struct shmnd_cell *cell = cell_new();
    uint64_t value[WORDS], found[WORDS];
    EQUAL(shmnd_cell_read(cell, found, WORDS, WORDS), 0);
    for (uint64_t version = 1; version < 20; version++) {
        fill(value, version);
        EQUAL(shmnd_cell_write(cell, value, WORDS, WORDS), version);
        EQUAL(shmnd_cell_version(cell), version);
        EQUAL(shmnd_cell_read(cell, found, WORDS, WORDS), version);
        CHECK(memcmp(value, found, sizeof value) == 0);
    }
    guard_free_all();
}

/* A writer that dies in the middle leaves the value before, whole. */
static void a_writer_dies_at_each_word(void)
{
    for (uint32_t words = 0; words <= WORDS; words++) {
        struct shmnd_cell *cell = cell_new();
        uint64_t value[WORDS], found[WORDS];
        fill(value, 7);
        for (int i = 0; i < 6; i++)
            shmnd_cell_write(cell, value, WORDS, WORDS);
        shmnd_put64(&cell->begun, 7);
        for (uint32_t i = 0; i < words; i++)
            shmnd_put64(&shmnd_cell_copy(cell, WORDS, 7)[i], 666);
        EQUAL(shmnd_cell_read(cell, found, WORDS, WORDS), 6);
        CHECK(memcmp(value, found, sizeof value) == 0);
        guard_free_all();
    }
}

static void a_copy_that_was_begun_anew_is_refused(void)
{
    struct shmnd_cell *cell = cell_new();
    uint64_t value[WORDS], found[WORDS];
    fill(value, 1);
    shmnd_cell_write(cell, value, WORDS, WORDS);
    shmnd_put64(&cell->begun, SHMND_CELL_COPIES);
    EQUAL(shmnd_cell_read(cell, found, WORDS, WORDS), 1);
    shmnd_put64(&cell->begun, SHMND_CELL_COPIES + 1);
    EQUAL(shmnd_cell_read(cell, found, WORDS, WORDS), ~0ull);
    guard_free_all();
}

static void numbers_are_one_each(void)
{
    struct shmnd_signals *s = guard_alloc(sizeof *s);
    EQUAL(shmnd_signals_marked(s), 0);
    for (uint32_t number = 0; number < SHMND_SIGNALS; number += 61) {
        shmnd_signal(s, number);
        shmnd_signal(s, number);
        EQUAL(shmnd_signals_marked(s), 1ull << number / 64);
        EQUAL(shmnd_signals_take(s, number / 64), 1ull << number % 64);
        EQUAL(shmnd_signals_marked(s), 0);
    }
    /* One that died before the mark is seen with the next of its word. */
    shmnd_set_bits(&s->bits[3], 2);
    EQUAL(shmnd_signals_marked(s), 0);
    shmnd_signal(s, 3 * 64 + 5);
    EQUAL(shmnd_signals_marked(s), 8);
    EQUAL(shmnd_signals_take(s, 3), 2 | 32);
    guard_free_all();
}

/* ---- threads ---------------------------------------------------------------------------- */

static struct shmnd_cell *shared_cell;
static struct shmnd_signals *shared_signals;
static uint64_t rounds;
static shmnd_word64 over;

static void *writer(void *arg)
{
    uint64_t value[WORDS];
    (void)arg;
    for (uint64_t version = 1; version <= rounds; version++) {
        fill(value, version);
        shmnd_cell_write(shared_cell, value, WORDS, WORDS);
        if (version % 64 == 0)
            sched_yield();
    }
    shmnd_release64(&over, 1);
    return NULL;
}

static void *reader(void *arg)
{
    uint64_t last = 0, found[WORDS];
    (void)arg;
    while (last < rounds) {
        uint64_t version = shmnd_cell_read(shared_cell, found, WORDS, WORDS);
        if (version == 0 || version == ~0ull) {
            sched_yield();
            continue;
        }
        CHECK(version >= last);
        last = version;
        for (uint32_t i = 0; i < WORDS; i++)
            EQUAL(found[i], version * 1000 + i);
    }
    return NULL;
}

static void readers_get_whole_values(void)
{
    pthread_t all[3];
    rounds = number_of("SHMND_CELL_ROUNDS", 20000);
    shared_cell = cell_new();
    CHECK(!pthread_create(&all[0], NULL, writer, NULL));
    for (int i = 1; i < 3; i++)
        CHECK(!pthread_create(&all[i], NULL, reader, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(all[i], NULL));
    guard_free_all();
}

/* Each notifier signals its number and waits until the listener has taken it. */
static shmnd_word64 heard[4];

static void *notifier(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 1; i <= rounds; i++) {
        shmnd_signal(shared_signals, (uint32_t)me);
        while (shmnd_acquire64(&heard[me]) < i)
            sched_yield();
    }
    return NULL;
}

static void no_signal_is_lost(void)
{
    pthread_t all[4];
    rounds = number_of("SHMND_CELL_ROUNDS", 2000);
    shared_signals = guard_alloc(sizeof *shared_signals);
    for (uintptr_t i = 0; i < 4; i++) {
        shmnd_put64(&heard[i], 0);
        CHECK(!pthread_create(&all[i], NULL, notifier, (void *)i));
    }
    for (uint64_t left = 4 * rounds; left;) {
        if (!shmnd_signals_marked(shared_signals)) {
            sched_yield();
            continue;
        }
        uint64_t bits = shmnd_signals_take(shared_signals, 0);
        for (uint32_t i = 0; i < 4; i++)
            if (bits >> i & 1) {
                shmnd_add64(&heard[i], 1);
                left--;
            }
    }
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(all[i], NULL));
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(nothing_then_the_newest),
    TEST(a_writer_dies_at_each_word),
    TEST(a_copy_that_was_begun_anew_is_refused),
    TEST(numbers_are_one_each),
    TEST(readers_get_whole_values),
    TEST(no_signal_is_lost),
};

MAIN(tests)
