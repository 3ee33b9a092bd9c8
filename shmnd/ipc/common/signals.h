/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers that are signalled to a listener: bits that any number of notifiers set and that
 * the listener takes. The same number twice is one; none is lost.
 *
 * Argument (SYNC signal). A notifier sets the bit of the number, then the bit of its word
 * in `words`. The listener clears `words` first, then takes the bits of each word that was
 * marked. A bit that is set after its word was taken is marked after `words` was cleared,
 * so the next poll finds it. Each step is one read-modify-write: a notifier that dies
 * before the mark has signalled nothing, or what the next mark of that word shows.
 */
#ifndef SHMND_IPC_SIGNALS_H
#define SHMND_IPC_SIGNALS_H

#include "wire/kill_point.h"
#include "wire/atomics.h"

#define SHMND_SIGNAL_WORDS 64u
#define SHMND_SIGNALS (SHMND_SIGNAL_WORDS * 64u)

struct shmnd_signals {
    shmnd_word64 words; /* which of `bits` have something */
    char pad[56];
    shmnd_word64 bits[SHMND_SIGNAL_WORDS];
};

_Static_assert(sizeof(struct shmnd_signals) == 576, "ABI of a listener's page");

static inline void shmnd_signal(struct shmnd_signals *s, uint32_t number)
{
    uint32_t word = number / 64 % SHMND_SIGNAL_WORDS;
    /* SYNC signal: pairs with the taking of the bits in shmnd_signals_take() */
    shmnd_set_bits(&s->bits[word], 1ull << number % 64);
    SHMND_KILL_POINT("signal-set");
    /* SYNC signal: pairs with the clearing of the marks in shmnd_signals_marked() */
    shmnd_set_bits(&s->words, 1ull << word);
    SHMND_KILL_POINT("signal-marked");
}

/* Clear the marks and return them: a bit for each word to take. For the listener alone. */
static inline uint64_t shmnd_signals_marked(struct shmnd_signals *s)
{
    /* needs no order: without a mark the listener arms its gate, and polls again */
    if (shmnd_relaxed64(&s->words) == 0)
        return 0;
    /* SYNC signal: pairs with the mark in shmnd_signal() */
    return shmnd_clear_bits(&s->words, ~0ull);
}

static inline uint64_t shmnd_signals_take(struct shmnd_signals *s, uint32_t word)
{
    /* SYNC signal: pairs with the bit in shmnd_signal() */
    return shmnd_clear_bits(&s->bits[word % SHMND_SIGNAL_WORDS], ~0ull);
}

#endif
