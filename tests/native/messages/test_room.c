/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring that becomes full: Sends whose receives are posted complete by calls of their sender alone,
 * whatever the room that the messages before them have taken.
 */
#include "world.h"

#define DEPTH 64u
#define ELEMENTS 16u
#define LONG (40u << 10)
#define SHORT 500u

struct scene {
    struct duo d;
    uint8_t *from[DEPTH], *into[DEPTH];
    uint32_t source[DEPTH];
    uint32_t length[DEPTH];
};

/* Posts a receive for each message. `privates` bit 0: its memory is private; bit 1: the source is. */
static void open_scene(struct scene *s, uint32_t privates, uint32_t shorts, uint32_t others)
{
    struct pair_options o = pair_usual;
    o.receives = o.requests = DEPTH;
    o.sges = ELEMENTS;
    o.inline_size = 1024;
    duo_open_with(&s->d, (struct world_options){.segment_bytes = 2 * DEPTH * (LONG + 128)}, o, o);
    for (uint32_t i = 0; i < DEPTH; i++) {
        uint32_t n = s->length[i] = i < shorts ? SHORT : others;
        s->from[i] = privates & 2 ? guard_alloc(n) : shared_bytes(s->d.pa, n);
        s->into[i] = privates & 1 ? guard_alloc(n) : shared_bytes(s->d.pb, n);
        fill(s->from[i], n, i);
        s->source[i] = region_new(s->d.pa, s->from[i], n, 0);
        struct shmnd_sge r =
            sge(s->into[i], n, region_new(s->d.pb, s->into[i], n, SHMND_MR_LOCAL_WRITE));
        EQUAL(post_receive(s->d.b, 100 + i, &r, 1), SHMND_SUCCESS);
    }
}

/* The receiver makes no call before all Sends have completed. */
static void all_complete(struct scene *s)
{
    for (uint32_t turn = 0; turn < 4 * DEPTH && s->d.qa->got < DEPTH; turn++)
        queue_turn(s->d.qa);
    EQUAL(s->d.qa->got, DEPTH);
    for (uint32_t i = 0; i < DEPTH; i++)
        EXPECT(s->d.qa, SHMND_SEND, i, SHMND_SUCCESS);
    for (uint32_t i = 0; i < DEPTH; i++) {
        EXPECT_RECEIVED(s->d.qb, 100 + i, s->length[i]);
        CHECK(filled(s->into[i], s->length[i], i));
    }
    duo_close(&s->d);
}

/* The announcement of a long list takes several slots. */
static void long_lists_leave_room(void)
{
    for (uint32_t privates = 0; privates < 4; privates++) {
        struct scene s;
        NOTE("private %x", privates);
        open_scene(&s, privates, DEPTH / 2, LONG);
        if (privates & 1)
            pair_never_bounces(s.d.a);
        for (uint32_t i = 0; i < DEPTH; i++) {
            struct shmnd_sge list[ELEMENTS];
            uint32_t n = s.length[i], part = n / ELEMENTS;
            for (uint32_t k = 0; k < ELEMENTS; k++)
                list[k] = sge(s.from[i] + k * part,
                              k + 1 < ELEMENTS ? part : n - (ELEMENTS - 1) * part, s.source[i]);
            EQUAL(post_send(s.d.a, i, list, ELEMENTS, 0), SHMND_SUCCESS);
        }
        all_complete(&s);
    }
}

/* Sends whose bytes were taken by their post, of few slots and of many. */
static void inline_sends_leave_room(void)
{
    for (uint32_t privates = 0; privates < 2; privates++)
        for (uint32_t shorts = 0; shorts <= DEPTH; shorts += DEPTH / 2) {
            struct scene s;
            NOTE("private %x, %u short ones", privates, shorts);
            open_scene(&s, privates, shorts, 1024);
            for (uint32_t i = 0; i < DEPTH; i++) {
                struct shmnd_sge m = sge(s.from[i], s.length[i], 0);
                EQUAL(post_send(s.d.a, i, &m, 1, SHMND_OP_INLINE), SHMND_SUCCESS);
                memset(s.from[i], 0, s.length[i]);
            }
            all_complete(&s);
        }
}

/* Receives that were posted after the sender has looked for them count, too. */
static void receives_of_a_moment_ago_have_their_room(void)
{
    struct duo d;
    struct pair_options o = pair_usual;
    o.receives = o.requests = DEPTH;
    o.inline_size = 1024;
    duo_open_with(&d, (struct world_options){.segment_bytes = 2 * DEPTH * 1152}, o, o);
    uint8_t *from = shared_bytes(d.pa, 1024), *into = shared_bytes(d.pb, DEPTH * 1024);
    uint32_t token = region_new(d.pb, into, DEPTH * 1024, SHMND_MR_LOCAL_WRITE);
    uint32_t early = 13;
    for (uint32_t i = 0; i < DEPTH; i++) {
        struct shmnd_sge m = sge(from, 1024, 0);
        struct shmnd_sge r = sge(into + i * 1024, 1024, token);
        EQUAL(post_receive(d.b, 100 + i, &r, 1), SHMND_SUCCESS);
        if (i == 0) {
            fill(from, 1024, 0);
            EQUAL(post_send(d.a, 0, &m, 1, SHMND_OP_INLINE), SHMND_SUCCESS);
            EXPECT(d.qa, SHMND_SEND, 0, SHMND_SUCCESS);
            EXPECT_RECEIVED(d.qb, 100, 1024);
        }
        if (i == early) /* the sender looks */
            shmnd_tx_has_receive(&d.a->q, d.a->q.messages, 0, 1024);
    }
    for (uint32_t i = 1; i < DEPTH; i++) {
        struct shmnd_sge m = sge(from, 1024, 0);
        fill(from, 1024, i);
        EQUAL(post_send(d.a, i, &m, 1, SHMND_OP_INLINE), SHMND_SUCCESS);
    }
    for (uint32_t turn = 0; turn < 4 * DEPTH && d.qa->got < DEPTH - 1; turn++)
        queue_turn(d.qa);
    EQUAL(d.qa->got, DEPTH - 1);
    for (uint32_t i = 1; i < DEPTH; i++) {
        EXPECT(d.qa, SHMND_SEND, i, SHMND_SUCCESS);
        EXPECT_RECEIVED(d.qb, 100 + i, 1024);
        CHECK(filled(into + i * 1024, 1024, i));
    }
    duo_close(&d);
}

static const struct check_test tests[] = {
    TEST(long_lists_leave_room),
    TEST(inline_sends_leave_room),
    TEST(receives_of_a_moment_ago_have_their_room),
};
MAIN(tests)
