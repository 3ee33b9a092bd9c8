/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters of a queue pair, which other processes can read while its process works,
 * hangs, or is stopped. A reader needs no cooperation of the owner and never delays it.
 *
 * Each word has one writer, which stores it relaxed where it changes the private number
 * that the word mirrors. For a message that is a store or two to a line that no other
 * process writes and that is in this core's cache unless a reader has just loaded it; there
 * is no fence, no lock, and no test whether there is a reader.
 *
 * Each word is correct at some moment by itself; two words need not be of the same moment.
 * But since a set of counters is reused, a reader must not mix the words of two uses:
 *
 * Argument for SYNC counters. The owner clears the name before it writes the words of another
 * use, with a fence between, and stores the new name after them with release. A reader loads
 * the name with acquire, loads the words, fences, and loads the name again. Two equal names
 * other than 0 mean that all words between belong to that use, since a name never returns. If
 * the owner dies in between, the name is 0 or the set is complete. Serves invariant 1: the
 * owner bases no decision on the shared words.
 */
#ifndef SHMND_ENGINE_COUNTERS_H
#define SHMND_ENGINE_COUNTERS_H

#include <string.h>

#include "wire/layout.h"

/* ---- the owner ----------------------------------------------------------------------- */

static inline void shmnd_counters_add(shmnd_word64 *w, uint64_t n)
{
    /* relaxed, and in two steps: the word has no other writer */
    shmnd_put64(w, shmnd_relaxed64(w) + n);
}

/* End the current use of the set. */
static inline void shmnd_counters_close(struct shmnd_counters *t)
{
    shmnd_put64(&t->name, 0);
    /* SYNC counters: fence, pairs with the fence in shmnd_counters_unchanged() */
    shmnd_stores_before();
}

/* Clear the set for another use. The caller fills in the identity of that use, then names it. */
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

/* Return the name of the current use; 0: the set is free. */
static inline uint64_t shmnd_counters_name(const struct shmnd_counters *t)
{
    /* SYNC counters: acquire, pairs with release in shmnd_counters_open() */
    return shmnd_acquire64(&t->name);
}

/* Return whether the set has belonged to the use `name` since its words were read. For a reader,
 * after reading. */
static inline bool shmnd_counters_unchanged(const struct shmnd_counters *t, uint64_t name)
{
    /* SYNC counters: fence, pairs with the fence in shmnd_counters_close() */
    shmnd_loads_before();
    return shmnd_relaxed64(&t->name) == name;
}

/* Copy the words of the set to `out`. Return false if it is free, or its use has changed
 * meanwhile. */
static inline bool shmnd_counters_read(const struct shmnd_counters *t, uint64_t *out)
{
    const shmnd_word64 *words = (const shmnd_word64 *)t;
    uint64_t name = shmnd_counters_name(t);
    for (size_t i = 0; i < sizeof *t / sizeof words[0]; i++)
        out[i] = shmnd_relaxed64(&words[i]);
    return name != 0 && shmnd_counters_unchanged(t, name);
}

#endif
