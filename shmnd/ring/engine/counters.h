/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping a set of counters: what others may read of a queue pair while it works, hangs, or is
 * stopped. A reader asks nobody and holds nobody up.
 *
 * Each word has one writer, who stores it relaxed where it changes the number that it
 * keeps for itself. On the way of a message that is a store or two to a line that no
 * other process writes and that is in this core's cache unless somebody has just
 * looked; there is no fence, no lock, and no question whether anybody looks.
 *
 * Words are true one by one, as of some moment each; two of them need not be of the
 * same one. Only whose words they are must not be mixed up, for a set of counters is used again:
 *
 * Argument for SYNC counters. The name is taken away before the words of another use are
 * written, with a fence between, and given after them, with release. A reader takes
 * the name with acquire, reads, fences, and takes it again: two equal names that are
 * not 0 mean that all words between are of that one use, since no name comes twice. A
 * death in between leaves a name of 0, or a set of counters that is whole. Serves invariant 1:
 * the owner decides nothing by what stands here.
 */
#ifndef SHMND_ENGINE_COUNTERS_H
#define SHMND_ENGINE_COUNTERS_H

#include <string.h>

#include "wire/layout.h"

/* ---- the owner ----------------------------------------------------------------------- */

static inline void shmnd_counters_add(shmnd_word64 *w, uint64_t n)
{
    /* relaxed, and in two steps: nobody else writes it */
    shmnd_put64(w, shmnd_relaxed64(w) + n);
}

/* Nobody is counted here any more. */
static inline void shmnd_counters_close(struct shmnd_counters *t)
{
    shmnd_put64(&t->name, 0);
    /* SYNC counters: fence, pairs with the fence in shmnd_counters_still() */
    shmnd_stores_before();
}

/* Empties it for another use. The caller writes what is known of that, then names it. */
static inline void shmnd_counters_clear(struct shmnd_counters *t)
{
    shmnd_counters_close(t);
    shmnd_word64 *words = (shmnd_word64 *)t;
    for (size_t i = 0; i < sizeof *t / sizeof words[0]; i++)
        shmnd_put64(&words[i], 0);
}

static inline void shmnd_counters_open(struct shmnd_counters *t, uint64_t name)
{
    /* SYNC counters: release, pairs with acquire in shmnd_counters_name() */
    shmnd_release64(&t->name, name);
}

/* ---- a reader ------------------------------------------------------------------------ */

/* Whose counters it is; 0: nobody's. */
static inline uint64_t shmnd_counters_name(const struct shmnd_counters *t)
{
    /* SYNC counters: acquire, pairs with release in shmnd_counters_open() */
    return shmnd_acquire64(&t->name);
}

/* After reading: was it that one's all the time? */
static inline bool shmnd_counters_still(const struct shmnd_counters *t, uint64_t name)
{
    /* SYNC counters: fence, pairs with the fence in shmnd_counters_close() */
    shmnd_loads_before();
    return shmnd_relaxed64(&t->name) == name;
}

/* Copies the words out. False: it is nobody's, or was given to another one meanwhile. */
static inline bool shmnd_counters_read(const struct shmnd_counters *t, uint64_t *out)
{
    const shmnd_word64 *words = (const shmnd_word64 *)t;
    uint64_t name = shmnd_counters_name(t);
    for (size_t i = 0; i < sizeof *t / sizeof words[0]; i++)
        out[i] = shmnd_relaxed64(&words[i]);
    return name != 0 && shmnd_counters_still(t, name);
}

#endif
