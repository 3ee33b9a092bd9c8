/* SPDX-License-Identifier: Apache-2.0
 *
 * Large bodies in pickles: those of a pickle are found where they lie; in wrong bytes, and in bytes
 * that change meanwhile, nothing outside is read, and no body lies outside.
 */
#include <pthread.h>

#include "buffers/pickle_bodies.h"

#include "check.h"

enum { MOST = 1 << 20, ROUNDS = 20000, OPCODES_MOST = 40 };

struct made {
    unsigned char *bytes; /* guarded: a read behind the end is caught */
    uint64_t n;
};

static struct made begin(uint64_t n)
{
    struct made m = {guard_alloc(n), 0};
    return m;
}

static void put(struct made *m, const void *bytes, uint64_t n)
{
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

/* An opcode with a length and so many bytes, of which each is no opcode by chance. */
static void put_body(struct made *m, unsigned char op, unsigned width, uint64_t n)
{
    put(m, &op, 1);
    put(m, &n, width);
    memset(m->bytes + m->n, 'N', n);
    m->n += n;
}

static void bodies_are_found_in_order(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    struct made m = begin(2 + 5 + 70000 + 9 + 80000 + 9 + SHMPI_BODY_LEAST + 5 + 100 + 2);
    put(&m, "\x80\x05", 2);
    put_body(&m, 'B', 4, 70000);
    put_body(&m, 0x96, 8, 80000);
    put_body(&m, 0x8e, 8, SHMPI_BODY_LEAST);
    put_body(&m, 'B', 4, 100);
    put(&m, "\x94.", 2);
    EQUAL(shmpi_find_bodies(m.bytes, m.n, found), 3);
    EQUAL(found[0].head, 2);
    EQUAL(found[0].at, 7);
    EQUAL(found[0].bytes, 70000);
    CHECK(!found[0].array && found[1].array && !found[2].array);
    EQUAL(found[1].head, 70007);
    EQUAL(found[1].at, 70016);
    EQUAL(found[2].bytes, SHMPI_BODY_LEAST);
    guard_free_all();
}

static void a_body_inside_a_frame_is_a_part_of_it(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    uint64_t frame = 5 + 70000;
    struct made m = begin(9 + frame + 5 + 70001);
    put(&m, "\x95", 1);
    put(&m, &frame, 8);
    put_body(&m, 'B', 4, 70000);
    put_body(&m, 'B', 4, 70001);
    EQUAL(shmpi_find_bodies(m.bytes, m.n, found), 1);
    EQUAL(found[0].bytes, 70001);
    guard_free_all();
}

static void a_search_is_bounded(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    struct made m = begin(SHMPI_BODY_OPCODES + 5 + 70000);
    for (int i = 0; i < SHMPI_BODY_OPCODES - 1; i++)
        put(&m, "N", 1);
    put_body(&m, 'B', 4, 70000);
    EQUAL(shmpi_find_bodies(m.bytes, m.n, found), 1);
    guard_free_all();
    m = begin(SHMPI_BODY_OPCODES + 5 + 70000);
    for (int i = 0; i < SHMPI_BODY_OPCODES; i++)
        put(&m, "N", 1);
    put_body(&m, 'B', 4, 70000);
    EQUAL(shmpi_find_bodies(m.bytes, m.n, found), 0);
    guard_free_all();
}

static void no_more_are_found_than_there_is_room_for(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    struct made m = begin((uint64_t)(SHMPI_BODIES + 1) * (5 + SHMPI_BODY_LEAST));
    for (int i = 0; i <= SHMPI_BODIES; i++)
        put_body(&m, 'B', 4, SHMPI_BODY_LEAST);
    EQUAL(shmpi_find_bodies(m.bytes, m.n, found), SHMPI_BODIES);
    guard_free_all();
}

static void lie_inside(const struct shmpi_body *found, int count, uint64_t n)
{
    uint64_t end = 0;
    CHECK(count >= 0 && count <= SHMPI_BODIES);
    for (int i = 0; i < count; i++) {
        CHECK(found[i].head >= end && found[i].at > found[i].head && found[i].at <= n);
        CHECK(found[i].bytes >= SHMPI_BODY_LEAST && found[i].bytes <= n - found[i].at);
        end = found[i].at + found[i].bytes;
    }
}

static const unsigned char some[] = {'B', 0x8e, 0x96, 0x95, 'X', 0x8d, 'U', '.', 'I', 0x97};

/* Opcodes with lengths that are right, too long by a few bytes, or anything. */
static void draw_opcodes(struct made *m, uint64_t n, struct chance *c)
{
    memset(m->bytes, 'N', n);
    m->n = n;
    for (uint64_t at = 0, i = 0; at + 9 < n && i < OPCODES_MOST; i++) {
        uint64_t length = SHMPI_BODY_LEAST + chance_below(c, 4096);
        unsigned char op = some[chance_below(c, 4) ? chance_below(c, 3) : chance_below(c, 10)];
        m->bytes[at] = op;
        if (chance_below(c, 6) == 0)
            length = n - at - 9 + chance_below(c, 9);
        else if (chance_below(c, 12) == 0)
            length = chance_next(c);
        memcpy(m->bytes + at + 1, &length, 8);
        if (length > n)
            break;
        at += (op == 'B' ? 5 : 9) + length;
    }
}

static void wrong_lengths_lead_nowhere(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    struct chance c = {7};
    int bodies = 0;
    for (int round = 0; round < ROUNDS / 20; round++) {
        uint64_t n = 1 + chance_below(&c, chance_below(&c, 2) ? 64 : MOST);
        struct made m = begin(n);
        draw_opcodes(&m, n, &c);
        int count = shmpi_find_bodies(m.bytes, n, found);
        lie_inside(found, count, n);
        bodies += count;
        guard_free_all();
    }
    NOTE("%d bodies", bodies);
    CHECK(bodies > ROUNDS / 40);
}

static struct made shared;
static uint32_t stop;

static void *change(void *unused)
{
    struct chance c = {99};
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (int i = 0; i < 14; i++)
            __atomic_store_n(shared.bytes + i, (unsigned char)chance_next(&c), __ATOMIC_RELAXED);
    return NULL;
}

static void bytes_that_change_meanwhile_lead_nowhere(void)
{
    struct shmpi_body found[SHMPI_BODIES];
    pthread_t other;
    shared = begin(70000);
    put_body(&shared, 'B', 4, 70000 - 5);
    CHECK(!pthread_create(&other, NULL, change, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        __atomic_store_n(shared.bytes, 'B', __ATOMIC_RELAXED);
        __atomic_store_n(shared.bytes + 3, 1, __ATOMIC_RELAXED);
        lie_inside(found, shmpi_find_bodies(shared.bytes, shared.n, found), shared.n);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(!pthread_join(other, NULL));
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(bodies_are_found_in_order),  TEST(a_body_inside_a_frame_is_a_part_of_it),
    TEST(a_search_is_bounded),        TEST(no_more_are_found_than_there_is_room_for),
    TEST(wrong_lengths_lead_nowhere), TEST(bytes_that_change_meanwhile_lead_nowhere),
};

MAIN(tests)
