/* SPDX-License-Identifier: Apache-2.0
 *
 * The data segments of a peer that are mapped here, by their numbers.
 *
 * A number is never used again, so an adapter that allocates and frees large blocks for hours has
 * few segments with large numbers. They are in a table of open addressing: a segment is at its
 * number, masked, or as few places behind it as others allow. At most half of the places are in
 * use, so a search ends; consecutive numbers, which are the usual ones, do not collide.
 *
 * All functions run under the interpreter's lock (objects.h): copies without it use addresses that
 * were resolved before. The table is the caller's memory.
 */
#ifndef SHMND_ENGINE_SEGMENTS_H
#define SHMND_ENGINE_SEGMENTS_H

#include "engine/objects.h"

/* Return the mapping of a data segment, or NULL. The peer chooses the number, which may be any. */
static inline struct shmnd_mapping *shmnd_peer_segment(const struct shmnd_peer *peer,
                                                       uint32_t segment)
{
    if (!peer->data)
        return NULL;
    for (uint32_t at = segment & peer->data_mask; peer->data[at].base;
         at = (at + 1) & peer->data_mask)
        if (peer->data[at].segment == segment)
            return &peer->data[at];
    return NULL;
}

/* Return whether the table must grow before another segment is added. */
static inline bool shmnd_peer_is_crowded(const struct shmnd_peer *peer)
{
    return !peer->data || 2 * (peer->data_count + 1) > peer->data_mask + 1;
}

/* Add a segment whose number the table does not hold. The table has a free place. */
static inline void shmnd_peer_add_segment(struct shmnd_peer *peer, const struct shmnd_mapping *m)
{
    uint32_t at = m->segment & peer->data_mask;
    while (peer->data[at].base)
        at = (at + 1) & peer->data_mask;
    peer->data[at] = *m;
    peer->data_count++;
}

/* Move all segments to a larger table of zeros and return the old table. */
static inline struct shmnd_mapping *
shmnd_peer_move_segments(struct shmnd_peer *peer, struct shmnd_mapping *table, uint32_t places)
{
    struct shmnd_mapping *old = peer->data;
    uint32_t count = old ? peer->data_mask + 1 : 0;
    peer->data = table;
    peer->data_mask = places - 1;
    peer->data_count = 0;
    for (uint32_t at = 0; at < count; at++)
        if (old[at].base)
            shmnd_peer_add_segment(peer, &old[at]);
    return old;
}

/* Remove a segment. Move segments behind it that it kept from their own place closer to that
 * place. */
static inline void shmnd_peer_remove_segment(struct shmnd_peer *peer, uint32_t segment)
{
    struct shmnd_mapping *found = shmnd_peer_segment(peer, segment);
    if (!found)
        return;
    uint32_t mask = peer->data_mask, hole = (uint32_t)(found - peer->data);
    for (uint32_t at = (hole + 1) & mask; peer->data[at].base; at = (at + 1) & mask) {
        uint32_t from_home = (at - peer->data[at].segment) & mask;
        if (from_home < ((at - hole) & mask))
            continue;
        peer->data[hole] = peer->data[at];
        hole = at;
    }
    peer->data[hole].base = NULL;
    peer->data_count--;
}

#endif
