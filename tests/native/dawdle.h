/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that yield, or sleep a little, at the kill points of the headers: windows of nanoseconds
 * become long enough for other threads to run in them.
 *
 * To be included before the headers, by one file of a program.
 */
#ifndef SHMND_TEST_DAWDLE_H
#define SHMND_TEST_DAWDLE_H

#include <sched.h>
#include <time.h>

#include "check.h"

#define SHMND_KILL_POINTS

/* One step in so many; 0: none. Set while no other thread runs. */
static uint64_t dawdle_one_in;

static _Thread_local struct chance dawdle_chance;

void shmnd_kill_point(const char *name);
void shmnd_kill_point(const char *name)
{
    struct chance *c = &dawdle_chance;
    (void)name;
    if (!dawdle_one_in)
        return;
    if (!c->state)
        c->state = (uint64_t)(uintptr_t)c; /* a different seed in each thread */
    if (chance_below(c, dawdle_one_in))
        return;
    if (chance_below(c, 2))
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = (long)chance_below(c, 300000)}, NULL);
}

#endif
