/* SPDX-License-Identifier: Apache-2.0
 *
 * Arming and ready bits, one step at a time; test_threads.c runs them in threads,
 * and tests/model/ through all interleavings. The sleep at the word runs in threads here.
 */
#include <pthread.h>

#include "wire/bell.h"
#include "wire/clock.h"
#include "wire/futex.h"
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

/* A producer learns from the arming how its consumer sleeps, and a change ends that sleep. */
static void at_the_word(void)
{
    struct shmnd_arming a = arming_new();
    uint64_t rung = 0;
    shmnd_bell_arm(&a, SHMND_ARMED_ANY);
    CHECK(shmnd_bell_must_ring(a.bell, false, &rung) && !(rung & SHMND_ARMED_AT_WORD));
    uint32_t word = shmnd_bell_arm_at_word(&a);
    EQUAL(word, shmnd_relaxed32(&a.marks->rings));
    CHECK(shmnd_bell_must_ring(a.bell, false, &rung) && rung & SHMND_ARMED_AT_WORD);
    CHECK(!shmnd_bell_must_ring(a.bell, true, &rung));
    shmnd_bell_change_word(a.marks);
    CHECK(shmnd_relaxed32(&a.marks->rings) != word);
    shmnd_futex_sleep((const void *)&a.marks->rings, word, 60000000000u); /* returns at once */
    (void)shmnd_bell_arm_at_word(&a);
    CHECK(shmnd_bell_request_poll(a.bell, a.marks, &rung) && rung & SHMND_ARMED_AT_WORD);
    shmnd_bell_disarm(&a);
    CHECK(!shmnd_bell_must_ring(a.bell, true, &rung));
    guard_free_all();
}

#define PRODUCERS 2
#define EACH 5000u
#define LOST_NS 20000000000u

static struct shmnd_arming word_arming;
static shmnd_word32 published[PRODUCERS], consumed[PRODUCERS];

static void *produce(void *number)
{
    uint32_t i = *(uint32_t *)number;
    uint64_t rung = 0;
    for (uint32_t sent = 1; sent <= EACH; sent++) {
        shmnd_release32(&published[i], sent);
        /* SYNC arm: fence of the producer */
        shmnd_store_then_load();
        if (shmnd_bell_must_ring(word_arming.bell, false, &rung)) {
            shmnd_bell_change_word(word_arming.marks);
            (void)shmnd_futex_wake((const void *)&word_arming.marks->rings, 1);
        }
        while (shmnd_acquire32(&consumed[i]) < sent)
            sched_yield();
    }
    return NULL;
}

static bool consume(void)
{
    bool found = false;
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        uint32_t to = shmnd_acquire32(&published[i]);
        found |= to != shmnd_relaxed32(&consumed[i]);
        shmnd_release32(&consumed[i], to);
    }
    return found;
}

/* Producers that wait for the consumer after each message, which sleeps before each: a wake-up that
 * is lost is a sleep of 20 s. */
static void no_wake_up_at_the_word_is_lost(void)
{
    word_arming = arming_new();
    pthread_t threads[PRODUCERS];
    static uint32_t numbers[PRODUCERS] = {0, 1};
    for (uint32_t i = 0; i < PRODUCERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, produce, &numbers[i]));
    while (shmnd_relaxed32(&consumed[0]) < EACH || shmnd_relaxed32(&consumed[1]) < EACH) {
        uint32_t word = shmnd_bell_arm_at_word(&word_arming);
        if (!consume()) {
            uint64_t began = shmnd_now_ns();
            shmnd_futex_sleep((const void *)&word_arming.marks->rings, word, LOST_NS);
            CHECK(shmnd_now_ns() - began < LOST_NS);
        }
    }
    for (uint32_t i = 0; i < PRODUCERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(unarmed_wants_nothing),
    TEST(once_an_arming_and_producer),
    TEST(solicited),
    TEST(marks),
    TEST(wild_bits),
    TEST(asked),
    TEST(at_the_word),
    TEST(no_wake_up_at_the_word_is_lost),
};
MAIN(tests)
