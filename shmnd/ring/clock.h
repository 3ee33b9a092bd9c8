/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks of the data plane, in nanoseconds. Neither enters the kernel.
 */
#ifndef SHMND_CLOCK_H
#define SHMND_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t shmnd_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Cheap and a few milliseconds coarse: for what is asked at every poll or copy. */
#define SHMND_COARSE_STEP_NS (10ull * 1000 * 1000) /* at most: a kernel of 100 Hz */
static inline uint64_t shmnd_coarse_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

#endif
