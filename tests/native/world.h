/* SPDX-License-Identifier: Apache-2.0
 *
 * The data plane of two processes in one process: registries, segments, queues,
 * queue pairs and links over guarded memory, driven as the compiled classes drive
 * them. world_open() makes all of it, world_close() checks and frees it.
 */
#ifndef SHMND_TEST_WORLD_H
#define SHMND_TEST_WORLD_H

#include <poll.h>

#include "check.h"
#include "send/post.h"

#define W_QUEUES 8u
#define W_PAIRS 96u
#define W_REGIONS 256u
#ifndef W_INBOX
#define W_INBOX 16384u
#endif
#define W_SECOND 1000000000ull

struct proc;

struct queue {
    struct shmnd_cq cq;
    struct proc *proc;
    uint64_t reserved;
    uint32_t next_bit;
    struct shmnd_cqe *inbox;
    uint32_t got, taken;
};

struct pair {
    struct shmnd_qp q;
    struct shmnd_counters counters;
    struct proc *proc;
    struct queue *receive, *initiator;
    struct link *link;
    uint32_t extents;
};

struct link {
    uint8_t *memory;
    struct shmnd_link_map map;
    struct pair *end[2];
};

struct proc {
    struct shmnd_registry registry;
    struct shmnd_peer peer;      /* its view of the other process */
    struct shmnd_mapping hidden; /* the other's segment, until it is mapped */
    uint16_t generations[W_REGIONS];
    uint8_t *segment;
    uint64_t segment_bytes, segment_used;
    uint64_t given_back, given_sum; /* released contexts of silent successes */
    struct queue *queues[W_QUEUES];
    uint32_t queue_count;
    int doorbell; /* its end of the doorbell, and the producers' end */
    int rung_by;
    struct world *world;
};

struct world {
    struct proc p[2];
    struct queue queues[W_QUEUES];
    struct pair pairs[W_PAIRS];
    struct link links[W_PAIRS / 2];
    uint32_t queue_count, pair_count, link_count;
    uint64_t serials;
    bool fitting_rings;
};

struct world_options {
    uint64_t segment_bytes; /* 0: 1 MiB each */
    bool no_vm;             /* neither can access the other's private memory */
    bool unmapped;          /* segments are mapped only on demand */
    bool fitting_rings;     /* sized for the depths; otherwise of the usual size */
};

/* ---- setup ---------------------------------------------------------------------- */

static inline void world_open(struct world *w, struct world_options o)
{
    memset(w, 0, sizeof *w);
    w->fitting_rings = o.fitting_rings;
    for (int i = 0; i < 2; i++) {
        struct proc *p = &w->p[i];
        p->world = w;
        p->segment_bytes = o.segment_bytes ? o.segment_bytes : 1 << 20;
        p->segment = guard_alloc(p->segment_bytes);
        p->registry.regions = guard_alloc(W_REGIONS * sizeof(struct shmnd_region));
        p->registry.count = 1; /* entry 0 is unused, so that no token is small */
        p->registry.tables[0] = guard_alloc(SHMND_TABLE_ENTRIES * sizeof(struct shmnd_grant));
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
        p->doorbell = ends[0];
        p->rung_by = ends[1];
    }
    for (int i = 0; i < 2; i++) {
        struct shmnd_peer *peer = &w->p[i].peer;
        struct proc *other = &w->p[1 - i];
        w->p[i].hidden =
            (struct shmnd_mapping){.base = other->segment, .bytes = other->segment_bytes};
        peer->data = guard_alloc(2 * sizeof(struct shmnd_mapping));
        peer->data_mask = 1;
        if (!o.unmapped)
            peer->data[0] = w->p[i].hidden;
        peer->tables[0].base = (uint8_t *)other->registry.tables[0];
        peer->tables[0].bytes = SHMND_TABLE_ENTRIES * sizeof(struct shmnd_grant);
        peer->doorbell = other->rung_by;
        peer->process = shmnd_this_process();
        peer->vm = !o.no_vm;
    }
}

static inline struct queue *queue_new(struct proc *p, uint32_t depth)
{
    struct world *w = p->world;
    CHECK(w->queue_count < W_QUEUES && p->queue_count < W_QUEUES);
    struct queue *c = &w->queues[w->queue_count++];
    c->proc = p;
    c->cq.limit = depth;
    c->cq.arming.bell = guard_alloc(sizeof(struct shmnd_bell));
    c->cq.arming.marks = guard_alloc(sizeof(struct shmnd_marks));
    c->cq.links = guard_alloc(W_PAIRS * sizeof(void *));
    c->cq.active = guard_alloc(W_PAIRS * sizeof(void *));
    c->cq.by_bit = guard_alloc(SHMND_READY_BITS * sizeof(void *));
    c->inbox = guard_alloc(W_INBOX * sizeof c->inbox[0]);
    p->queues[p->queue_count++] = c;
    return c;
}

/* Reserves room for `entries` more; called before the queue is used. */
static inline void queue_reserve(struct queue *c, uint64_t entries)
{
    CHECK(shmnd_cq_count(&c->cq) == 0);
    c->reserved += entries;
    uint32_t size = shmnd_pow2_at_least((uint32_t)(c->cq.limit + 2 * c->reserved));
    c->cq.ring = guard_alloc(size * sizeof(struct shmnd_cqe));
    c->cq.mask = size - 1;
    c->cq.bound = size - c->reserved;
}

struct pair_options {
    uint32_t receives, requests, sges, inline_size;
    uint64_t rnr_ns;
    struct shmnd_receives *srq;
};

static const struct pair_options pair_usual = {16, 16, 4, 128, 10 * W_SECOND, NULL};

static inline void receives_make(struct shmnd_receives *r, uint32_t depth, uint32_t sges)
{
    uint32_t size = shmnd_pow2_at_least(depth ? depth : 1);
    memset(r, 0, sizeof *r);
    r->depth = depth;
    r->mask = size - 1;
    r->stride = sges;
    r->entries = guard_alloc(size * sizeof(struct shmnd_rqe));
    r->sges = guard_alloc(size * sges * sizeof(struct shmnd_sge));
}

static inline struct pair *pair_new(struct queue *receive, struct queue *initiator,
                                    struct pair_options o)
{
    struct proc *p = receive->proc;
    struct world *w = p->world;
    CHECK(w->pair_count < W_PAIRS);
    struct pair *e = &w->pairs[w->pair_count++];
    struct shmnd_qp *q = &e->q;
    e->proc = p;
    e->receive = receive;
    e->initiator = initiator;
    e->extents = o.sges;
    q->owner = e;
    q->counters = &e->counters;
    q->context = e;
    q->registry = &p->registry;
    q->receive_cq = &receive->cq;
    q->initiator_cq = &initiator->cq;
    q->receive_bit = receive->next_bit++;
    q->initiator_bit = initiator == receive ? q->receive_bit : initiator->next_bit++;
    q->max_transfer = 0x80000000u;
    q->max_read_sge = 16;
    q->outbound_read_limit = 16;
    q->target_fault = SHMND_ACCESS_VIOLATION;
    q->inline_size = o.inline_size;
    q->rnr_ns = o.rnr_ns;
    uint32_t size = shmnd_pow2_at_least(o.requests + 1);
    q->wq.depth = o.requests;
    q->wq.mask = size - 1;
    q->wq.stride = o.sges;
    q->wq.entries = guard_alloc(size * sizeof(struct shmnd_wqe));
    q->wq.sges = guard_alloc(size * o.sges * sizeof(struct shmnd_sge));
    q->wq.inlined = guard_alloc(size * (o.inline_size ? o.inline_size : 1));
    q->receives = &q->own;
    if (o.srq) {
        q->shared = true;
        q->receives = o.srq;
        queue_reserve(receive, SHMND_RING_USUAL + 2);
    } else {
        receives_make(&q->own, o.receives, o.sges);
        queue_reserve(receive, o.receives + 2);
    }
    queue_reserve(initiator, o.requests + 1);
    return e;
}

static inline void pair_attach(struct pair *e, struct link *l, int me, struct pair *other)
{
    struct shmnd_qp *q = &e->q;
    struct shmnd_link_end *end = &q->link;
    int it = 1 - me;
    end->mine = (struct shmnd_side *)(l->memory + l->map.side_off[me]);
    end->theirs = (struct shmnd_side *)(l->memory + l->map.side_off[it]);
    end->my_posted = l->memory + l->map.posted_off[me];
    end->my_posted_mask = l->map.posted_mask[me];
    end->my_posted_stride = l->map.posted_stride[me];
    end->my_extents = e->extents;
    end->their_posted = l->memory + l->map.posted_off[it];
    end->their_posted_mask = l->map.posted_mask[it];
    end->their_posted_stride = l->map.posted_stride[it];
    end->their_extents = other->extents;
    end->my_listed = l->memory + l->map.listed_off[me];
    end->my_listed_mask = l->map.listed_mask[me];
    end->my_listed_stride = l->map.listed_stride[me];
    end->their_listed = l->memory + l->map.listed_off[it];
    end->their_listed_mask = l->map.listed_mask[it];
    end->their_listed_stride = l->map.listed_stride[it];
    end->their_elements = other->q.wq.stride;
    shmnd_bounce_release(q); /* of the connection before */
    end->my_bounce = l->memory + l->map.bounce_off[me];
    end->their_bounce = l->memory + l->map.bounce_off[it];
    end->receive_bell = other->receive->cq.arming.bell;
    end->initiator_bell = other->initiator->cq.arming.bell;
    end->receive_marks = other->receive->cq.arming.marks;
    end->initiator_marks = other->initiator->cq.arming.marks;
    end->receive_bit = other->q.receive_bit;
    end->initiator_bit = other->q.initiator_bit;
    end->connection = 77 + (uint64_t)(l - e->proc->world->links);
    end->their_srq = other->q.shared;
    q->out = (struct shmnd_slots_writer){.ring = l->memory + l->map.ring_off[me],
                                         .read_pos = &end->theirs->read_pos,
                                         .mask = l->map.ring_mask[me],
                                         .room_pos = l->map.ring_mask[me] + 1};
    q->in = (struct shmnd_slots_reader){.ring = l->memory + l->map.ring_off[it],
                                        .read_pos_shared = &end->mine->read_pos,
                                        .mask = l->map.ring_mask[it]};
    q->posted_base = q->own.matched;
    q->peer = &e->proc->peer;
    q->serial = ++e->proc->world->serials;
    shmnd_counters_clear(q->counters);
    shmnd_counters_open(q->counters, q->serial);
    shmnd_qp_set_state(q, SHMND_QP_ATTACHED);
    shmnd_count_posted(q);
    e->link = l;
    l->end[me] = e;
    shmnd_put32(&end->mine->reaches, q->peer->vm ? 1 : 2);
    for (uint64_t pos = q->own.matched; pos != q->own.posted; pos++)
        shmnd_rx_advertise(q, pos);
    shmnd_cq_add_qp(&e->receive->cq, q);
    shmnd_cq_add_qp(&e->initiator->cq, q);
}

/* A link between two pairs, which pair_open() completes. */
static inline struct link *pair_link(struct pair *active, struct pair *passive)
{
    struct world *w = active->proc->world;
    struct link *l = &w->links[w->link_count++];
    struct shmnd_link_shape shape = {
        .receives = {active->q.own.depth, passive->q.own.depth},
        .extents = {active->extents, passive->extents},
        .requests = {active->q.wq.depth, passive->q.wq.depth},
        .elements = {active->q.wq.stride, passive->q.wq.stride},
        .slots = {SHMND_RING_USUAL, SHMND_RING_USUAL},
    };
    if (w->fitting_rings)
        shmnd_link_rings(&shape);
    l->map = shmnd_link_map(&shape);
    l->memory = guard_alloc(l->map.bytes);
    pair_attach(passive, l, SHMND_PASSIVE, active);
    pair_attach(active, l, SHMND_ACTIVE, passive);
    return l;
}

/* As where the kernel has no memory for what it sends by way of its bounce area. */
static inline void pair_never_bounces(struct pair *p)
{
    p->q.bounces.committed = 0;
    p->q.bounces.refused = true;
}

static inline void pair_open(struct pair *active)
{
    shmnd_put32(&active->q.link.mine->opened, 1);
    shmnd_qp_set_state(&active->q, SHMND_QP_CONNECTED);
    shmnd_publish_state(&active->q, SHMND_LINK_OPEN);
}

static inline void pair_connect(struct pair *active, struct pair *passive)
{
    pair_link(active, passive);
    pair_open(active);
    shmnd_qp_check_peer(&passive->q);
    EQUAL(passive->q.state, SHMND_QP_CONNECTED);
}

/* ---- memory ----------------------------------------------------------------------- */

/* Memory in the process's shared segment. */
static inline uint8_t *shared_bytes(struct proc *p, uint64_t bytes)
{
    CHECK(p->segment_used + bytes <= p->segment_bytes);
    uint8_t *at = p->segment + p->segment_used;
    p->segment_used += (bytes + 63) & ~63ull;
    return at;
}

/* Registers memory; memory outside the segment is private. */
static inline uint32_t region_new(struct proc *p, const void *at, uint64_t bytes, uint32_t rights)
{
    uint32_t idx = p->registry.count++;
    CHECK(idx < W_REGIONS);
    uint64_t base = (uint64_t)(uintptr_t)at, start = (uint64_t)(uintptr_t)p->segment;
    bool shared = shmnd_range_within(base, bytes, start, p->segment_bytes);
    struct shmnd_region *r = &p->registry.regions[idx];
    *r = (struct shmnd_region){.base = base,
                               .length = bytes,
                               .rights = rights,
                               .token = ++p->generations[idx] << SHMND_TOKEN_INDEX_BITS | idx,
                               .offset = shared ? base - start : 0,
                               .segment = shared ? 0 : SHMND_PRIVATE_MEMORY};
    uint32_t allowed = (rights & SHMND_MR_REMOTE_READ ? SHMND_ALLOW_READ : 0) |
                       ((rights & 5) == 5 ? SHMND_ALLOW_WRITE : 0);
    if (allowed)
        shmnd_grant_publish(shmnd_grant_entry(&p->registry, r->token), r, allowed, 0);
    return r->token;
}

/* First half of Deregister: lookups of an SGE in it fail, and its grant is revoked. */
static inline void region_withdraw(struct proc *p, uint32_t token)
{
    struct shmnd_region *r = shmnd_region_lookup(&p->registry, token);
    struct shmnd_grant *grant = shmnd_grant_entry(&p->registry, token);
    r->base = UINT64_MAX;
    r->length = 0;
    if (shmnd_relaxed32(&grant->token) == token)
        shmnd_grant_revoke(grant);
}

/* A window's grant on memory of `p`, for one connection. */
static inline uint32_t window_new(struct proc *p, const void *at, uint64_t bytes, uint32_t allowed,
                                  uint64_t connection)
{
    uint32_t token = region_new(p, at, bytes, 0);
    struct shmnd_region *r = shmnd_region_lookup(&p->registry, token);
    shmnd_grant_publish(shmnd_grant_entry(&p->registry, token), r, allowed, connection);
    return token;
}

/* The same window again, under a new token. */
static inline uint32_t window_again(struct proc *p, uint32_t token, uint32_t allowed,
                                    uint64_t connection)
{
    uint32_t idx = shmnd_token_index(token);
    struct shmnd_region *r = &p->registry.regions[idx];
    r->token = (uint32_t)++p->generations[idx] << SHMND_TOKEN_INDEX_BITS | idx;
    shmnd_grant_publish(shmnd_grant_entry(&p->registry, r->token), r, allowed, connection);
    return r->token;
}

/* A window bound to `e` as by Bind; its invalidation by the peer completes with `context`. */
static inline uint32_t window_bind(struct pair *e, const void *at, uint64_t bytes, uint32_t allowed,
                                   uint64_t context)
{
    uint32_t token = window_new(e->proc, at, bytes, allowed, e->q.link.connection);
    struct shmnd_region *r = shmnd_region_lookup(&e->proc->registry, token);
    r->serial = e->q.serial;
    shmnd_window_set_context(&e->proc->registry, r, (void *)(uintptr_t)context);
    queue_reserve(e->receive, 1);
    return token;
}

static inline struct shmnd_sge sge(const void *at, uint32_t length, uint32_t token)
{
    return (struct shmnd_sge){(uint64_t)(uintptr_t)at, length, token};
}

static inline void fill(uint8_t *at, uint64_t bytes, uint64_t salt)
{
    struct chance c = {salt};
    uint64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t v = chance_next(&c);
        memcpy(at + i, &v, 8);
    }
    for (; i < bytes; i++)
        at[i] = (uint8_t)(salt + i);
}

static inline bool filled(const uint8_t *at, uint64_t bytes, uint64_t salt)
{
    struct chance c = {salt};
    uint64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t v = chance_next(&c);
        if (memcmp(at + i, &v, 8))
            return false;
    }
    for (; i < bytes; i++)
        if (at[i] != (uint8_t)(salt + i))
            return false;
    return true;
}

/* ---- progress ------------------------------------------------------------------------ */

static inline void serve(struct shmnd_qp *q, enum shmnd_progress what, bool receiving)
{
    struct pair *e = q->owner;
    if (what == SHMND_NEEDS_MAP) {
        struct shmnd_mapping *m = &e->proc->peer.data[0];
        if (!m->base && e->proc->hidden.base)
            *m = e->proc->hidden;
        else
            shmnd_fail_unmapped(q, receiving);
    } else if (receiving) {
        CHECK(!q->rx.busy && q->rx.job.kind != SHMND_JOB_NONE);
        q->rx.busy = true;
        shmnd_rx_resolve_again(q);
        shmnd_rx_run(q);
        shmnd_rx_run_done(q);
    } else {
        CHECK(q->tx.busy && q->tx.job.kind != SHMND_JOB_NONE);
        shmnd_tx_run(q);
        shmnd_tx_run_done(q);
    }
}

/* Releases the contexts of silent successes. */
static inline void release_contexts(struct proc *p)
{
    for (void *context; (context = shmnd_pop_unreleased_context(&p->registry)) != NULL;) {
        p->given_back++;
        p->given_sum += (uintptr_t)context;
    }
}

/* As the compiled class does after posting. */
static inline void advance(struct pair *e)
{
    for (int i = 0; i < 100000; i++) {
        enum shmnd_progress p = shmnd_tx_advance(&e->q);
        release_contexts(e->proc);
        if (p == SHMND_IDLE)
            return;
        serve(&e->q, p, false);
    }
    CHECK(!"posting ends");
}

/* Makes all progress that one pair can make by itself now. */
static inline void settle(struct pair *e)
{
    for (int i = 0; i < 100000; i++) {
        struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
        shmnd_qp_progress_todo(&e->q, shmnd_coarse_ns(), &todo);
        release_contexts(e->proc);
        if (todo.what == SHMND_IDLE)
            return;
        serve(todo.qp, todo.what, todo.receiving);
    }
    CHECK(!"settling ends");
}

static inline uint32_t queue_poll(struct queue *c, struct shmnd_cqe *out, uint32_t most)
{
    for (int i = 0; i < 100000; i++) {
        struct shmnd_todo todo;
        uint32_t n = shmnd_cq_poll(&c->cq, out, most, &todo);
        CHECK(n <= most);
        CHECK(shmnd_cq_count(&c->cq) <= c->cq.mask + 1);
        release_contexts(c->proc);
        if (todo.what != SHMND_IDLE)
            serve(todo.qp, todo.what, todo.receiving);
        if (n || todo.what == SHMND_IDLE)
            return n;
    }
    CHECK(!"polling ends");
    return 0;
}

/* Polls once; completions go to the inbox. */
static inline uint32_t queue_turn(struct queue *c)
{
    struct shmnd_cqe out[32];
    shmnd_marks_accept_request(c->cq.arming.marks); /* as a requested poll does */
    uint32_t n = queue_poll(c, out, 32), kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(c->got < W_INBOX);
        c->inbox[c->got++] = out[i];
        kept++;
    }
    return kept;
}

static inline uint32_t proc_turn(struct proc *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->queue_count; i++)
        n += queue_turn(p->queues[i]);
    return n;
}

static inline void world_turns(struct world *w, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        proc_turn(&w->p[0]);
        proc_turn(&w->p[1]);
    }
}

/* The next completion of a queue, both processes polling meanwhile. */
static inline struct shmnd_cqe next(struct queue *c)
{
    for (uint32_t i = 0; i < 20000 && c->taken == c->got; i++)
        world_turns(c->proc->world, 1);
    CHECK(c->taken < c->got);
    struct shmnd_cqe e = c->inbox[c->taken++];
    if (c->taken == c->got)
        c->taken = c->got = 0;
    return e;
}

static inline bool nothing(struct queue *c)
{
    world_turns(c->proc->world, 8);
    return c->taken == c->got;
}

/* The next completion is this one. */
#define EXPECT(queue, type_, context_, status_)                                                    \
    do {                                                                                           \
        struct shmnd_cqe e_ = next(queue);                                                         \
        EQUAL(e_.type, type_);                                                                     \
        EQUAL((uintptr_t)e_.context, context_);                                                    \
        EQUAL(e_.status, status_);                                                                 \
    } while (0)

#define EXPECT_RECEIVED(queue, context_, bytes_)                                                   \
    do {                                                                                           \
        struct shmnd_cqe e_ = next(queue);                                                         \
        EQUAL(e_.type, SHMND_RECEIVE);                                                             \
        EQUAL(e_.status, SHMND_SUCCESS);                                                           \
        EQUAL((uintptr_t)e_.context, context_);                                                    \
        EQUAL(e_.bytes, bytes_);                                                                   \
    } while (0)

static inline uint32_t post_send(struct pair *e, uint64_t context, const struct shmnd_sge *s,
                                 uint32_t n, uint32_t flags)
{
    bool kept;
    uint32_t status = shmnd_post_send(&e->q, (void *)(uintptr_t)context, s, n, flags, &kept);
    if (status == SHMND_SUCCESS && e->q.wq.oldest != e->q.wq.end &&
        !(e->q.batch && e->q.wq.next == e->q.wq.end))
        advance(e);
    return status;
}

static inline uint32_t post_invalidating(struct pair *e, uint64_t context,
                                         const struct shmnd_sge *s, uint32_t n, uint32_t token,
                                         uint32_t flags)
{
    uint32_t status =
        shmnd_post_send_invalidate(&e->q, (void *)(uintptr_t)context, s, n, token, flags);
    if (status == SHMND_SUCCESS)
        advance(e);
    return status;
}

static inline uint32_t post_rdma(struct pair *e, uint64_t context, uint8_t type,
                                 const struct shmnd_sge *s, uint32_t n, const void *address,
                                 uint32_t token, uint32_t flags)
{
    bool kept;
    uint32_t status = shmnd_post_rdma(&e->q, (void *)(uintptr_t)context, type, s, n,
                                      (uint64_t)(uintptr_t)address, token, flags, &kept);
    if (status == SHMND_SUCCESS)
        advance(e);
    return status;
}

/* The owner's Invalidate, as the compiled classes execute it. */
static inline void window_invalidate(struct pair *e, uint64_t context, uint32_t token)
{
    struct shmnd_region *r = shmnd_region_lookup(&e->proc->registry, token);
    bool bound = r && r->serial == e->q.serial;
    if (bound) {
        shmnd_grant_revoke(shmnd_grant_entry(&e->proc->registry, token));
        r->serial = 0;
        r->token = 0;
    }
    CHECK(shmnd_hold_entry(&e->q) == SHMND_SUCCESS);
    shmnd_post_window(&e->q, (void *)(uintptr_t)context, SHMND_INVALIDATE, bound ? token : 0,
                      bound ? SHMND_SUCCESS : SHMND_INVALID_DEVICE_REQUEST, 0);
    advance(e);
}

static inline uint32_t post_receive(struct pair *e, uint64_t context, const struct shmnd_sge *s,
                                    uint32_t n)
{
    return shmnd_post_receive(&e->q, (void *)(uintptr_t)context, s, n);
}

static inline void disconnect(struct pair *e)
{
    shmnd_qp_disconnect(&e->q);
    settle(e);
}

/* Marks the other process of `p` dead, as the progress engine does. */
static inline void peer_dies(struct proc *p)
{
    struct world *w = p->world;
    p->peer.dead = true;
    for (uint32_t i = 0; i < w->pair_count; i++)
        if (w->pairs[i].proc == p && w->pairs[i].q.link.mine)
            settle(&w->pairs[i]);
}

/* ---- closing ---------------------------------------------------------------------------- */

/* Checks that the counters of a pair agree with its private state. */
static inline void counters_check(const struct pair *e)
{
    const struct shmnd_qp *q = &e->q;
    const struct shmnd_counters *t = &e->counters;
    EQUAL(shmnd_relaxed64(&t->state), q->state);
    EQUAL(shmnd_relaxed64(&t->sent), q->messages);
    EQUAL(shmnd_relaxed64(&t->recalled), q->recalled);
    EQUAL(shmnd_relaxed64(&t->taken), q->taken);
    EQUAL(shmnd_relaxed64(&t->outstanding), q->wq.end - q->wq.oldest);
    if (q->wq.oldest == q->wq.end)
        EQUAL(shmnd_relaxed64(&t->waiting_ns), 0);
    if (q->shared || q->rx.open)
        return;
    uint64_t met =
        shmnd_relaxed64(&t->taken) - shmnd_relaxed64(&t->skipped) + shmnd_relaxed64(&t->unfilled);
    EQUAL(shmnd_relaxed64(&t->posted) - met, q->own.posted - q->own.matched);
}

static inline void world_close(struct world *w)
{
    for (uint32_t i = 0; i < w->pair_count; i++)
        counters_check(&w->pairs[i]);
    for (int i = 0; i < 2; i++) {
        close(w->p[i].doorbell);
        close(w->p[i].rung_by);
    }
    guard_free_all();
}

/* The usual setup: one queue for each side, one connected pair. */
struct duo {
    struct world w;
    struct queue *qa, *qb;
    struct pair *a, *b;
    struct proc *pa, *pb;
};

static inline void duo_open_with(struct duo *d, struct world_options wo, struct pair_options ao,
                                 struct pair_options bo)
{
    world_open(&d->w, wo);
    d->pa = &d->w.p[0];
    d->pb = &d->w.p[1];
    d->qa = queue_new(d->pa, 64);
    d->qb = queue_new(d->pb, 64);
    d->a = pair_new(d->qa, d->qa, ao);
    d->b = pair_new(d->qb, d->qb, bo);
    pair_connect(d->a, d->b);
}

static inline void duo_open(struct duo *d)
{
    duo_open_with(d, (struct world_options){0}, pair_usual, pair_usual);
}

static inline void duo_close(struct duo *d)
{
    world_close(&d->w);
}

#endif
