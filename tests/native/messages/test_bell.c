/* SPDX-License-Identifier: Apache-2.0
 *
 * Arming and ready bits, one step at a time; test_threads.c runs them in threads,
 * and tests/model/ through all interleavings.
 */
#include "wire/bell.h"
#include "check.h"

static struct shmnd_arming arming_new(void)
{
    return (struct shmnd_arming){guard_alloc(sizeof(struct shmnd_bell)),
                                 guard_alloc(sizeof(struct shmnd_marks)), 0, SHMND_ARMED_NOT};
}

static void unarmed_wants_nothing(void)
{
    struct shmnd_arming a = arming_new();
    uint64_t rung = 0;
    CHECK(!shmnd_bell_must_ring(a.bell, true, &rung));
    shmnd_bell_arm(&a, SHMND_ARMED_ANY);
    shmnd_bell_disarm(&a);
    CHECK(!shmnd_bell_must_ring(a.bell, true, &rung));
    guard_free_all();
}

/* Each producer rings once for an arming, and again for the next one. */
static void once_an_arming_and_producer(void)
{
    struct shmnd_arming a = arming_new();
    uint64_t one = 0, two = 0;
    for (int i = 0; i < 5; i++) {
        shmnd_bell_arm(&a, SHMND_ARMED_ANY);
        CHECK(shmnd_bell_must_ring(a.bell, false, &one));
        CHECK(!shmnd_bell_must_ring(a.bell, false, &one));
        CHECK(shmnd_bell_must_ring(a.bell, false, &two));
        CHECK(!shmnd_bell_must_ring(a.bell, true, &two));
    }
    guard_free_all();
}

static void solicited(void)
{
    struct shmnd_arming a = arming_new();
    uint64_t rung = 0;
    shmnd_bell_arm(&a, SHMND_ARMED_SOLICITED);
    CHECK(!shmnd_bell_must_ring(a.bell, false, &rung));
    CHECK(shmnd_bell_must_ring(a.bell, true, &rung));
    shmnd_bell_arm(&a, SHMND_ARMED_ANY); /* a new arming, in mode ANY */
    CHECK(shmnd_bell_must_ring(a.bell, false, &rung));
    guard_free_all();
}

static void marks(void)
{
    struct shmnd_arming a = arming_new();
    for (uint32_t bit = 0; bit < SHMND_READY_BITS; bit++) {
        shmnd_bell_use_bitmap(a.bell, false);
        shmnd_bell_mark_ready(a.bell, a.marks, bit);
        EQUAL(shmnd_relaxed64(&a.marks->ready[bit / 64]), 0);
        shmnd_bell_use_bitmap(a.bell, true);
        shmnd_bell_mark_ready(a.bell, a.marks, bit);
        shmnd_bell_mark_ready(a.bell, a.marks, bit);
        EQUAL(shmnd_relaxed64(&a.marks->ready[bit / 64]), 1ull << bit % 64);
        shmnd_marks_set(a.marks, bit ^ 1);
        shmnd_marks_clear(a.marks, bit / 64, 1ull << bit % 64);
        EQUAL(shmnd_relaxed64(&a.marks->ready[bit / 64]), 1ull << (bit ^ 1) % 64);
        shmnd_marks_clear(a.marks, bit / 64, ~0ull);
    }
    guard_free_all();
}

/* A bit number outside the bitmap stays inside the bell. */
static void wild_bits(void)
{
    struct shmnd_arming a = arming_new();
    shmnd_bell_use_bitmap(a.bell, true);
    static const uint32_t bits[] = {SHMND_READY_BITS, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        shmnd_bell_mark_ready(a.bell, a.marks, bits[i]);
        shmnd_marks_set(a.marks, bits[i]);
    }
    guard_free_all();
}

/* A consumer that sleeps for another event is rung only for messages that need its call. */
static void asked(void)
{
    struct shmnd_arming a = arming_new();
    uint64_t rung = 0;
    CHECK(!shmnd_bell_request_poll(a.bell, a.marks, &rung));
    CHECK(shmnd_marks_poll_requested(a.marks));
    shmnd_marks_accept_request(a.marks);
    CHECK(!shmnd_marks_poll_requested(a.marks));
    static const uint32_t modes[] = {SHMND_ARMED_ASKED, SHMND_ARMED_SOLICITED, SHMND_ARMED_ANY};
    for (int i = 0; i < 3; i++) {
        shmnd_bell_arm(&a, modes[i]);
        CHECK(shmnd_bell_must_ring(a.bell, false, &rung) == (modes[i] == SHMND_ARMED_ANY));
        CHECK(shmnd_bell_request_poll(a.bell, a.marks, &rung) == (modes[i] != SHMND_ARMED_ANY));
        CHECK(!shmnd_bell_request_poll(a.bell, a.marks, &rung));
        CHECK(shmnd_marks_poll_requested(a.marks));
    }
    shmnd_bell_arm(&a, SHMND_ARMED_ASKED);
    CHECK(!shmnd_bell_must_ring(a.bell, true, &rung));
    EQUAL(shmnd_relaxed64(&a.marks->ready[SHMND_READY_WORDS - 1]), 0);
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(unarmed_wants_nothing),
    TEST(once_an_arming_and_producer),
    TEST(solicited),
    TEST(marks),
    TEST(wild_bits),
    TEST(asked),
};
MAIN(tests)
