/* SPDX-License-Identifier: Apache-2.0
 *
 * Arming and ready bits: how a producer learns that a consumer is to be woken,
 * and how a consumer learns which of many links have a message.
 *
 * shmnd_bell_must_ring() and shmnd_bell_mark_ready() are for producers, of which there may be
 * any number; the other functions are for the one consumer, which serialises its own
 * threads. None of them waits.
 *
 * Argument for "no lost wake-up". The consumer arms, then checks its rings;
 * the producer publishes, then checks the arming. Both execute a full fence in
 * between (SYNC arm), so at least one of the two sees the other's store: either
 * the consumer finds the message, or the producer finds the consumer armed.
 * The same argument holds for the ready bits (SYNC ready): a producer that finds
 * its bit already set leaves it; the consumer clears the bits before it checks
 * the rings, so it finds every message published before the bit was cleared.
 *
 * Only the consumer arms and disarms: peers map the bell read-only, so no peer can
 * keep another from waking the consumer. A producer that dies after it found the
 * bell armed and before it rings has disarmed nothing: the next producer rings. A bit
 * is not a count, so a producer that dies after setting it costs one poll in vain.
 *
 * A sender whose message needs a call of its reader also sets `asked` (SYNC asked), fences,
 * and rings if the queue is armed in any mode. A reader that polls another queue checks the
 * word every few milliseconds; a reader that sleeps for another event has armed the queue,
 * fenced and checked the word. So at least one of the two sees the other's store. The reader
 * clears the word, fences and then checks the rings; a sender that finds `asked` set leaves
 * it, as it leaves a bit.
 *
 * A consumer may sleep at `rings` in place of its descriptors (SYNC word), which takes fewer system
 * calls. It loads the word, arms, checks its rings, and sleeps while the word is as loaded: the
 * kernel compares under the lock that a wake-up takes. A producer that finds the bell armed so adds
 * one, and then wakes. It has read an `armed` that was stored behind the load, so it changes the
 * word as loaded: before the comparison, which fails then, or behind it, and the wake-up finds the
 * sleeper. A producer that dies in between, or a hostile peer that sets the word back, delays the
 * consumer to the end of that sleep, which is short.
 *
 * A hostile peer that clears the bits of others only delays them: the consumer polls all
 * links before it sleeps, when it wakes, and periodically in between.
 * Serves invariants 3 and 5.
 */
#ifndef SHMND_WIRE_BELL_H
#define SHMND_WIRE_BELL_H

#include "wire/layout.h"

/* The consumer's private view of its bell. */
struct shmnd_arming {
    struct shmnd_bell *bell;
    struct shmnd_marks *marks;
    uint64_t number;
    uint32_t mode; /* with SHMND_ARMED_AT_WORD, while a thread sleeps there */
};

static inline void shmnd_bell_arm(struct shmnd_arming *a, uint32_t mode)
{
    a->mode = mode;
    a->number++;
    shmnd_put64(&a->bell->armed, a->number << 3 | mode);
    /* SYNC arm: fence, pairs with the fence in shmnd_bell_must_ring() */
    shmnd_store_then_load();
    SHMND_KILL_POINT("bell-armed");
}

static inline void shmnd_bell_disarm(struct shmnd_arming *a)
{
    a->mode = SHMND_ARMED_NOT;
    /* relaxed: a producer that still sees it armed rings once too often */
    shmnd_put64(&a->bell->armed, a->number << 3);
    SHMND_KILL_POINT("bell-disarmed");
}

/* Arm the bell for a consumer that is about to sleep at the word, and return the value of the word.
 * The consumer checks its rings afterwards, and sleeps while the word has that value. */
static inline uint32_t shmnd_bell_arm_at_word(struct shmnd_arming *a)
{
    /* SYNC word: acquire before `armed`, pairs with the addition in shmnd_bell_change_word() */
    uint32_t rings = shmnd_acquire32(&a->marks->rings);
    shmnd_bell_arm(a, SHMND_ARMED_ANY | SHMND_ARMED_AT_WORD);
    return rings;
}

/* Change the word. For a producer that found the bell armed at it, or a thread of the consumer. The
 * caller wakes the sleeper afterwards. */
static inline void shmnd_bell_change_word(struct shmnd_marks *marks)
{
    /* SYNC word: acquire and release behind `armed`, pairs with shmnd_bell_arm_at_word() */
    (void)shmnd_add32(&marks->rings, 1);
    SHMND_KILL_POINT("word-changed");
}

/* Return whether a producer must ring, after its fence. True once for each arming; `rung` is the
 * producer's private copy of the last arming for which it rang. */
static inline bool shmnd_bell_must_ring(const struct shmnd_bell *bell, bool solicited,
                                        uint64_t *rung)
{
    /* SYNC arm: the caller's fence pairs with the fence in shmnd_bell_arm() */
    uint64_t armed = shmnd_relaxed64(&bell->armed);
    uint32_t mode = (uint32_t)(armed & SHMND_ARMED_MASK);
    if (mode == SHMND_ARMED_NOT || armed == *rung)
        return false;
    if (mode == SHMND_ARMED_ASKED || (mode == SHMND_ARMED_SOLICITED && !solicited))
        return false;
    *rung = armed;
    SHMND_KILL_POINT("bell-wanted");
    return true;
}

/* Request a poll at the consumer's next call, of whatever kind. Return true if the consumer sleeps,
 * and the producer must ring. For a producer, after its fence. */
static inline bool shmnd_bell_request_poll(const struct shmnd_bell *bell, struct shmnd_marks *marks,
                                           uint64_t *rung)
{
    /* SYNC asked: the caller's fence pairs with the fence in shmnd_marks_accept_request() */
    if (!shmnd_relaxed32(&marks->asked)) {
        shmnd_put32(&marks->asked, 1);
        SHMND_KILL_POINT("asked");
        /* SYNC asked: fence, pairs with the fence in shmnd_bell_arm() */
        shmnd_store_then_load();
    }
    uint64_t armed = shmnd_relaxed64(&bell->armed);
    if ((armed & SHMND_ARMED_MASK) == SHMND_ARMED_NOT || armed == *rung)
        return false;
    *rung = armed;
    return true;
}

/* Return whether a producer has set `asked`. For the consumer. */
static inline bool shmnd_marks_poll_requested(const struct shmnd_marks *marks)
{
    /* relaxed: only a hint, shmnd_marks_accept_request() orders what follows */
    return shmnd_relaxed32(&marks->asked);
}

/* Clear `asked`. The consumer checks all its rings afterwards. */
static inline void shmnd_marks_accept_request(struct shmnd_marks *marks)
{
    if (!shmnd_marks_poll_requested(marks))
        return;
    shmnd_put32(&marks->asked, 0);
    SHMND_KILL_POINT("poll-request-accepted");
    /* SYNC asked: fence, pairs with the producer's in shmnd_bell_request_poll() */
    shmnd_store_then_load();
}

/* Mark the link if the consumer uses the bitmap. For a producer, after its fence. */
static inline void shmnd_bell_mark_ready(const struct shmnd_bell *bell, struct shmnd_marks *marks,
                                         uint32_t bit)
{
    /* SYNC ready: the caller's fence pairs with shmnd_bell_use_bitmap() */
    if (!shmnd_relaxed32(&bell->use_bitmap))
        return;
    shmnd_word64 *word = &marks->ready[bit / 64 % SHMND_READY_WORDS];
    uint64_t mask = 1ull << (bit % 64);
    /* SYNC ready: the caller's fence pairs with the fence in shmnd_marks_clear() */
    if (!(shmnd_relaxed64(word) & mask))
        shmnd_set_bits(word, mask);
    SHMND_KILL_POINT("ready-marked");
}

static inline void shmnd_bell_use_bitmap(struct shmnd_bell *bell, bool use)
{
    shmnd_put32(&bell->use_bitmap, use);
    /* SYNC ready: fence, pairs with the producer's; the caller then polls all links once */
    shmnd_store_then_load();
}

/* Clear `bits` of one word; the caller checks those rings afterwards. */
static inline void shmnd_marks_clear(struct shmnd_marks *marks, uint32_t word, uint64_t bits)
{
    /* needs no order of its own, for the fence behind it */
    shmnd_clear_bits(&marks->ready[word], bits);
    SHMND_KILL_POINT("ready-taken");
    /* SYNC ready: fence, pairs with the producer's in shmnd_bell_mark_ready() */
    shmnd_store_then_load();
}

/* Set the bit of a link that is polled anyway, so that its producer need not write it. */
static inline void shmnd_marks_set(struct shmnd_marks *marks, uint32_t bit)
{
    /* needs no order: the link is polled anyway */
    shmnd_set_bits(&marks->ready[bit / 64 % SHMND_READY_WORDS], 1ull << (bit % 64));
}

#endif
