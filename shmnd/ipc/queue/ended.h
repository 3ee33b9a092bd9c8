/* SPDX-License-Identifier: Apache-2.0
 *
 * The streams that a client reads no more: a bit for the number of each request, modulo
 * SHMND_QUEUE_ENDED, on the client's page in the queue of its answers.
 *
 * The client alone writes the words. It gives no request a number whose bit is set, so the bit of
 * a request under way means that request. A server trusts nothing in them: what it reads ends, at
 * worst, a stream of this client.
 *
 * No order is needed but for a server that sleeps until the client takes a value. The bit is a
 * change at the gate of room (gate.h): the client sets it before it opens the gate, and the server
 * reads it after it has armed the gate, so it finds the bit or is woken. A client that dies between
 * the two wakes the server by its death.
 */
#ifndef SHMND_IPC_ENDED_H
#define SHMND_IPC_ENDED_H

#include "queue_layout.h"

static inline void shmnd_stream_mark(struct shmnd_queue_member *me, uint64_t number, bool ended)
{
    shmnd_word64 *word = &me->ended[number % SHMND_QUEUE_ENDED / 64];
    uint64_t bit = 1ull << number % 64, now = shmnd_relaxed64(word);
    shmnd_put64(word, ended ? now | bit : now & ~bit);
}

static inline bool shmnd_stream_is_marked(const struct shmnd_queue_member *page, uint64_t number)
{
    return shmnd_relaxed64(&page->ended[number % SHMND_QUEUE_ENDED / 64]) >> number % 64 & 1;
}

#endif
