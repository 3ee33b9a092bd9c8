/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks of the data plane, in nanoseconds. Neither enters the kernel.
 */
#ifndef SHMND_WIRE_CLOCK_H
#define SHMND_WIRE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t shmnd_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Cheap, with a resolution of a few milliseconds: for checks at every poll or copy. */
#define SHMND_COARSE_STEP_NS (10ull * 1000 * 1000) /* at most: a kernel of 100 Hz */
static inline uint64_t shmnd_coarse_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Makes every few milliseconds one call of many do periodic work, at the cost of a decrement a
 * call. After a call that found the coarse clock advanced, the next one checks it again; while the
 * clock stands still, the checks grow rarer, up to one in SHMND_PACE calls. All zeros: due at the
 * first call. */
#define SHMND_PACE 64u

struct shmnd_pace {
    uint32_t left, stride;
    uint64_t seen_ns;
};

static inline bool shmnd_pace_due(struct shmnd_pace *pace)
{
    if (__builtin_expect(pace->left != 0, 1)) {
        pace->left--;
        return false;
    }
    uint64_t now_ns = shmnd_coarse_ns();
    if (now_ns != pace->seen_ns)
        pace->stride = 0;
    else if (pace->stride < SHMND_PACE)
        pace->stride = pace->stride * 2 + 1;
    pace->seen_ns = now_ns;
    pace->left = pace->stride;
    return true;
}

#endif
