/* SPDX-License-Identifier: Apache-2.0
 *
 * The learned choice between the bounce area and the kernel.
 */
#include "check.h"
#include "engine/copy_way.h"

#define RANGE 100000u

/* Issues messages that take so many ns each by the two ways; checks how many went by the kernel. */
static void issue(struct shmnd_way *w, uint64_t *now, uint32_t count, const uint32_t ns[2],
                  uint32_t by_kernel)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool kernel = shmnd_way_is_kernel(w);
        found += kernel;
        if (shmnd_way_count(w))
            shmnd_way_note(w, *now);
        *now += ns[kernel];
    }
    EQUAL(found, by_kernel);
}

/* Half of a trial goes each way, and all until the next one the faster way. */
static void the_faster_way_is_taken_until_the_next_trial(void)
{
    for (uint32_t faster = 0; faster < 2; faster++) {
        struct shmnd_ways ways = {0};
        struct shmnd_way *w = shmnd_way_of(&ways, RANGE);
        uint32_t ns[2] = {7000, 7000};
        uint64_t now = 12345;
        ns[faster] = 6900;
        for (int trial = 0; trial < 3; trial++) {
            issue(w, &now, SHMND_WAY_TRIAL, ns, SHMND_WAY_TRIAL / 2);
            EQUAL(w->stays, SHMND_WAY_STAYS_LEAST);
            issue(w, &now, w->stays, ns, faster ? w->stays : 0);
            faster = !faster;
            ns[!faster] = ns[faster] * 2; /* what was measured before counts no more */
        }
    }
}

/* The time from trial to trial doubles up to its limit, and begins again after a change. */
static void trials_become_rare_while_they_agree(void)
{
    struct shmnd_ways ways = {0};
    struct shmnd_way *w = shmnd_way_of(&ways, RANGE);
    uint32_t ns[2] = {3000, 9000}, stays = SHMND_WAY_STAYS_LEAST;
    uint64_t now = 0;
    for (int trial = 0; trial < 9; trial++) {
        issue(w, &now, SHMND_WAY_TRIAL, ns, SHMND_WAY_TRIAL / 2);
        EQUAL(w->stays, stays);
        issue(w, &now, stays, ns, 0);
        stays = stays < SHMND_WAY_STAYS_MOST ? 2 * stays : stays;
    }
    EQUAL(stays, SHMND_WAY_STAYS_MOST);
    ns[0] = 12000;
    issue(w, &now, SHMND_WAY_TRIAL, ns, SHMND_WAY_TRIAL / 2);
    EQUAL(w->stays, SHMND_WAY_STAYS_LEAST);
    issue(w, &now, w->stays, ns, w->stays);
}

/* A pause of the program in one block of each way decides nothing. */
static void a_pause_is_not_taken_for_a_slow_way(void)
{
    for (uint32_t slow = 0; slow < 4; slow++) {
        struct shmnd_ways ways = {0};
        struct shmnd_way *w = shmnd_way_of(&ways, RANGE);
        const uint32_t ns[2] = {9000, 3000};
        uint64_t now = 0;
        for (uint32_t block = 0; block < 4; block++) {
            issue(w, &now, SHMND_WAY_BLOCK / 2, ns, block % 2 ? SHMND_WAY_BLOCK / 2 : 0);
            now += block == slow ? 1u << 30 : 0;
            issue(w, &now, SHMND_WAY_BLOCK / 2, ns, block % 2 ? SHMND_WAY_BLOCK / 2 : 0);
        }
        CHECK(shmnd_way_is_kernel(w));
    }
}

/* The first messages of a block wait for those that went the other way. */
static void the_beginning_of_a_block_is_not_timed(void)
{
    struct shmnd_ways ways = {0};
    struct shmnd_way *w = shmnd_way_of(&ways, RANGE);
    const uint32_t settling[2] = {0, 1000000}, ns[2] = {9000, 8000};
    uint64_t now = 0;
    for (uint32_t block = 0; block < 4; block++) {
        uint32_t rest = SHMND_WAY_BLOCK - SHMND_WAY_SETTLES + 1;
        issue(w, &now, SHMND_WAY_SETTLES - 1, settling, block % 2 ? SHMND_WAY_SETTLES - 1 : 0);
        issue(w, &now, rest, ns, block % 2 ? rest : 0);
    }
    CHECK(shmnd_way_is_kernel(w));
}

static void each_range_has_its_way(void)
{
    struct shmnd_ways ways = {0};
    CHECK(shmnd_way_of(&ways, 1) == &ways.ranges[0]);
    for (uint32_t i = 0; i < SHMND_WAYS_RANGES; i++) {
        CHECK(shmnd_way_of(&ways, (uint64_t)SHMND_WAYS_LEAST << i) == &ways.ranges[i]);
        CHECK(shmnd_way_of(&ways, ((uint64_t)SHMND_WAYS_LEAST << i) + 1) ==
              (i + 1 < SHMND_WAYS_RANGES ? &ways.ranges[i + 1] : NULL));
    }
}

static const struct check_test tests[] = {
    TEST(the_faster_way_is_taken_until_the_next_trial),
    TEST(trials_become_rare_while_they_agree),
    TEST(a_pause_is_not_taken_for_a_slow_way),
    TEST(the_beginning_of_a_block_is_not_timed),
    TEST(each_range_has_its_way),
};
MAIN(tests)
