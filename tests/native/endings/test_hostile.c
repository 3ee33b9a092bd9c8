/* SPDX-License-Identifier: Apache-2.0
 *
 * A hostile peer with random behaviour (hostile.h). SHMND_HOSTILE_RUNS sets the number of runs,
 * SHMND_HOSTILE_SEED the first seed.
 */
#include "hostile.h"

static void hostile_at_random(void)
{
    uint64_t runs = number_of("SHMND_HOSTILE_RUNS", 1500);
    uint64_t seed = number_of("SHMND_HOSTILE_SEED", 1);
    if (runs > 10000)
        alarm(0); /* a long run was requested */
    for (uint64_t run = seed; run < seed + runs; run++) {
        uint8_t bytes[1024];
        struct chance c = {run * 7919};
        NOTE("run %" PRIu64, run);
        size_t count = 64 + chance_below(&c, sizeof bytes - 64);
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)chance_next(&c);
        hostile_run(bytes, count);
    }
}

static const struct check_test tests[] = {TEST(hostile_at_random)};

MAIN(tests)
