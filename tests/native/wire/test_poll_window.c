/* SPDX-License-Identifier: Apache-2.0
 *
 * How long waits poll, as a function of the waits before: series of waits of known lengths.
 */
#include "check.h"
#include "wire/poll_window.h"

#define SPIN 50000ull
#define SOON (SPIN + SPIN / 2) /* a message that comes when the polls have just failed */

/* Waits of the same length, until one is given `want`; returns how many there were before it. */
static int until(shmnd_poll_window *w, uint64_t ns, uint64_t want, int most)
{
    for (int i = 0; i < most; i++) {
        if (shmnd_window_next(w, SPIN, 0) == want)
            return i;
        shmnd_window_count(w, SPIN, ns, true);
    }
    return -1;
}

static int sleeps_in_a_row(shmnd_poll_window *w, uint64_t ns)
{
    int n = 0;
    while (shmnd_window_next(w, SPIN, 0) == 0) {
        shmnd_window_count(w, SPIN, ns, true);
        n++;
    }
    return n;
}

static void short_waits_poll_for_the_window(void)
{
    shmnd_poll_window w = {0};
    for (int i = 0; i < 1000; i++) {
        EQUAL(shmnd_window_next(&w, SPIN, 0), SPIN);
        shmnd_window_count(&w, SPIN, i % 2 ? 900 : SPIN, true);
    }
    EQUAL(w.lost_ns, 0);
}

static void long_waits_poll_for_an_eighth(void)
{
    shmnd_poll_window w = {0};
    CHECK(until(&w, 10 * SPIN, SPIN / 8, 10) > 0);
    EQUAL(until(&w, 10 * SPIN, SPIN, 100), -1);
    CHECK(until(&w, 2 * SPIN, SPIN, 10) > 0); /* found by no poll, but short */
    shmnd_window_count(&w, SPIN, 1000000 * SPIN, true);
    CHECK(w.wait_ns <= SHMND_WINDOW_LONGEST * SPIN); /* one that lasted an hour is forgotten soon */
}

static void windows_grow_with_the_waits(void)
{
    shmnd_poll_window w = {.wait_ns = SPIN};
    EQUAL(shmnd_window_next(&w, SPIN, 2), 3 * SPIN);
    EQUAL(shmnd_window_next(&w, SPIN, 0), SPIN);
    shmnd_window_hit(&w);
    EQUAL(shmnd_window_next(&w, SPIN, 2), SPIN + 2 * (SPIN - SPIN / 4));
}

static void polls_that_fail_just_before_the_message_end(void)
{
    shmnd_poll_window w = {0};
    EQUAL(until(&w, SOON, 0, 100), SHMND_WINDOW_LOSSES);
    EQUAL(sleeps_in_a_row(&w, SOON), SHMND_FEWEST_SLEEPS - 1); /* one was asked for already */
    EQUAL(w.given_ns, 2 * SPIN);                               /* it tries again, for longer */
}

static void failed_tries_become_rare(void)
{
    shmnd_poll_window w = {0};
    CHECK(until(&w, SOON, 0, 100) > 0);
    int series = SHMND_FEWEST_SLEEPS;
    for (int i = 0; i < 20; i++) {
        NOTE("series %d", i);
        EQUAL(sleeps_in_a_row(&w, SOON), series - 1);
        int tries = 0;
        do {
            EQUAL(w.given_ns, 2 * SPIN);
            shmnd_window_count(&w, SPIN, 2 * SPIN + SPIN / 2, true);
            tries++;
        } while (shmnd_window_next(&w, SPIN, 0) != 0);
        EQUAL(tries, SHMND_WINDOW_TRIES);
        if (series < SHMND_MOST_SLEEPS)
            series *= 2;
    }
    EQUAL(series, SHMND_MOST_SLEEPS);
}

static void messages_found_by_polls_restore_them(void)
{
    shmnd_poll_window w = {0};
    CHECK(until(&w, SOON, 0, 100) > 0);
    sleeps_in_a_row(&w, SOON);
    int hits = 0;
    do {
        shmnd_window_hit(&w);
        hits++;
    } while (shmnd_window_next(&w, SPIN, 0) != SPIN);
    CHECK(hits <= 1 + SHMND_WINDOW_LOSSES * (int)SPIN / SHMND_WAKE_UP_NS);
    EQUAL(w.lost_ns, 0);
    EQUAL(until(&w, SOON, 0, 100), SHMND_WINDOW_LOSSES); /* all is as at the start */
    EQUAL(w.series, SHMND_FEWEST_SLEEPS);
}

static void a_hit_ends_the_sleeps(void)
{
    shmnd_poll_window w = {0};
    CHECK(until(&w, SOON, 0, 100) > 0);
    shmnd_window_hit(&w); /* by the first polls, which each wait makes */
    CHECK(shmnd_window_next(&w, SPIN, 0) > 0);
}

static void many_hits_outweigh_a_failure(void)
{
    shmnd_poll_window w = {0};
    for (int i = 0; i < 10000; i++) {
        CHECK(shmnd_window_next(&w, SPIN, 0) > 0);
        shmnd_window_count(&w, SPIN, i % 10 ? 1000 : SOON, true);
    }
    EQUAL(w.series, 0);
}

static void only_messages_that_come_soon_count(void)
{
    shmnd_poll_window w = {0};
    for (int i = 0; i < 1000; i++) {
        CHECK(shmnd_window_next(&w, SPIN, 0) > 0);
        shmnd_window_count(&w, SPIN, SPIN + SHMND_WINDOW_SOON * SPIN, true); /* too late */
        CHECK(shmnd_window_next(&w, SPIN, 0) > 0);
        shmnd_window_count(&w, SPIN, SOON, false); /* a time-out */
    }
    EQUAL(w.lost_ns, 0);
}

static void no_window_learns_nothing(void)
{
    shmnd_poll_window w = {0};
    for (int i = 0; i < 100; i++) {
        EQUAL(shmnd_window_next(&w, 0, 2), 0);
        shmnd_window_count(&w, 0, i, i % 2);
    }
    EQUAL(w.wait_ns | w.lost_ns | w.sleeps | w.series, 0);
}

static const struct check_test tests[] = {
    TEST(short_waits_poll_for_the_window),
    TEST(long_waits_poll_for_an_eighth),
    TEST(windows_grow_with_the_waits),
    TEST(polls_that_fail_just_before_the_message_end),
    TEST(failed_tries_become_rare),
    TEST(messages_found_by_polls_restore_them),
    TEST(a_hit_ends_the_sleeps),
    TEST(many_hits_outweigh_a_failure),
    TEST(only_messages_that_come_soon_count),
    TEST(no_window_learns_nothing),
};
MAIN(tests)
