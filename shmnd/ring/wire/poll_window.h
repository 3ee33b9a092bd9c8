/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps, learned from the waits before it. Private memory of one
 * waiter: a wrong guess costs time and nothing else.
 *
 * Two things are learned.
 *
 * 1. How long waits last. Where both sides sleep at each message, a wait lasts as long as the
 *    other's wake-up, so that the polls that failed say little. Long waits poll for an eighth of
 *    the window.
 * 2. Whether polls keep from running what they wait for. With more processes than CPUs the peer
 *    gets one once the waiter sleeps: the whole window fails, and the message comes soon after.
 *    Such a wait loses a window, and a message found by polling saves a wake-up. After some losses
 *    the next waits sleep at once. Then a few try again, for two windows, as a peer that sleeps as
 *    well needs its own wake-up to answer.
 */
#ifndef SHMND_WIRE_POLL_WINDOW_H
#define SHMND_WIRE_POLL_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SHMND_WINDOW_LONG = 6,     /* waits longer than so many windows are long */
    SHMND_WINDOW_LONGEST = 20, /* a wait counts for at most so many */
    SHMND_WINDOW_SOON = 4,     /* a message comes soon after the polls if within so many */
    SHMND_WINDOW_LOSSES = 8,   /* after so many lost windows waits sleep at once, */
    SHMND_WINDOW_TRIES = 4,    /* and after so many more do so again */
    SHMND_WAKE_UP_NS = 8000,   /* about what a message found by polling saves */
    SHMND_FEWEST_SLEEPS = 16,  /* so many waits sleep at once at first, */
    SHMND_MOST_SLEEPS = 256,   /* twice as many after tries that failed, up to so many */
};

/* All zero at first. */
typedef struct shmnd_poll_window {
    uint64_t wait_ns;  /* the length of the last waits: a moving average */
    uint64_t given_ns; /* for how long the last wait was to poll */
    uint64_t lost_ns;  /* by polls that failed just before a message came, less what others saved */
    uint32_t sleeps;   /* so many of the next waits sleep at once */
    uint32_t series;   /* the length of the last series of them; 0: polling is worth its time */
} shmnd_poll_window;

/* Return the nanoseconds for which the next wait polls: `spin_ns`, and `growth` times as long as
 * waits last, unless experience is against it. */
static inline uint64_t shmnd_window_next(shmnd_poll_window *w, uint64_t spin_ns, uint32_t growth)
{
    if (w->wait_ns > SHMND_WINDOW_LONG * spin_ns) {
        w->given_ns = spin_ns / 8;
    } else if (w->sleeps) {
        w->sleeps--;
        w->given_ns = 0;
    } else {
        w->given_ns = (w->series ? 2 * spin_ns : spin_ns) + growth * w->wait_ns;
    }
    return w->given_ns;
}

/* Note a wait that ended while it polled. */
static inline void shmnd_window_hit(shmnd_poll_window *w)
{
    w->wait_ns -= w->wait_ns / 4;
    w->sleeps = 0;
    if (w->lost_ns > SHMND_WAKE_UP_NS) {
        w->lost_ns -= SHMND_WAKE_UP_NS;
    } else {
        w->lost_ns = 0;
        w->series = 0;
    }
}

/* Note a wait that polled in vain and whose message came soon after. */
static inline void shmnd_window_lost(shmnd_poll_window *w, uint64_t spin_ns)
{
    w->lost_ns += spin_ns;
    if (w->lost_ns < SHMND_WINDOW_LOSSES * spin_ns)
        return;
    w->lost_ns = (SHMND_WINDOW_LOSSES - SHMND_WINDOW_TRIES) * spin_ns;
    if (w->series == 0)
        w->series = SHMND_FEWEST_SLEEPS;
    else if (w->series < SHMND_MOST_SLEEPS)
        w->series *= 2;
    w->sleeps = w->series;
}

/* Note a wait that ended after `ns`, which includes its sleep if there was one; `found`: with a
 * message. */
static inline void shmnd_window_count(shmnd_poll_window *w, uint64_t spin_ns, uint64_t ns,
                                      bool found)
{
    const uint64_t longest = SHMND_WINDOW_LONGEST * spin_ns;
    if (found && ns <= w->given_ns) {
        shmnd_window_hit(w);
        return;
    }
    w->wait_ns = (3 * w->wait_ns + (ns < longest ? ns : longest)) / 4;
    if (found && w->given_ns >= spin_ns && ns - w->given_ns < SHMND_WINDOW_SOON * spin_ns)
        shmnd_window_lost(w, spin_ns);
}

#endif
