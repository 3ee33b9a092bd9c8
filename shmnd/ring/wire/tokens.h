/* SPDX-License-Identifier: Apache-2.0
 *
 * Registered memory: the owner's private registry, the grants that it publishes,
 * and how an initiator uses a grant that the owner may revoke at any moment.
 *
 * Argument for "no byte is copied after Invalidate completed" (SYNC hazard). The
 * initiator stores the token in its hazard word, fences, and then checks that the
 * grant still has that token; it clears the word after its last byte. The owner
 * clears the grant, fences, and then checks the hazard words. At least one of the
 * two loads sees the other side's store: either the initiator finds the token
 * gone and copies nothing, or the owner finds the hazard word set and waits. The
 * hazard word of a dead process no longer counts, since its copies ended with it.
 *
 * A grant is read like a sequence lock whose sequence number is the token: a token
 * value returns to an entry only after thousands of other values, so the same
 * token before and after means that one version was read. Serves invariant 1.
 */
#ifndef SHMND_WIRE_TOKENS_H
#define SHMND_WIRE_TOKENS_H

#include "wire/layout.h"

enum shmnd_right {
    SHMND_MR_LOCAL_WRITE = 0x1,
    SHMND_MR_REMOTE_READ = 0x2,
    SHMND_MR_REMOTE_WRITE = 0x5,
    SHMND_MR_READ_SINK = 0x8,
    /* Internal flags. SEALED: peers map the memory read-only, so the owner copies messages into
     * it. FRAGILE: see struct shmnd_region. */
    SHMND_MR_SEALED = 0x10000,
    SHMND_MR_FRAGILE = 0x20000,
};

/* One registration or window, private to its owner.
 *
 * Memory that another process can truncate is *fragile*: a load or store there may raise SIGBUS.
 * For peers such a region is private memory, which they access by system calls that return an
 * error. In its own process its length is 0, so that every lookup but shmnd_fragile_region finds
 * requests out of range, and the functions of process_memory.h copy its bytes. So the path of all
 * other memory needs no check for it. */
struct shmnd_region {
    uint64_t base;
    uint64_t length;
    uint64_t offset; /* in `segment`; the length of fragile memory */
    uint32_t segment;
    uint32_t token;  /* 0: free */
    uint32_t rights; /* MR flags */
    uint32_t posted; /* advertised receives with an element in it */
    uint64_t serial; /* of a window: the `serial` of the queue pair that it is bound to, until it is
                        invalidated; 0 for all others */
    void *context;   /* of a window: the context of the completion that its owner gets when the peer
                        invalidates it, or NULL */
};

struct shmnd_registry {
    struct shmnd_region *regions;
    uint32_t count;           /* allocated entries */
    uint32_t window_contexts; /* of these, windows with a context (contexts.h) */
    struct shmnd_grant *tables[SHMND_TABLE_SEGMENTS];
    struct shmnd_qp *unreleased; /* queue pairs that hold contexts of silent successes (retire.h) */
    uint64_t bounce_bytes;       /* committed in the bounce areas of its queue pairs (bounce.h) */
};

struct shmnd_sge {
    uint64_t address;
    uint32_t length;
    uint32_t token;
};

static inline uint32_t shmnd_token_index(uint32_t token)
{
    return token & SHMND_TOKEN_INDEX_MASK;
}

static inline struct shmnd_region *shmnd_region_lookup(const struct shmnd_registry *r,
                                                       uint32_t token)
{
    uint32_t idx = shmnd_token_index(token);
    if (token == 0 || idx >= r->count || r->regions[idx].token != token)
        return NULL;
    return &r->regions[idx];
}

static inline bool shmnd_range_within(uint64_t address, uint64_t length, uint64_t base,
                                      uint64_t size)
{
    return address >= base && length <= size && address - base <= size - length;
}

/* Return the region that covers an SGE and has one of `rights` (0: any region), or NULL. */
static inline struct shmnd_region *shmnd_sge_region(const struct shmnd_registry *r,
                                                    const struct shmnd_sge *s, uint32_t rights)
{
    struct shmnd_region *region = shmnd_region_lookup(r, s->token);
    if (!region || !shmnd_range_within(s->address, s->length, region->base, region->length))
        return NULL;
    if (rights && !(region->rights & rights))
        return NULL;
    return region;
}

/* Return the region whose fragile memory covers an SGE and which has one of `rights`; NULL for all
 * other memory. */
static inline struct shmnd_region *shmnd_fragile_region(const struct shmnd_registry *r,
                                                        const struct shmnd_sge *s, uint32_t rights)
{
    struct shmnd_region *region = shmnd_region_lookup(r, s->token);
    if (!region || !(region->rights & SHMND_MR_FRAGILE) ||
        !shmnd_range_within(s->address, s->length, region->base, region->offset))
        return NULL;
    if (rights && !(region->rights & rights))
        return NULL;
    return region;
}

/* ---- owner ----------------------------------------------------------------- */

static inline struct shmnd_grant *shmnd_grant_entry(const struct shmnd_registry *r, uint32_t token)
{
    uint32_t idx = shmnd_token_index(token);
    struct shmnd_grant *table = r->tables[idx / SHMND_TABLE_ENTRIES];
    return table ? &table[idx % SHMND_TABLE_ENTRIES] : NULL;
}

static inline void shmnd_grant_publish(struct shmnd_grant *g, const struct shmnd_region *region,
                                       uint32_t rights, uint64_t connection)
{
    shmnd_put32(&g->rights, rights);
    shmnd_put64(&g->base, region->base);
    bool fragile = region->rights & SHMND_MR_FRAGILE;
    shmnd_put64(&g->length, fragile ? region->offset : region->length);
    shmnd_put64(&g->offset, region->offset);
    shmnd_put32(&g->segment, region->segment);
    shmnd_put64(&g->connection, connection);
    SHMND_KILL_POINT("grant-written");
    /* SYNC grant: release, pairs with acquire in shmnd_grant_check() */
    shmnd_release32(&g->token, region->token);
    SHMND_KILL_POINT("grant-published");
}

/* Revoke a grant: after this no initiator begins a copy. The caller then checks the hazard words
 * for those that have begun one. */
static inline void shmnd_grant_revoke(struct shmnd_grant *g)
{
    shmnd_put32(&g->token, 0);
    SHMND_KILL_POINT("grant-revoked");
    /* SYNC hazard: fence, pairs with the fence in shmnd_hazard_enter() */
    shmnd_store_then_load();
}

/* Unbind the window of `token` for a peer that invalidates it, and return it; NULL: no such window
 * is bound to this connection. The owner's Invalidate clears `serial` too. Both run under the
 * owner's lock, so exactly one of them finds the window. The token comes from the peer: it selects
 * a window and proves nothing. */
static inline struct shmnd_region *shmnd_window_unbind(const struct shmnd_registry *r,
                                                       uint32_t token, uint64_t serial)
{
    struct shmnd_region *window = shmnd_region_lookup(r, token);
    if (!window || serial == 0 || window->serial != serial)
        return NULL;
    window->serial = 0;
    SHMND_KILL_POINT("window-let-go");
    shmnd_grant_revoke(shmnd_grant_entry(r, token));
    return window;
}

/* ---- initiator --------------------------------------------------------------- */

struct shmnd_target {
    uint64_t offset; /* in the segment, or the address in private memory */
    uint32_t segment;
};

static inline bool shmnd_grant_check(const struct shmnd_grant *g, uint32_t token, uint32_t right,
                                     uint64_t address, uint64_t length, uint64_t connection,
                                     struct shmnd_target *target)
{
    /* SYNC grant: acquire, pairs with release in shmnd_grant_publish() */
    if (token == 0 || shmnd_acquire32(&g->token) != token)
        return false;
    uint64_t base = shmnd_relaxed64(&g->base), size = shmnd_relaxed64(&g->length);
    uint64_t offset = shmnd_relaxed64(&g->offset), bound = shmnd_relaxed64(&g->connection);
    if (!(shmnd_relaxed32(&g->rights) & right) || (bound && bound != connection))
        return false;
    if (!shmnd_range_within(address, length, base, size))
        return false;
    target->segment = shmnd_relaxed32(&g->segment);
    target->offset = target->segment == SHMND_PRIVATE_MEMORY ? address : offset + (address - base);
    return true;
}

static inline void shmnd_hazard_leave(shmnd_word64 *hazard)
{
    /* SYNC hazard-clear: release, pairs with acquire in shmnd_hazard_is_clear_of() */
    shmnd_release64(hazard, 0);
    SHMND_KILL_POINT("hazard-cleared");
}

/* Begin an access of the initiator to the memory of the grant, until shmnd_hazard_leave(). Return
 * false if the grant was revoked. */
static inline bool shmnd_hazard_enter(shmnd_word64 *hazard, const struct shmnd_grant *g,
                                      uint32_t token)
{
    /* SYNC hazard-clear: release, for an owner that waits for the previous value to go */
    shmnd_release64(hazard, token);
    SHMND_KILL_POINT("hazard-set");
    /* SYNC hazard: fence, pairs with the fence in shmnd_grant_revoke() */
    shmnd_store_then_load();
    if (shmnd_relaxed32(&g->token) == token)
        return true;
    shmnd_hazard_leave(hazard);
    return false;
}

/* Return whether no copy under the hazard value `what` is in progress on this link. For the owner,
 * after revoking. */
static inline bool shmnd_hazard_is_clear_of(const shmnd_word64 *hazard, uint64_t what)
{
    /* SYNC hazard-clear: acquire, pairs with release in shmnd_hazard_leave() */
    return shmnd_acquire64(hazard) != what;
}

#endif
