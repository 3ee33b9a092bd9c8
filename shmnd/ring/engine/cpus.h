/* SPDX-License-Identifier: Apache-2.0
 *
 * Polling on a single CPU: the process that a poller waits for may have the same CPU, and then runs
 * only when the poller yields.
 */
#ifndef SHMND_ENGINE_CPUS_H
#define SHMND_ENGINE_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* Return whether the calling thread may run on one CPU only: it is pinned, or there is one CPU. */
static inline bool shmnd_on_one_cpu(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

/* Let another process that waits for this CPU run. */
static inline void shmnd_yield(void)
{
    sched_yield();
}

#endif
