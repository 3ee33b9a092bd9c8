/* SPDX-License-Identifier: Apache-2.0
 *
 * The offsets and sizes of the parts of a link segment, computed from the numbers that both ends
 * agreed on at rendezvous. Each end computes them by itself and reads none of them from the link.
 */
#ifndef SHMND_WIRE_LINK_MAP_H
#define SHMND_WIRE_LINK_MAP_H

#include "wire/layout.h"

struct shmnd_link_map {
    uint64_t side_off[2];
    uint64_t ring_off[2]; /* messages sent by that side */
    uint32_t ring_mask[2];
    uint64_t posted_off[2];
    uint32_t posted_mask[2];
    uint32_t posted_stride[2];
    uint64_t listed_off[2];
    uint32_t listed_mask[2];
    uint32_t listed_stride[2];
    uint64_t bounce_off[2]; /* areas of that side, for what it sends */
    uint64_t committed;     /* bytes that are committed when the link is made */
    uint64_t bytes;
};

static inline uint32_t shmnd_posted_stride(uint32_t extents)
{
    return (uint32_t)(sizeof(struct shmnd_posted) + extents * sizeof(struct shmnd_shared_extent));
}

static inline uint32_t shmnd_listed_stride(uint32_t elements)
{
    return (uint32_t)(sizeof(struct shmnd_listed) + elements * sizeof(struct shmnd_shared_extent));
}

static inline uint32_t shmnd_pow2_at_least(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p <<= 1;
    return p;
}

/* Place an array of `entries` at offset `at` and return the offset of its end. */
static inline uint64_t shmnd_link_array(uint64_t at, uint32_t entries, uint32_t stride,
                                        uint64_t *off_p, uint32_t *mask_p, uint32_t *stride_p)
{
    uint32_t count = shmnd_pow2_at_least(entries ? entries : 1);
    *off_p = at;
    *mask_p = count - 1;
    *stride_p = stride;
    return at + (((uint64_t)count * stride + 127) & ~127ull);
}

/* Return the number of ring slots from an end with `requests` requests to one with `receives`
 * receives; 0 receives means a shared receive queue. If a message of one slot arrives for each of
 * `receives` receives, three quarters of the ring hold them all, since up to a quarter may not be
 * returned. */
static inline uint32_t shmnd_ring_slots(uint32_t receives, uint32_t requests)
{
    uint32_t usual = shmnd_pow2_at_least(4 * (receives ? receives : requests));
    usual = usual < SHMND_RING_LEAST ? SHMND_RING_LEAST : usual;
    usual = usual > SHMND_RING_USUAL ? SHMND_RING_USUAL : usual;
    uint32_t least = shmnd_pow2_at_least(receives + receives / 3 + 1);
    return usual > least ? usual : least;
}

/* Compute the slots of both rings from the other numbers. */
static inline void shmnd_link_rings(struct shmnd_link_shape *shape)
{
    for (int side = 0; side < 2; side++)
        shape->slots[side] = shmnd_ring_slots(shape->receives[1 - side], shape->requests[side]);
}

/* Return all offsets, computed from the numbers that both ends agreed on. */
static inline struct shmnd_link_map shmnd_link_map(const struct shmnd_link_shape *shape)
{
    struct shmnd_link_map map;
    uint64_t at = sizeof(struct shmnd_link_header);
    for (int side = 0; side < 2; side++) {
        map.side_off[side] = at;
        at += sizeof(struct shmnd_side) + 128; /* a gap: the sides never share a pair of lines */
    }
    for (int side = 0; side < 2; side++) {
        map.ring_off[side] = at;
        map.ring_mask[side] = shape->slots[side] - 1;
        at += (uint64_t)shape->slots[side] * SHMND_SLOT_BYTES;
    }
    for (int side = 0; side < 2; side++) {
        at = shmnd_link_array(at, shape->receives[side], shmnd_posted_stride(shape->extents[side]),
                              &map.posted_off[side], &map.posted_mask[side],
                              &map.posted_stride[side]);
        at = shmnd_link_array(at, shape->requests[side], shmnd_listed_stride(shape->elements[side]),
                              &map.listed_off[side], &map.listed_mask[side],
                              &map.listed_stride[side]);
    }
    map.committed = (at + 4095) & ~4095ull;
    for (int side = 0; side < 2; side++)
        map.bounce_off[side] = map.committed + (uint64_t)side * SHMND_BOUNCE_BYTES;
    map.bytes = map.committed + 2 * SHMND_BOUNCE_BYTES;
    return map;
}

#endif
