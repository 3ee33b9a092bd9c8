/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens, rights and bounds: of local memory, and of grants to a peer.
 */
#include "check.h"
#include "wire/tokens.h"

#define BASE 0x10000000ull
#define BYTES 0x2000ull

static void within(void)
{
    /* clang-format off */
    static const uint64_t edge[] = {0, 1, BASE - 1, BASE, BASE + 1, BASE + BYTES - 1, BASE + BYTES,
                                    BASE + BYTES + 1, ~0ull, ~0ull - 1, 1ull << 63, BYTES, BYTES + 1};
    /* clang-format on */
    for (size_t i = 0; i < sizeof edge / 8; i++) {
        for (size_t k = 0; k < sizeof edge / 8; k++) {
            NOTE("%#" PRIx64 " + %#" PRIx64, edge[i], edge[k]);
            unsigned __int128 end = (unsigned __int128)edge[i] + edge[k];
            bool want = edge[i] >= BASE && end <= BASE + BYTES;
            EQUAL(shmnd_range_within(edge[i], edge[k], BASE, BYTES), want);
        }
    }
    CHECK(shmnd_range_within(~0ull, 1, ~0ull, 1));
    CHECK(!shmnd_range_within(~0ull, 2, ~0ull, 1));
    CHECK(shmnd_range_within(5, 0, 5, 0));
    CHECK(!shmnd_range_within(6, 0, 5, 0));
}

static struct shmnd_registry registry(uint32_t count)
{
    struct shmnd_registry r = {.regions = guard_alloc(count * sizeof(struct shmnd_region)),
                               .count = count};
    r.tables[0] = guard_alloc(SHMND_TABLE_ENTRIES * sizeof(struct shmnd_grant));
    return r;
}

static uint32_t enter(struct shmnd_registry *r, uint32_t idx, uint32_t generation, uint32_t rights)
{
    uint32_t token = generation << SHMND_TOKEN_INDEX_BITS | idx;
    r->regions[idx] = (struct shmnd_region){
        .base = BASE, .length = BYTES, .token = token, .rights = rights, .offset = 64};
    return token;
}

static void local_tokens(void)
{
    struct shmnd_registry r = registry(4);
    uint32_t token = enter(&r, 2, 9, SHMND_MR_LOCAL_WRITE);
    CHECK(shmnd_region_lookup(&r, token) == &r.regions[2]);
    CHECK(!shmnd_region_lookup(&r, 0));
    CHECK(!shmnd_region_lookup(&r, token + 1)); /* an entry never used */
    CHECK(
        !shmnd_region_lookup(&r, token + (1u << SHMND_TOKEN_INDEX_BITS))); /* another generation */
    CHECK(!shmnd_region_lookup(&r, 0xffffffffu));                          /* beyond the entries */
    for (uint32_t idx = 4; idx < (1u << SHMND_TOKEN_INDEX_BITS); idx += 4093)
        CHECK(!shmnd_region_lookup(&r, 9u << SHMND_TOKEN_INDEX_BITS | idx));
    struct shmnd_sge s = {BASE, BYTES, token};
    CHECK(shmnd_sge_region(&r, &s, 0));
    CHECK(shmnd_sge_region(&r, &s, SHMND_MR_LOCAL_WRITE));
    CHECK(shmnd_sge_region(&r, &s, SHMND_MR_LOCAL_WRITE | SHMND_MR_READ_SINK));
    CHECK(!shmnd_sge_region(&r, &s, SHMND_MR_READ_SINK));
    s.address++;
    CHECK(!shmnd_sge_region(&r, &s, 0));
    s = (struct shmnd_sge){BASE + BYTES, 0, token};
    CHECK(shmnd_sge_region(&r, &s, 0));
    guard_free_all();
}

/* Rights, the connection of a window, and every bound. */
static void grants(void)
{
    struct shmnd_registry r = registry(4);
    struct shmnd_target t;
    uint32_t token = enter(&r, 1, 3, 0);
    struct shmnd_grant *g = shmnd_grant_entry(&r, token);
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_READ, BASE, 1, 7, &t)); /* not published */
    shmnd_grant_publish(g, &r.regions[1], SHMND_ALLOW_READ, 0);
    CHECK(shmnd_grant_check(g, token, SHMND_ALLOW_READ, BASE + 8, BYTES - 8, 7, &t));
    EQUAL(t.offset, 64 + 8);
    EQUAL(t.segment, 0);
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_WRITE, BASE, 1, 7, &t));
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_READ, BASE + 8, BYTES - 7, 7, &t));
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_READ, BASE - 1, 2, 7, &t));
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_READ, ~0ull, 2, 7, &t));
    CHECK(!shmnd_grant_check(g, 0, SHMND_ALLOW_READ, BASE, 1, 7, &t));
    CHECK(!shmnd_grant_check(g, token ^ (1u << 31), SHMND_ALLOW_READ, BASE, 1, 7, &t));
    shmnd_grant_revoke(g);
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_READ, BASE, 1, 7, &t));
    shmnd_grant_publish(g, &r.regions[1], SHMND_ALLOW_READ | SHMND_ALLOW_WRITE, 7);
    CHECK(shmnd_grant_check(g, token, SHMND_ALLOW_WRITE, BASE, 1, 7, &t));
    CHECK(!shmnd_grant_check(g, token, SHMND_ALLOW_WRITE, BASE, 1, 8, &t));
    guard_free_all();
}

static void private_grants_name_addresses(void)
{
    struct shmnd_registry r = registry(2);
    struct shmnd_target t;
    uint32_t token = enter(&r, 1, 3, 0);
    r.regions[1].segment = SHMND_PRIVATE_MEMORY;
    shmnd_grant_publish(shmnd_grant_entry(&r, token), &r.regions[1], SHMND_ALLOW_READ, 0);
    CHECK(shmnd_grant_check(shmnd_grant_entry(&r, token), token, SHMND_ALLOW_READ, BASE + 5, 1, 1,
                            &t));
    EQUAL(t.offset, BASE + 5);
    EQUAL(t.segment, SHMND_PRIVATE_MEMORY);
    guard_free_all();
}

/* A revoked grant stops an initiator that has not entered; the hazard word shows one that has. */
static void hazards(void)
{
    struct shmnd_registry r = registry(2);
    shmnd_word64 *hazard = guard_alloc(8);
    uint32_t token = enter(&r, 1, 3, 0);
    struct shmnd_grant *g = shmnd_grant_entry(&r, token);
    shmnd_grant_publish(g, &r.regions[1], SHMND_ALLOW_READ, 0);
    CHECK(shmnd_hazard_enter(hazard, g, token));
    CHECK(!shmnd_hazard_is_clear_of(hazard, token));
    CHECK(shmnd_hazard_is_clear_of(hazard, SHMND_HAZARD_PUSH));
    shmnd_grant_revoke(g);
    CHECK(!shmnd_hazard_is_clear_of(hazard, token));
    shmnd_hazard_leave(hazard);
    CHECK(shmnd_hazard_is_clear_of(hazard, token));
    CHECK(!shmnd_hazard_enter(hazard, g, token));
    CHECK(shmnd_hazard_is_clear_of(hazard, token));
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(within),  TEST(local_tokens), TEST(grants), TEST(private_grants_name_addresses),
    TEST(hazards),
};
MAIN(tests)
