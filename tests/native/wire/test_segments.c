/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a peer's data segments: numbers that collide, that are near the end of all numbers,
 * and that are removed in any order, compared with a plain list.
 */
#include "world.h"

#define LIVING 40u
#define STEPS 20000u

static uint8_t memory[LIVING];

struct list {
    struct shmnd_peer peer;
    uint32_t segment[LIVING];
    uint32_t count;
};

static void add(struct list *l, uint32_t segment)
{
    struct shmnd_mapping m = {.base = &memory[l->count], .bytes = segment, .segment = segment};
    if (shmnd_peer_is_crowded(&l->peer)) {
        uint32_t places = l->peer.data ? 2 * (l->peer.data_mask + 1) : 2;
        free(shmnd_peer_move_segments(&l->peer, calloc(places, sizeof m), places));
    }
    shmnd_peer_add_segment(&l->peer, &m);
    l->segment[l->count++] = segment;
}

static bool has(const struct list *l, uint32_t segment)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->segment[i] == segment)
            return true;
    return false;
}

static void check(const struct list *l)
{
    EQUAL(l->peer.data_count, l->count);
    for (uint32_t i = 0; i < l->count; i++) {
        const struct shmnd_mapping *m = shmnd_peer_segment(&l->peer, l->segment[i]);
        CHECK(m && m->segment == l->segment[i] && m->bytes == l->segment[i]);
    }
}

/* Numbers that begin at the same few places of the table, and consecutive ones. */
static void numbers_are_found_until_they_are_removed(void)
{
    static const uint32_t spreads[] = {1, 16, 64, 1u << 20};
    for (int k = 0; k < 4; k++) {
        struct list l = {0};
        uint32_t seed = 7 + (uint32_t)k, next = SHMND_FIRST_MARKS_SEGMENT - 1;
        CHECK(!shmnd_peer_segment(&l.peer, 0));
        for (uint32_t step = 0; step < STEPS; step++) {
            NOTE("spread %u, step %u", spreads[k], step);
            seed = seed * 1664525u + 1013904223u;
            if (l.count == LIVING || (l.count && seed >> 28 < 7)) {
                uint32_t at = (seed >> 8) % l.count, segment = l.segment[at];
                shmnd_peer_remove_segment(&l.peer, segment);
                shmnd_peer_remove_segment(&l.peer, segment); /* without effect */
                CHECK(!shmnd_peer_segment(&l.peer, segment));
                l.segment[at] = l.segment[--l.count];
            } else {
                next = (next - spreads[k]) % SHMND_FIRST_MARKS_SEGMENT;
                if (!has(&l, next))
                    add(&l, next);
            }
            if (step % 16 == 0)
                check(&l);
        }
        check(&l);
        CHECK(l.peer.data_mask < 4 * LIVING);
        free(l.peer.data);
    }
}

static const struct check_test tests[] = {TEST(numbers_are_found_until_they_are_removed)};

MAIN(tests)
