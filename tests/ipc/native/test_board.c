/* SPDX-License-Identifier: Apache-2.0
 *
 * Topics, one step at a time: every policy, slots that are held, sleepers, boards that move, and
 * memory in which anything may stand.
 */
#include "topic.h"
#include "wire/futex.h"
#include "wire/clock.h"
#include <pthread.h>
#include <sched.h>

static void each_policy_keeps_its_own(void)
{
    const uint64_t expected[] = {90, 0, 99, 0}, counts[] = {10, 10, 1, 10};
    for (uint32_t policy = 0; policy < 4; policy++) {
        struct topic t;
        struct reader s;
        topic_open(&t, 0, TOPIC_SLOTS);
        reader_open(&s, &t, policy, 10);
        topic_seat(&t, &s, 0);
        reader_sit(&s);
        uint64_t sent = 0;
        while (sent < 100 && topic_publish(&t))
            sent++;
        EQUAL(sent, policy == SHMND_BLOCK ? 10 : 100);
        struct shmnd_found found;
        CHECK(shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_FOUND);
        EQUAL(found.position, expected[policy]);
        uint64_t got = 1;
        while (reader_take(&s, &t))
            got++;
        EQUAL(got, counts[policy]);
        EQUAL(got + shmnd_reading_lost(&s.r), sent);
        reader_close(&s);
        topic_close(&t);
    }
}

static void a_held_slot_is_not_used_again(void)
{
    struct topic t;
    struct reader s;
    struct shmnd_found held[TOPIC_HELD], found;
    topic_open(&t, 0, 32);
    reader_open(&s, &t, SHMND_DROP_OLDEST, 4);
    topic_seat(&t, &s, 0);
    reader_sit(&s);
    uint32_t n = 0;
    while (n < TOPIC_HELD) {
        CHECK(topic_publish(&t));
        CHECK(shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_FOUND);
        if (found.hold != SHMND_NO_SLOT)
            held[n++] = found;
    }
    for (int i = 0; i < 500; i++)
        CHECK(topic_publish(&t));
    /* A small sample needs no hold. */
    while (shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_FOUND)
        EQUAL(found.hold, SHMND_NO_SLOT);
    CHECK(shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_LIMIT);
    for (uint32_t i = 0; i < n; i++) {
        s.next = 0;
        reader_check(&s, &t, &held[i]);
    }
    EQUAL(topic_missing(&t), TOPIC_HELD);
    for (uint32_t i = 0; i < n; i++)
        shmnd_reading_let_go(&s.r, held[i].hold);
    EQUAL(topic_missing(&t), 0);
    reader_close(&s);
    topic_close(&t);
}

static void a_dead_subscriber_holds_nothing(void)
{
    for (uint32_t policy = 0; policy < 4; policy++) {
        struct topic t;
        struct reader s;
        struct shmnd_found found;
        topic_open(&t, 0, 64);
        reader_open(&s, &t, policy, 8);
        topic_seat(&t, &s, 3);
        reader_sit(&s);
        for (int i = 0; i < 8; i++)
            CHECK(topic_publish(&t));
        CHECK(shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_FOUND);
        CHECK(shmnd_reading_next(&s.r, &found) <= SHMND_OUTCOME_FOUND);
        shmnd_board_leave(&t.b, 3);
        for (int i = 0; i < 1000; i++)
            CHECK(topic_publish(&t));
        EQUAL(topic_missing(&t), 0);
        EQUAL(t.b.present + t.b.keepers + t.b.blockers, 0);
        reader_close(&s);
        topic_close(&t);
    }
}

static void one_that_comes_early_receives_each_sample_once(void)
{
    for (uint32_t early = 0; early <= 12; early++) {
        struct topic t;
        struct reader s;
        topic_open(&t, 12, 64);
        for (int i = 0; i < 20; i++)
            CHECK(topic_publish(&t));
        reader_open(&s, &t, SHMND_DROP_NEWEST, 4);
        struct shmnd_found found;
        for (uint32_t i = 0; i < early; i++) {
            enum shmnd_outcome outcome = shmnd_reading_next(&s.r, &found);
            CHECK(outcome == SHMND_OUTCOME_FOUND || outcome == SHMND_OUTCOME_COPY);
            reader_check(&s, &t, &found);
            EQUAL(found.position, 8 + i);
            CHECK(outcome == SHMND_OUTCOME_FOUND || shmnd_reading_copied(&s.r));
        }
        topic_seat(&t, &s, 0);
        /* what it receives between its seat and its knowledge of it comes once, too */
        enum shmnd_outcome outcome = shmnd_reading_next(&s.r, &found);
        CHECK((outcome == SHMND_OUTCOME_NOTHING) == (early == 12));
        if (outcome != SHMND_OUTCOME_NOTHING)
            reader_check(&s, &t, &found);
        if (outcome == SHMND_OUTCOME_COPY)
            CHECK(shmnd_reading_copied(&s.r));
        CHECK(topic_publish(&t));
        reader_sit(&s);
        while (reader_take(&s, &t))
            ;
        EQUAL(s.got + shmnd_reading_lost(&s.r), 13);
        for (int i = 0; i < 10; i++)
            CHECK(topic_publish(&t));
        while (reader_take(&s, &t))
            ;
        EQUAL(s.got + shmnd_reading_lost(&s.r), 23);
        shmnd_board_leave(&t.b, 0);
        EQUAL(topic_missing(&t), 0);
        reader_close(&s);
        topic_close(&t);
    }
}

static void droppers_give_way_where_slots_are_few(void)
{
    struct topic t;
    struct reader drops, blocks;
    topic_open(&t, 0, 6);
    reader_open(&drops, &t, SHMND_DROP_OLDEST, 32);
    topic_seat(&t, &drops, 0);
    reader_sit(&drops);
    uint64_t sent = 0;
    while (sent < 40) {
        sent += topic_publish(&t);
        uint32_t slot = shmnd_board_squeeze(&t.b, 0);
        CHECK(slot != SHMND_NO_SLOT);
        shmnd_slots_free(&t.b.slots, slot);
    }
    while (reader_take(&drops, &t))
        ;
    EQUAL(drops.got + shmnd_reading_lost(&drops.r), 40);
    reader_open(&blocks, &t, SHMND_BLOCK, 32);
    topic_seat(&t, &blocks, 1);
    reader_sit(&blocks);
    while (topic_publish(&t))
        sent++;
    EQUAL(shmnd_board_squeeze(&t.b, 0), SHMND_NO_SLOT);
    while (reader_take(&blocks, &t))
        ;
    EQUAL(blocks.got, sent - 40);
    CHECK(shmnd_board_squeeze(&t.b, 0) != SHMND_NO_SLOT);
    reader_close(&drops);
    reader_close(&blocks);
    topic_close(&t);
}

static void groups_of_slots_are_given_back(void)
{
    struct topic t;
    topic_open(&t, 0, 16);
    t.b.slots.period = 5;
    uint32_t slot = shmnd_slots_take(&t.b.slots, 0);
    uint32_t group = t.b.slots.all[slot].group * 4, other = (group + 4) % 16;
    CHECK(!shmnd_slots_idle(&t.b.slots, group, 99));
    CHECK(shmnd_slots_idle(&t.b.slots, other, 5));
    EQUAL(shmnd_slots_retire(&t.b.slots, other), 4);
    shmnd_slots_free(&t.b.slots, slot);
    CHECK(!shmnd_slots_idle(&t.b.slots, group, 5));
    CHECK(shmnd_slots_idle(&t.b.slots, group, 6));
    uint32_t left = 0;
    while (shmnd_slots_take(&t.b.slots, 0) != SHMND_NO_SLOT)
        left++;
    EQUAL(left, 12);
    topic_close(&t);
}

/* The page of each is read, whatever stands in the bitmap: always with few, in turn with many. */
static void the_class_of_a_size_is_the_smallest_that_holds_it(void)
{
    for (uint32_t class = 0; class < SHMND_SLOT_CLASSES; class++) {
        uint64_t most = shmnd_class_bytes(class);
        EQUAL(shmnd_class_of(most), class);
        EQUAL(shmnd_class_of(most + 1), class + 1);
    }
    EQUAL(shmnd_class_of(0), 0);
    EQUAL(shmnd_class_of(1), 0);
    EQUAL(shmnd_class_of(SHMND_MOST_SAMPLE), SHMND_SLOT_CLASSES - 1);
}

static void the_bitmap_of_sleepers_is_a_hint(void)
{
    struct topic t;
    struct reader s[TOPIC_SEATS];
    topic_open(&t, 0, 16);
    uint64_t now = SHMND_SWEEP_NS, bits = 0;
    for (uint32_t i = 0; i < TOPIC_SEATS; i++) {
        reader_open(&s[i], &t, SHMND_DROP_OLDEST, 4);
        topic_seat(&t, &s[i], i);
        reader_sit(&s[i]);
        shmnd_reading_doze(&s[i].r);
        memset((void *)t.b.sleepers, 0, 64); /* by another subscriber */
        bool all = shmnd_board_published(&t.b, now);
        EQUAL(all, i < SHMND_FEW_GUESTS || i == SHMND_FEW_GUESTS);
        EQUAL(shmnd_board_sleep(&t.b, i), SHMND_ASLEEP_AT_BELL);
        EQUAL(shmnd_board_sleep(&t.b, i), SHMND_AWAKE);
    }
    CHECK(!shmnd_board_published(&t.b, now + SHMND_SWEEP_NS - 1));
    EQUAL(shmnd_board_sleepers(&t.b, 0, &bits), 2);
    CHECK(shmnd_board_published(&t.b, now + SHMND_SWEEP_NS));
    shmnd_reading_doze(&s[70].r);
    EQUAL(shmnd_board_sleepers(&t.b, 0, &bits), 1);
    EQUAL(bits, 1ull << 6);
    for (uint32_t i = 0; i < TOPIC_SEATS; i++)
        reader_close(&s[i]);
    topic_close(&t);
}

static void one_too_many_knows_it(void)
{
    struct topic t;
    struct reader s[3];
    topic_open(&t, 0, 16);
    for (uint32_t i = 0; i < 3; i++)
        reader_open(&s[i], &t, SHMND_DROP_OLDEST, 4);
    topic_seat(&t, &s[0], 0);
    topic_seat(&t, &s[1], 1);
    CHECK(!shmnd_reading_is_refused(&s[2].r, s[2].ident, 2));
    shmnd_board_refuse(&t.b);
    CHECK(shmnd_reading_is_refused(&s[2].r, s[2].ident, 2));
    CHECK(!shmnd_reading_is_refused(&s[1].r, s[1].ident, 2));
    shmnd_board_leave(&t.b, 0);
    CHECK(!shmnd_reading_is_refused(&s[2].r, s[2].ident, 2));
    topic_seat(&t, &s[2], 0);
    CHECK(!shmnd_reading_is_refused(&s[2].r, s[2].ident, 2));
    for (uint32_t i = 0; i < 3; i++)
        reader_close(&s[i]);
    topic_close(&t);
}

static void a_board_moves_under_its_readers(void)
{
    for (uint32_t policy = 0; policy < 4; policy++) {
        struct topic t;
        struct reader s;
        struct shmnd_found found;
        topic_open(&t, 0, TOPIC_SLOTS);
        reader_open(&s, &t, policy, 20);
        topic_seat(&t, &s, 0);
        reader_sit(&s);
        for (int i = 0; i < 20; i++)
            CHECK(topic_publish(&t));
        struct shmnd_line *old = t.b.lines, *lines = topic_shared(64 * 256);
        uint32_t *line_slots = malloc(4 * 256), *was = t.b.line_slots;
        shmnd_board_move(&t.b, lines, line_slots, 255, 256 | 8);
        free(was);
        for (int i = 0; policy == SHMND_DROP_OLDEST && i < 10; i++)
            CHECK(topic_publish(&t));
        if (policy != SHMND_DROP_NEWEST) {
            CHECK(shmnd_reading_next(&s.r, &found) == SHMND_OUTCOME_MOVED);
            s.r.lines = lines, s.r.line_mask = 255, s.r.where = 256 | 8;
        }
        while (reader_take(&s, &t))
            ;
        EQUAL(s.got, policy == SHMND_CONFLATE ? 1 : 20);
        EQUAL(s.got + shmnd_reading_lost(&s.r), t.b.next);
        munmap(old, 64 << TOPIC_LOG);
        reader_close(&s);
        topic_close(&t);
    }
}

/* ---- anything in the memory ------------------------------------------------------------ */

static void a_subscriber_writes_anything(void)
{
    struct chance c = {1};
    for (uint32_t round = 0; round < 40; round++) {
        struct topic t;
        struct reader liar, honest;
        topic_open(&t, 2, 64);
        reader_open(&liar, &t, round % 4, 1 + chance_below(&c, 30));
        reader_open(&honest, &t, SHMND_DROP_OLDEST, 64);
        topic_seat(&t, &liar, 0);
        topic_seat(&t, &honest, 1);
        reader_sit(&honest);
        for (uint32_t i = 0; i < 500; i++) {
            shmnd_word64 *words = (shmnd_word64 *)(void *)liar.r.page;
            uint64_t n = shmnd_page_bytes(TOPIC_HELD) / 8, value = chance_next(&c);
            shmnd_put64(&words[chance_below(&c, n)],
                        value % 3 ? value >> (value % 64) : t.b.next + value % 7);
            shmnd_put64(&t.b.sleepers[chance_below(&c, 8)], value);
            (void)topic_publish(&t);
            (void)shmnd_board_published(&t.b, i);
            uint64_t bits;
            (void)shmnd_board_sleepers(&t.b, 0, &bits);
            (void)shmnd_board_sleep(&t.b, 0);
            while (reader_take(&honest, &t))
                ;
            EQUAL(honest.next, t.b.next);
        }
        EQUAL(honest.got, t.b.next);
        EQUAL(shmnd_reading_lost(&honest.r), 0);
        shmnd_board_leave(&t.b, 0);
        EQUAL(topic_missing(&t), 0);
        for (int i = 0; i < 100; i++) {
            CHECK(topic_publish(&t));
            CHECK(reader_take(&honest, &t));
        }
        reader_close(&liar);
        reader_close(&honest);
        topic_close(&t);
    }
}

static void a_publisher_writes_anything(void)
{
    struct chance c = {2};
    for (uint32_t round = 0; round < 40; round++) {
        struct topic t;
        struct reader s;
        topic_open(&t, 2, 64);
        reader_open(&s, &t, round % 4, 1 + chance_below(&c, 30));
        topic_seat(&t, &s, 0);
        reader_sit(&s);
        for (uint32_t i = 0; i < 2000; i++) {
            shmnd_word64 *at[] = {
                &t.b.head->written, (shmnd_word64 *)(void *)t.b.lines,
                (shmnd_word64 *)(void *)(s.kept ? (void *)s.kept : (void *)t.b.lines),
                (shmnd_word64 *)(void *)shmnd_head_seats(t.b.head)};
            uint64_t value = chance_next(&c), which = chance_below(&c, 4);
            uint64_t n[] = {12, 8 << TOPIC_LOG, 8 << TOPIC_LOG, TOPIC_SEATS * 4};
            shmnd_put64(&at[which][chance_below(&c, n[which])],
                        value % 3 ? value >> (value % 64) : s.r.cursor + value % 5);
            struct shmnd_found found;
            enum shmnd_outcome outcome = shmnd_reading_next(&s.r, &found);
            if (outcome == SHMND_OUTCOME_FOUND && found.hold != SHMND_NO_SLOT) {
                CHECK(found.hold < TOPIC_HELD);
                if (value % 2 || s.r.free_count == 0)
                    shmnd_reading_let_go(&s.r, found.hold);
            } else if (outcome == SHMND_OUTCOME_COPY) {
                (void)shmnd_reading_copied(&s.r);
            } else if (outcome == SHMND_OUTCOME_MOVED) {
                s.r.where = shmnd_relaxed64(&t.b.head->where);
            }
            (void)shmnd_reading_ready(&s.r);
            (void)shmnd_reading_lost(&s.r);
            shmnd_reading_doze(&s.r);
            CHECK(s.r.free_count <= TOPIC_HELD);
        }
        reader_close(&s);
        topic_close(&t);
    }
}

/* ---- threads that play processes --------------------------------------------------------- */

#define PLAYERS 4u

static struct topic shared;
static struct reader players[PLAYERS];
static shmnd_word32 over;

static void *player(void *argument)
{
    struct reader *s = argument;
    struct shmnd_found held[TOPIC_HELD];
    uint32_t holds = 0;
    uint64_t got = 0;
    for (;;) {
        bool last = shmnd_acquire32(&over);
        struct shmnd_found found;
        if (shmnd_reading_next(&s->r, &found) == SHMND_OUTCOME_FOUND) {
            got++;
            if (found.hold == SHMND_NO_SLOT) {
                reader_check(s, &shared, &found);
                continue;
            }
            held[holds++] = found;
            if (holds == TOPIC_HELD - 1) {
                uint64_t next = s->next;
                for (uint32_t i = 0; i < holds; i++) {
                    s->next = 0;
                    reader_check(s, &shared, &held[i]);
                    shmnd_reading_let_go(&s->r, held[i].hold);
                }
                s->next = next;
                holds = 0;
            }
        } else if (last) {
            break;
        } else {
            sched_yield();
        }
    }
    while (holds)
        shmnd_reading_let_go(&s->r, held[--holds].hold);
    s->got = got;
    return NULL;
}

static void threads_publish_and_receive(void)
{
    pthread_t threads[PLAYERS];
    uint64_t count = number_of("SHMND_TEST_SAMPLES", 100000);
    topic_open(&shared, 0, TOPIC_SLOTS);
    shmnd_put32(&over, 0);
    for (uint32_t i = 0; i < PLAYERS; i++) {
        reader_open(&players[i], &shared, i, 20);
        topic_seat(&shared, &players[i], i);
        reader_sit(&players[i]);
    }
    for (uint32_t i = 0; i < PLAYERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, player, &players[i]));
    while (shared.b.next < count) {
        if (!topic_publish(&shared))
            sched_yield();
    }
    shmnd_release32(&over, 1);
    for (uint32_t i = 0; i < PLAYERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (uint32_t i = 0; i < PLAYERS; i++)
        EQUAL(players[i].got + shmnd_reading_lost(&players[i].r), count);
    EQUAL(players[SHMND_BLOCK].got, count);
    EQUAL(topic_missing(&shared), 0);
    for (uint32_t i = 0; i < PLAYERS; i++)
        reader_close(&players[i]);
    topic_close(&shared);
}

/* Two subscribers that sleep at the counter, and a publisher that waits for both after each sample:
 * each wake-up that is lost lasts until the end of the time. */
#define SLEEPERS 2u

static shmnd_word64 came[SLEEPERS];

static void *sleeper(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument, count = number_of("SHMND_TEST_SAMPLES", 20000);
    struct reader *s = &players[number];
    while (s->got < count) {
        uint32_t seen = shmnd_reading_arm_counter(&s->r);
        if (!reader_take(s, &shared)) {
            uint64_t before = shmnd_now_ns();
            shmnd_futex_sleep(shmnd_head_counter(s->r.head), seen, 20000000000u);
            CHECK(shmnd_now_ns() - before < 10000000000u);
            while (reader_take(s, &shared))
                ;
        }
        shmnd_release64(&came[number], s->got);
    }
    return NULL;
}

static void no_wake_up_at_the_counter_is_lost(void)
{
    pthread_t threads[SLEEPERS];
    uint64_t count = number_of("SHMND_TEST_SAMPLES", 20000);
    topic_open(&shared, 0, TOPIC_SLOTS);
    for (uint64_t i = 0; i < SLEEPERS; i++) {
        reader_open(&players[i], &shared, SHMND_BLOCK, 4);
        topic_seat(&shared, &players[i], (uint32_t)i);
        reader_sit(&players[i]);
        shmnd_put64(&came[i], 0);
        CHECK(!pthread_create(&threads[i], NULL, sleeper, (void *)(uintptr_t)i));
    }
    for (uint64_t sent = 1; sent <= count; sent++) {
        while (!topic_publish(&shared))
            sched_yield();
        CHECK(shmnd_board_published(&shared.b, 0));
        bool at_counter = false;
        for (uint32_t i = 0; i < SLEEPERS; i++)
            at_counter |= shmnd_board_sleep(&shared.b, i) == SHMND_ASLEEP_AT_COUNTER;
        if (at_counter)
            (void)shmnd_futex_wake(shmnd_head_counter(shared.b.head), 0x7FFFFFFF);
        for (uint32_t i = 0; i < SLEEPERS; i++)
            while (shmnd_acquire64(&came[i]) < sent)
                sched_yield();
    }
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        CHECK(!pthread_join(threads[i], NULL));
        EQUAL(players[i].got, count);
        reader_close(&players[i]);
    }
    topic_close(&shared);
}

static void how_a_subscriber_sleeps_is_known_once(void)
{
    struct topic t;
    struct reader s;
    topic_open(&t, 0, 16);
    reader_open(&s, &t, SHMND_DROP_OLDEST, 4);
    topic_seat(&t, &s, 0);
    reader_sit(&s);
    EQUAL(shmnd_board_sleep(&t.b, 0), SHMND_AWAKE);
    for (int i = 0; i < 3; i++) {
        EQUAL(shmnd_reading_arm_counter(&s.r), t.b.next);
        EQUAL(shmnd_board_sleep(&t.b, 0), SHMND_ASLEEP_AT_COUNTER);
        EQUAL(shmnd_board_sleep(&t.b, 0), SHMND_AWAKE);
        (void)shmnd_reading_arm_counter(&s.r);
        shmnd_reading_doze(&s.r); /* as when its time there is over */
        EQUAL(shmnd_board_sleep(&t.b, 0), SHMND_ASLEEP_AT_BELL);
        EQUAL(shmnd_board_sleep(&t.b, 0), SHMND_AWAKE);
        CHECK(topic_publish(&t));
        CHECK(reader_take(&s, &t));
    }
    reader_close(&s);
    topic_close(&t);
}

static const struct check_test tests[] = {
    TEST(each_policy_keeps_its_own),
    TEST(a_held_slot_is_not_used_again),
    TEST(a_dead_subscriber_holds_nothing),
    TEST(one_that_comes_early_receives_each_sample_once),
    TEST(droppers_give_way_where_slots_are_few),
    TEST(groups_of_slots_are_given_back),
    TEST(the_class_of_a_size_is_the_smallest_that_holds_it),
    TEST(the_bitmap_of_sleepers_is_a_hint),
    TEST(one_too_many_knows_it),
    TEST(a_board_moves_under_its_readers),
    TEST(a_subscriber_writes_anything),
    TEST(a_publisher_writes_anything),
    TEST(threads_publish_and_receive),
    TEST(how_a_subscriber_sleeps_is_known_once),
    TEST(no_wake_up_at_the_counter_is_lost),
};

MAIN(tests)
