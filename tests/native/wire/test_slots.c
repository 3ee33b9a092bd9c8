/* SPDX-License-Identifier: Apache-2.0
 *
 * The slot ring: sizes around the bounds of a slot, positions around a wrap,
 * room, and the effects of a hostile peer.
 */
#include "check.h"
#include "wire/slots.h"

#define RING_BYTES (SHMND_RING_USUAL * SHMND_SLOT_BYTES)

struct ring {
    uint8_t *memory;
    shmnd_word64 *read_pos;
    struct shmnd_slots_writer w;
    struct shmnd_slots_reader r;
};

static struct ring ring_at(uint64_t pos)
{
    struct ring ring = {guard_alloc(RING_BYTES), guard_alloc(8), {0}, {0}};
    shmnd_put64(ring.read_pos, pos);
    uint64_t mask = SHMND_RING_USUAL - 1;
    ring.w = (struct shmnd_slots_writer){ring.memory, ring.read_pos, mask, pos, pos + mask + 1};
    ring.r = (struct shmnd_slots_reader){ring.memory, ring.read_pos, mask, pos, pos};
    return ring;
}

static void put(struct ring *ring, const uint8_t *data, uint32_t length, uint8_t flags)
{
    struct shmnd_write_cursor f = shmnd_slots_write_begin(&ring->w);
    shmnd_slots_write(&f, data, length);
    shmnd_slots_publish(&ring->w, length, SHMND_KIND_EAGER, flags, shmnd_slots_for(length));
}

static bool get(struct ring *ring, uint8_t *data, uint32_t length)
{
    struct shmnd_message_header a;
    if (shmnd_slots_peek(&ring->r, &a) != SHMND_PEEK_MESSAGE)
        return false;
    EQUAL(a.length, length);
    struct shmnd_read_cursor d = shmnd_slots_read_begin(&ring->r, 0);
    shmnd_slots_read_bytes(&d, data, length);
    shmnd_slots_consume(&ring->r, a.slots);
    return true;
}

static void slots_for_every_size(void)
{
    for (uint32_t n = 0; n <= SHMND_EAGER_LONGEST; n++) {
        uint32_t slots = shmnd_slots_for(n);
        uint32_t holds = SHMND_HEAD_PAYLOAD + (slots - 1) * SHMND_TAIL_PAYLOAD;
        CHECK(holds >= n);
        CHECK(slots == 1 || holds - SHMND_TAIL_PAYLOAD < n);
    }
    EQUAL(shmnd_slots_for(SHMND_EAGER_MAX), SHMND_RING_USUAL / 4);
}

/* Every size at the bound of a slot, over every kind of wrap. */
static void sizes_and_wraps(void)
{
    /* clang-format off */
    static const uint64_t starts[] = {0, SHMND_RING_USUAL - 1, SHMND_RING_USUAL - 33,
                                      (1ull << 32) - 3, (1ull << 32) - 64, (1ull << 62) - 4096};
    /* clang-format on */
    uint8_t out[SHMND_EAGER_LONGEST], in[SHMND_EAGER_LONGEST];
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        struct ring ring = ring_at(starts[s]);
        for (uint32_t n = 0; n <= SHMND_EAGER_LONGEST; n++) {
            uint32_t edge =
                n > SHMND_HEAD_PAYLOAD ? (n - SHMND_HEAD_PAYLOAD) % SHMND_TAIL_PAYLOAD : n;
            if (n > 130 && edge > 1 && edge < SHMND_TAIL_PAYLOAD - 1)
                continue;
            NOTE("size %u from %" PRIu64, n, starts[s]);
            for (uint32_t i = 0; i < n; i++)
                out[i] = (uint8_t)(n * 7 + i);
            CHECK(shmnd_slots_have_room(&ring.w, shmnd_slots_for(n)));
            put(&ring, out, n, 0);
            memset(in, 0, sizeof in);
            CHECK(get(&ring, in, n));
            CHECK(memcmp(in, out, n) == 0);
            struct shmnd_message_header a;
            EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_NONE);
        }
        guard_free_all();
    }
}

/* Pieces of all shapes make the same message as one piece. */
static void pieces(void)
{
    struct chance c = {11};
    struct ring ring = ring_at(5);
    uint8_t out[SHMND_EAGER_MAX], in[SHMND_EAGER_MAX];
    for (int turn = 0; turn < 2000; turn++) {
        uint32_t n = (uint32_t)chance_below(&c, SHMND_EAGER_MAX + 1);
        for (uint32_t i = 0; i < n; i++)
            out[i] = (uint8_t)chance_next(&c);
        CHECK(shmnd_slots_have_room(&ring.w, shmnd_slots_for(n)));
        struct shmnd_write_cursor f = shmnd_slots_write_begin(&ring.w);
        for (uint32_t at = 0; at < n;) {
            uint32_t piece = 1 + (uint32_t)chance_below(&c, n - at);
            shmnd_slots_write(&f, out + at, piece);
            at += piece;
        }
        shmnd_slots_publish(&ring.w, n, SHMND_KIND_EAGER, 0, shmnd_slots_for(n));
        struct shmnd_message_header a;
        EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_MESSAGE);
        struct shmnd_read_cursor d = shmnd_slots_read_begin(&ring.r, 0);
        for (uint32_t at = 0; at < n;) {
            uint32_t piece = 1 + (uint32_t)chance_below(&c, n - at);
            shmnd_slots_read_bytes(&d, in + at, piece);
            at += piece;
        }
        CHECK(memcmp(in, out, n) == 0);
        shmnd_slots_consume(&ring.r, a.slots);
    }
    guard_free_all();
}

/* Fills the ring, finds no room, reads, and always gets a quarter back. */
static void room(void)
{
    struct ring ring = ring_at(77);
    uint8_t data[SHMND_EAGER_MAX] = {0};
    for (uint32_t i = 0; i < SHMND_RING_USUAL; i++) {
        CHECK(shmnd_slots_have_room(&ring.w, 1));
        put(&ring, data, 8, 0);
    }
    CHECK(!shmnd_slots_have_room(&ring.w, 1));
    bool returned = false;
    for (uint32_t i = 0; i < SHMND_RING_USUAL / 4; i++) {
        CHECK(!returned && !shmnd_slots_have_room(&ring.w, 1));
        returned = shmnd_slots_consume(&ring.r, 1);
    }
    CHECK(returned);
    CHECK(shmnd_slots_have_room(&ring.w, SHMND_RING_USUAL / 4));
    CHECK(!shmnd_slots_have_room(&ring.w, SHMND_RING_USUAL / 4 + 1));
    guard_free_all();
}

/* When all messages are consumed, the longest message fits at every position. */
static void longest_fits_once_read(void)
{
    struct ring ring = ring_at(0);
    uint8_t data[SHMND_EAGER_MAX] = {0}, in[SHMND_EAGER_MAX];
    struct chance c = {5};
    for (int i = 0; i < 5000; i++) {
        uint32_t n = (uint32_t)chance_below(&c, SHMND_EAGER_MAX + 1);
        CHECK(shmnd_slots_have_room(&ring.w, SHMND_RING_USUAL / 4));
        put(&ring, data, n, 0);
        CHECK(get(&ring, in, n));
    }
    guard_free_all();
}

/* Bytes left from an earlier lap are never taken for a message, whatever they are. */
static void leftovers(void)
{
    struct ring ring = ring_at(0);
    uint8_t data[SHMND_EAGER_MAX];
    struct shmnd_message_header a;
    for (uint32_t lap = 0; lap < 64; lap++) {
        /* Payload that equals the sequence word of later slots. */
        for (uint32_t i = 0; i + 8 <= sizeof data; i += 8) {
            uint64_t v = ring.w.write_pos + SHMND_RING_USUAL + 1 + i / 64;
            memcpy(data + i, &v, 8);
        }
        CHECK(shmnd_slots_have_room(&ring.w, 64));
        put(&ring, data, SHMND_EAGER_MAX - lap, 0);
        CHECK(get(&ring, data, SHMND_EAGER_MAX - lap));
        for (uint32_t ahead = 0; ahead < SHMND_RING_USUAL; ahead++) {
            struct shmnd_slots_reader r = ring.r;
            r.read_pos += ahead;
            EQUAL(shmnd_slots_peek(&r, &a), SHMND_PEEK_NONE);
        }
    }
    guard_free_all();
}

/* A reader that publishes a false position stops its own link and nothing else. */
static void hostile_reader(void)
{
    /* clang-format off */
    static const uint64_t lies[] = {0, 1, 99, 101, 100 + SHMND_RING_USUAL, ~0ull, 1ull << 63,
                                    ~0ull - SHMND_RING_USUAL, ~0ull - SHMND_RING_USUAL + 1};
    /* clang-format on */
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        NOTE("read_pos %#" PRIx64, lies[i]);
        struct ring ring = ring_at(100);
        uint8_t byte = 0, data[100] = {0};
        for (uint32_t k = 0; k < SHMND_RING_USUAL; k++)
            put(&ring, &byte, 1, 0);
        shmnd_put64(ring.read_pos, lies[i]);
        for (uint32_t k = 0; k < 4 * SHMND_RING_USUAL && shmnd_slots_have_room(&ring.w, 3); k++) {
            CHECK(ring.w.room_pos - ring.w.write_pos <= SHMND_RING_USUAL);
            put(&ring, data, sizeof data, 0);
        }
        guard_free_all();
    }
}

/* A header that no correct writer publishes is reported as malformed. */
static void nonsense(void)
{
    struct ring ring = ring_at(3);
    struct shmnd_slot *head = shmnd_writer_slot(&ring.w, 3);
    struct shmnd_message_header a;
    shmnd_put64(&head->ready_pos, 4);
    for (uint32_t kind = 0; kind < 256; kind++) {
        head->kind = (uint8_t)kind;
        head->length = 0;
        memset(head->payload, 0, sizeof head->payload);
        bool known =
            kind >= SHMND_KIND_EAGER && kind <= SHMND_KIND_BOUNCED && kind != SHMND_KIND_LISTED;
        EQUAL(shmnd_slots_peek(&ring.r, &a), known ? SHMND_PEEK_MESSAGE : SHMND_PEEK_MALFORMED);
    }
    static const uint32_t lengths[] = {SHMND_EAGER_LONGEST + 1, 0x7fffffff, 0x80000000, 0xffffffff,
                                       0xfffffff0};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        head->length = lengths[i];
        head->kind = SHMND_KIND_EAGER;
        EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_MALFORMED);
        head->kind = SHMND_KIND_PART;
        EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_MALFORMED);
        head->kind = SHMND_KIND_BOUNCED;
        EQUAL(shmnd_slots_peek(&ring.r, &a),
              lengths[i] <= SHMND_BOUNCE_BYTES ? SHMND_PEEK_MESSAGE : SHMND_PEEK_MALFORMED);
        head->kind = SHMND_KIND_LARGE; /* its length is not in the slots */
        EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_MESSAGE);
        uint32_t extents = lengths[i];
        memcpy(head->payload, &extents, 4);
        EQUAL(shmnd_slots_peek(&ring.r, &a), SHMND_PEEK_MALFORMED);
        memset(head->payload, 0, 4);
    }
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(slots_for_every_size),   TEST(sizes_and_wraps), TEST(pieces),         TEST(room),
    TEST(longest_fits_once_read), TEST(leftovers),       TEST(hostile_reader), TEST(nonsense),
};
MAIN(tests)
