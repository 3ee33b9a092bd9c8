/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping at a word of shared memory, and waking the threads that sleep there (futex). This is the
 * system's part of the bells of completion queues and of the gates of `shmnd.ipc`. It holds no
 * order of its own.
 */
#ifndef SHMND_WIRE_FUTEX_H
#define SHMND_WIRE_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while the word is `seen`, until a wake-up, a signal, or for `ns`. Return true if `ns` have
 * passed. */
static inline bool shmnd_futex_sleep(const void *word, uint32_t seen, uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0) < 0 && errno == ETIMEDOUT;
}

/* Wake up to `most` threads that sleep at the word and return how many there were. */
static inline long shmnd_futex_wake(const void *word, int most)
{
    return syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}

#endif
