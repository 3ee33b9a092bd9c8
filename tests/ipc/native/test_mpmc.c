/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of a queue: one step at a time, with what a death leaves at each step, with
 * anything in the memory, and in threads that play processes.
 */
#include "blocks.h"
#include "check.h"
#include "gate.h"
#include <pthread.h>
#include <sched.h>

static struct shmnd_mpmc line_new(uint64_t count)
{
    shmnd_word64 *words = guard_alloc((count + 2) * 8);
    return (struct shmnd_mpmc){&words[count], &words[count + 1], words, count};
}

static int put(struct shmnd_mpmc *q, uint32_t value)
{
    uint64_t pos;
    uint32_t held;
    return shmnd_mpmc_push(q, value, &pos, &held);
}

static int64_t get(struct shmnd_mpmc *q, uint32_t member)
{
    uint64_t pos, word;
    if (shmnd_mpmc_peek(q, &pos, &word) != SHMND_MPMC_OK)
        return -1;
    CHECK(shmnd_mpmc_take(q, pos, word, member));
    CHECK(!shmnd_mpmc_take(q, pos, word, member));
    CHECK(shmnd_mpmc_settle(q, pos, member));
    CHECK(!shmnd_mpmc_settle(q, pos, member));
    return shmnd_mpmc_value(word);
}

static void in_order_and_full_at_its_length(void)
{
    for (uint64_t count = 1; count < 6; count++) {
        struct shmnd_mpmc q = line_new(count);
        uint32_t in = 0, out = 0;
        for (int round = 0; round < 50; round++) {
            while (put(&q, in) == SHMND_MPMC_OK)
                in++;
            EQUAL(in - out, count);
            EQUAL(put(&q, 7), SHMND_MPMC_FULL);
            EQUAL(shmnd_mpmc_size_guess(&q), count);
            EQUAL(shmnd_mpmc_written(&q), in);
            for (uint64_t some = round % count + 1; some; some--)
                EQUAL(get(&q, 3), out++);
        }
        while (out < in)
            EQUAL(get(&q, 3), out++);
        EQUAL(get(&q, 3), -1);
        EQUAL(shmnd_mpmc_size_guess(&q), 0);
        guard_free_all();
    }
}

/* A producer that dies after its swap has not moved write_pos; all others find the item. */
static void a_producer_dies_before_it_moves_the_position(void)
{
    struct shmnd_mpmc q = line_new(4);
    CHECK(put(&q, 1) == SHMND_MPMC_OK);
    shmnd_put64(q.write_pos, 0);
    EQUAL(shmnd_mpmc_written(&q), 1);
    CHECK(put(&q, 2) == SHMND_MPMC_OK);
    EQUAL(shmnd_relaxed64(q.write_pos), 2);
    EQUAL(get(&q, 0), 1);
    EQUAL(get(&q, 0), 2);
    guard_free_all();
}

/* A consumer that dies with a slot stops no consumer, and a producer finds its number. */
static void a_consumer_dies_between_take_and_settle(void)
{
    struct shmnd_mpmc q = line_new(2);
    uint64_t pos, word;
    uint32_t held = 99;
    CHECK(put(&q, 10) == SHMND_MPMC_OK && put(&q, 11) == SHMND_MPMC_OK);
    CHECK(shmnd_mpmc_peek(&q, &pos, &word) == SHMND_MPMC_OK);
    CHECK(shmnd_mpmc_take(&q, pos, word, 42));
    EQUAL(get(&q, 0), 11);
    EQUAL(shmnd_mpmc_push(&q, 12, &pos, &held), SHMND_MPMC_HELD);
    EQUAL(held, 42);
    CHECK(!shmnd_mpmc_settle(&q, 0, 41));
    CHECK(shmnd_mpmc_settle(&q, 0, 42));
    CHECK(put(&q, 12) == SHMND_MPMC_OK);
    EQUAL(get(&q, 0), 12);
    guard_free_all();
}

static void a_count_is_noted_once_for_each_position(void)
{
    struct shmnd_queue_member *page = guard_alloc(sizeof *page);
    for (uint64_t pos = 0; pos < 5; pos++) {
        if (pos & 1)
            shmnd_member_count(page, pos); /* it died before it had settled the slot */
        shmnd_member_count_dead(page, pos);
        shmnd_member_count_dead(page, pos);
        EQUAL(shmnd_relaxed64(&page->taken) >> 32, pos + 1);
    }
    guard_free_all();
}

/* A page holds the low half of a position: 0 for a fresh member, and for position 2^32 - 1. */
static void a_count_is_noted_at_any_position(void)
{
    for (int dead = 0; dead < 2; dead++) {
        struct shmnd_queue_member *page = guard_alloc(sizeof *page);
        CHECK(!shmnd_member_took(page, UINT32_MAX));
        (dead ? shmnd_member_count_dead : shmnd_member_count)(page, UINT32_MAX);
        CHECK(shmnd_member_took(page, UINT32_MAX));
        EQUAL(shmnd_member_open(page), 1);
        shmnd_member_count_dead(page, UINT32_MAX);
        EQUAL(shmnd_member_open(page), 1);
        shmnd_member_count(page, UINT32_MAX + (1ull << 32));
        EQUAL(shmnd_member_open(page), 2);
        shmnd_member_done(page);
        EQUAL(shmnd_relaxed64(&page->others), 0);
    }
    guard_free_all();
}

static int64_t lost_by(const struct shmnd_queue_member *page)
{
    uint64_t lost = 0;
    EQUAL(shmnd_member_reported(page, &lost), shmnd_relaxed64(&page->done));
    return (int64_t)lost;
}

/* From any count on: a member takes 5, reports 1, and dies; the next one of its number takes 1. */
static void reports_for_others_are_counted_apart(void)
{
    static const uint32_t from[] = {0, (1u << 31) - 3, UINT32_MAX - 3};
    struct shmnd_queue_member *page = guard_alloc(sizeof *page);
    for (int i = 0; i < 3; i++) {
        shmnd_put64(&page->taken, (uint64_t)(from[i] + 5) << 32 | 77);
        shmnd_put64(&page->done, from[i]);
        shmnd_put64(&page->forgiven, 0);
        shmnd_put64(&page->others, 0);
        EQUAL(shmnd_member_open(page), 5);
        shmnd_member_done(page);
        EQUAL(shmnd_member_open(page), 4);
        EQUAL(lost_by(page), 0);
        shmnd_member_report(&page->forgiven, 4);
        EQUAL(shmnd_member_open(page), 0);
        EQUAL(lost_by(page), 4);
        shmnd_put64(&page->taken, (uint64_t)(from[i] + 6) << 32 | 78);
        EQUAL(shmnd_member_open(page), 1);
        shmnd_member_done(page); /* its own */
        EQUAL(lost_by(page), 4);
        for (int reports = 1; reports < 7; reports++) {
            shmnd_member_done(page); /* for others */
            EQUAL(lost_by(page), 4 - reports);
            EQUAL(shmnd_member_open(page), 0);
        }
        EQUAL(shmnd_relaxed64(&page->done), (uint64_t)from[i] + 8);
        shmnd_put64(&page->others, 7); /* it dies between the two stores */
        EQUAL(lost_by(page), -3);
        EQUAL(shmnd_member_open(page), 1);
        shmnd_member_report(&page->forgiven, 5);
        EQUAL(lost_by(page), -2);
    }
    guard_free_all();
}

static void whatever_stands_there_every_call_ends(void)
{
    struct chance c = {number_of("SHMND_SEED", 5)};
    struct shmnd_mpmc q = line_new(5);
    for (int round = 0; round < 20000; round++) {
        uint64_t pos, word;
        uint32_t held;
        for (int i = 0; i < 7; i++)
            shmnd_put64(&q.slots[i], chance_below(&c, 3) ? chance_next(&c) : chance_below(&c, 64));
        (void)shmnd_mpmc_push(&q, 1, &pos, &held);
        if (shmnd_mpmc_peek(&q, &pos, &word) == SHMND_MPMC_OK)
            (void)shmnd_mpmc_take(&q, pos, word, 1);
        (void)shmnd_mpmc_settle(&q, chance_next(&c), 1);
        (void)shmnd_mpmc_written(&q);
        CHECK(shmnd_mpmc_size_guess(&q) <= 5);
        guard_check();
    }
    guard_free_all();
}

static void a_gate_is_armed_opened_and_cleared(void)
{
    shmnd_word32 *gate = guard_alloc(sizeof *gate);
    EQUAL(shmnd_gate_open(gate), 0);
    uint32_t armed = shmnd_gate_arm(gate, SHMND_GATE_SLEEPER);
    EQUAL(shmnd_gate_arm(gate, SHMND_GATE_SLEEPER), armed);
    uint32_t opened = shmnd_gate_open(gate);
    CHECK(opened != armed && (opened & SHMND_GATE_SLEEPER));
    shmnd_gate_clear(gate, armed, SHMND_GATE_SLEEPER); /* of before: too late */
    EQUAL(shmnd_relaxed32(gate), opened);
    shmnd_gate_clear(gate, opened, SHMND_GATE_SLEEPER);
    EQUAL(shmnd_gate_open(gate), 0);
    armed = shmnd_gate_arm(gate, SHMND_GATE_DESCRIPTOR);
    opened = shmnd_gate_open(gate);
    shmnd_gate_arm(gate, SHMND_GATE_DESCRIPTOR); /* while the waker rings */
    shmnd_gate_clear(gate, opened, SHMND_GATE_DESCRIPTOR);
    CHECK(shmnd_gate_open(gate) & SHMND_GATE_DESCRIPTOR);
    guard_free_all();
}

/* ---- threads that play processes --------------------------------------------------------- */

#define PLAYERS 3
static struct shmnd_mpmc shared;
static struct shmnd_block *blocks;
static shmnd_word64 got, sums;
static uint64_t each_puts;

static void *producer(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < each_puts;) {
        uint32_t ref = me * 8 + (uint32_t)(i % 8);
        struct shmnd_block *block = &blocks[ref];
        if (!shmnd_block_is_free(block)) {
            sched_yield();
            continue;
        }
        shmnd_put32(&block->state, SHMND_BLOCK_LIVE);
        block->bytes = i + 1; /* plain memory: the orders have to carry it */
        block->whole = (i + 1) * 3;
        while (put(&shared, ref) != SHMND_MPMC_OK)
            sched_yield();
        i++;
    }
    return NULL;
}

static void *consumer(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    uint64_t pos, word, last[PLAYERS] = {0};
    while (shmnd_relaxed64(&got) < PLAYERS * each_puts) {
        if (shmnd_mpmc_peek(&shared, &pos, &word) != SHMND_MPMC_OK) {
            sched_yield();
            continue;
        }
        if (!shmnd_mpmc_take(&shared, pos, word, me))
            continue;
        CHECK(shmnd_mpmc_settle(&shared, pos, me));
        struct shmnd_block *block = &blocks[shmnd_mpmc_value(word)];
        uint32_t from = shmnd_mpmc_value(word) / 8;
        CHECK(block->whole == block->bytes * 3);
        CHECK(block->bytes > last[from]); /* in order for each consumer */
        last[from] = block->bytes;
        shmnd_add64(&sums, block->bytes);
        shmnd_block_free(block);
        shmnd_add64(&got, 1);
    }
    return NULL;
}

static void threads_put_and_get(void)
{
    static const uint64_t lengths[] = {1, 2, 7, 64};
    each_puts = number_of("SHMND_QUEUE_PUTS", 4000);
    for (size_t k = 0; k < 4; k++) {
        pthread_t all[2 * PLAYERS];
        shared = line_new(lengths[k]);
        blocks = guard_alloc(sizeof(struct shmnd_block) * PLAYERS * 8);
        shmnd_put64(&got, 0);
        shmnd_put64(&sums, 0);
        for (uintptr_t i = 0; i < PLAYERS; i++) {
            CHECK(!pthread_create(&all[i], NULL, producer, (void *)i));
            CHECK(!pthread_create(&all[PLAYERS + i], NULL, consumer, (void *)i));
        }
        for (int i = 0; i < 2 * PLAYERS; i++)
            CHECK(!pthread_join(all[i], NULL));
        EQUAL(shmnd_relaxed64(&sums), PLAYERS * (each_puts * (each_puts + 1) / 2));
        guard_free_all();
    }
}

static const struct check_test tests[] = {
    TEST(in_order_and_full_at_its_length),
    TEST(a_producer_dies_before_it_moves_the_position),
    TEST(a_consumer_dies_between_take_and_settle),
    TEST(a_count_is_noted_once_for_each_position),
    TEST(a_count_is_noted_at_any_position),
    TEST(reports_for_others_are_counted_apart),
    TEST(whatever_stands_there_every_call_ends),
    TEST(a_gate_is_armed_opened_and_cleared),
    TEST(threads_put_and_get),
};

MAIN(tests)
