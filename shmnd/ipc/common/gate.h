/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate: the word at which processes sleep until another one has changed something.
 *
 * Bit 0 says that a process may sleep at it (by futex), bit 1 that a descriptor is to be
 * rung; the rest counts changes, so that a sleeper which comes late does not sleep.
 *
 *   sleeper                              waker
 *     arm: set the bit, fence              change, fence
 *     poll: found? do not sleep            bit set? count one up, and wake
 *     sleep, if the word is as armed
 *
 * Argument for "no lost wake-up" (SYNC gate): a full fence on either side, so the sleeper
 * finds the change or the waker finds the bit. A bit stays set until a waker has woken
 * no process by it, so a sleeper that dies costs one idle wake-up. A waker that dies between
 * its change and the wake-up, and a sleeper that dies after it was chosen, are what no
 * word can show: a sleep by futex ends after SHMND_GATE_NS in any case, and a longer one is by
 * descriptor, which also watches the processes (ringing.py).
 *
 * A member that joins publishes that it is there, and rings those that sleep by descriptor, so that
 * they watch it (SYNC join): a full fence on either side, so the sleeper finds the member or
 * the member finds the sleeper's address.
 */
#ifndef SHMND_IPC_GATE_H
#define SHMND_IPC_GATE_H

#include "wire/atomics.h"

#define SHMND_GATE_SLEEPER 1u
#define SHMND_GATE_DESCRIPTOR 2u
#define SHMND_GATE_ONE 4u
#define SHMND_GATE_NS (100u * 1000 * 1000)

static inline bool shmnd_gate_swap(shmnd_word32 *gate, uint32_t seen, uint32_t word)
{
    return shmnd_swap32(gate, &seen, word);
}

/* Arm a bit of the gate, and return the word to sleep on. The caller polls once more before it
 * sleeps. */
static inline uint32_t shmnd_gate_arm(shmnd_word32 *gate, uint32_t bit)
{
    uint32_t word = shmnd_relaxed32(gate);
    /* A descriptor's arming counts as a change, so that a waker does not clear it unseen. */
    uint32_t more = bit == SHMND_GATE_DESCRIPTOR ? SHMND_GATE_ONE : 0;
    while ((word & bit) == 0 || more) {
        uint32_t armed = (word | bit) + more;
        /* needs no order of its own, for the fence behind it */
        if (shmnd_gate_swap(gate, word, armed)) {
            word = armed;
            break;
        }
        word = shmnd_relaxed32(gate);
    }
    /* SYNC gate: fence, pairs with the fence in shmnd_gate_open() */
    /* SYNC join: fence, pairs with the fence in shmnd_gate_joined() */
    shmnd_store_then_load();
    return word;
}

/* Order the publication of a new member before its reads of which members it is to ring. */
static inline void shmnd_gate_joined(void)
{
    /* SYNC join: fence, pairs with the fence in shmnd_gate_arm() */
    shmnd_store_then_load();
}

/* Count a change that was stored before, if any bit is armed. Return the word to wake for, whose
 * bits name the kinds of sleepers; 0 if none sleep. */
static inline uint32_t shmnd_gate_open(shmnd_word32 *gate)
{
    /* SYNC gate: fence, pairs with the fence in shmnd_gate_arm() */
    shmnd_store_then_load();
    uint32_t word = shmnd_relaxed32(gate);
    while (word & (SHMND_GATE_SLEEPER | SHMND_GATE_DESCRIPTOR)) {
        uint32_t counted = word + SHMND_GATE_ONE;
        /* needs no order: the woken process polls the slots */
        if (shmnd_gate_swap(gate, word, counted))
            return counted;
        word = shmnd_relaxed32(gate);
    }
    return 0;
}

/* Clear a bit after a wake-up that woke no process, so that the next change need not try. Without
 * effect if the word has changed since. */
static inline void shmnd_gate_clear(shmnd_word32 *gate, uint32_t word, uint32_t bit)
{
    /* needs no order: a process that armed meanwhile changed the word, or polls the slots */
    (void)shmnd_gate_swap(gate, word, word & ~bit);
}

#endif
