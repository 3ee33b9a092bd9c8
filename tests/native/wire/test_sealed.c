/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that peers map read-only: whatever its owner advertises, no store goes there. An
 * honest owner copies messages into it by itself.
 */
#include "world.h"

#define BYTES 300000u

static const uint32_t sizes[] = {0, 8, 504, 512, 2000, 4000, 60000, BYTES};
#define SIZES (sizeof sizes / sizeof sizes[0])

/* An honest owner marks its region: every size of Send arrives, none is placed by the sender. */
static void sends_into_it_are_taken_by_its_owner(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (int private = 0; private < 2; private++) {
            NOTE("%u bytes, private %d", sizes[i], private);
            struct duo d;
            duo_open(&d);
            static uint8_t own[BYTES];
            uint8_t *src = private ? own : shared_bytes(d.pa, BYTES);
            uint8_t *dst = shared_bytes(d.pb, BYTES);
            d.pa->peer.data[0].read_only = true;
            uint32_t ta = region_new(d.pa, src, BYTES, 0);
            uint32_t tb = region_new(d.pb, dst, BYTES, 1 | SHMND_MR_SEALED);
            fill(src, BYTES, i);
            struct shmnd_sge s = sge(src, sizes[i], ta), r = sge(dst, BYTES, tb);
            EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
            EQUAL(post_send(d.a, 2, &s, 1, 0), SHMND_SUCCESS);
            EXPECT_RECEIVED(d.qb, 1, sizes[i]);
            EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
            CHECK(filled(dst, sizes[i], i));
            duo_close(&d);
        }
}

/* A hostile owner advertises the receive like any other: the sender leaves it to its owner. */
static void a_receive_that_names_it_is_not_written(void)
{
    for (size_t i = 3; i < SIZES; i++) {
        NOTE("%u bytes", sizes[i]);
        struct duo d;
        duo_open(&d);
        uint8_t *src = shared_bytes(d.pa, BYTES), *dst = shared_bytes(d.pb, BYTES);
        d.pa->peer.data[0].read_only = true;
        uint32_t ta = region_new(d.pa, src, BYTES, 0), tb = region_new(d.pb, dst, BYTES, 1);
        fill(src, BYTES, i);
        struct shmnd_sge s = sge(src, sizes[i], ta), r = sge(dst, BYTES, tb);
        EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 2, &s, 1, 0), SHMND_SUCCESS);
        settle(d.a);
        for (uint32_t x = 0; x < BYTES; x++)
            EQUAL(dst[x], 0);
        duo_close(&d);
    }
}

static void a_grant_to_write_it_is_not_followed(void)
{
    for (size_t i = 1; i < SIZES; i++) {
        NOTE("%u bytes", sizes[i]);
        struct duo d;
        duo_open(&d);
        d.a->q.outbound_read_limit = 1;
        uint8_t *src = shared_bytes(d.pa, BYTES), *dst = shared_bytes(d.pb, BYTES);
        uint32_t ta = region_new(d.pa, src, BYTES, 1);
        uint32_t tb = window_new(d.pb, dst, BYTES, SHMND_ALLOW_READ | SHMND_ALLOW_WRITE, 0);
        d.pa->peer.data[0].read_only = true;
        fill(src, BYTES, i);
        fill(dst, BYTES, i + 1);
        struct shmnd_sge s = sge(src, sizes[i], ta);
        EQUAL(post_rdma(d.a, 1, SHMND_WRITE, &s, 1, dst, tb, 0), SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_WRITE, 1, d.a->q.target_fault);
        CHECK(filled(dst, BYTES, i + 1));
        duo_close(&d);
        duo_open(&d);
        d.a->q.outbound_read_limit = 1;
        src = shared_bytes(d.pa, BYTES), dst = shared_bytes(d.pb, BYTES);
        ta = region_new(d.pa, src, BYTES, 1);
        tb = window_new(d.pb, dst, BYTES, SHMND_ALLOW_READ, 0);
        d.pa->peer.data[0].read_only = true;
        fill(dst, BYTES, i);
        s = sge(src, sizes[i], ta);
        EQUAL(post_rdma(d.a, 1, SHMND_READ, &s, 1, dst, tb, 0), SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_READ, 1, SHMND_SUCCESS);
        CHECK(filled(src, sizes[i], i));
        duo_close(&d);
    }
}

static const struct check_test tests[] = {
    TEST(sends_into_it_are_taken_by_its_owner),
    TEST(a_receive_that_names_it_is_not_written),
    TEST(a_grant_to_write_it_is_not_followed),
};

MAIN(tests)
