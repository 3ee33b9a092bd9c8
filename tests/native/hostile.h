/* SPDX-License-Identifier: Apache-2.0
 *
 * One run against a hostile peer, determined by a string of bytes: the victim's
 * operations, and between them the values that words of shared memory get.
 *
 * The victim's process has two connections on one queue. The peer of the first is
 * hostile: it forges messages and writes any value into its own side of the link,
 * the victim's, both rings and tables, the words of the chunks, its grants, its
 * bell and the victim's marks. The second connection is honest and must be unaffected.
 *
 * Invariants: guards and bytes that are not registered keep their value; no call takes
 * more than a bounded number of steps; every request ends exactly once, at the latest
 * when the hostile peer's process dies; the honest connection's messages arrive whole
 * and in order.
 */
#ifndef SHMND_TEST_HOSTILE_H
#define SHMND_TEST_HOSTILE_H

#define W_INBOX 2048u
#include "world.h"

#define H_REGISTERED (96u << 10)
#define H_BARE (16u << 10)
#define H_MOST 512u

struct hostile {
    struct duo d;
    struct pair *honest, *victim2; /* the honest connection */
    const uint8_t *bytes;
    size_t left;
    uint8_t *victim_memory, *bare, *hostile_memory;
    uint32_t victim_token, hostile_token, window;
    uint64_t posted, ended;
    uint8_t seen[H_MOST]; /* by context: 1 posted, 2 ended */
    uint64_t honest_sent, honest_got;
    uint8_t *honest_source, *honest_sink;
    uint32_t honest_source_token, honest_sink_token;
};

static inline uint64_t h_take(struct hostile *h, uint32_t n)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < n && h->left; i++, h->left--)
        v |= (uint64_t)*h->bytes++ << (8 * i);
    return v;
}

/* A length near a bound at which the protocol of a message changes. */
static inline uint32_t h_length(struct hostile *h)
{
    static const uint32_t lengths[] = {0,    1,    8,    47,   48,    49,    1023,  1024,
                                       2000, 3576, 3577, 5000, 32768, 65535, 65536, 70000};
    return lengths[h_take(h, 1) % 16];
}

/* A value for a word that holds `now`: near it, extreme, or any. */
static inline uint64_t h_value(struct hostile *h, uint64_t now)
{
    switch (h_take(h, 1) % 12) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: return now + 1;
    case 3: return now - 1;
    case 4: return now + 2 + h_take(h, 1);
    case 5: return now ^ (1ull << (h_take(h, 1) & 63));
    case 6: return h_take(h, 1);
    case 7: return h_take(h, 2);
    case 8: return h_take(h, 4);
    case 9: return SHMND_HAZARD_PUSH;
    case 10: return h->window;
    default: return h_take(h, 8);
    }
}

/* ---- the hostile peer ---------------------------------------------------------------- */

static inline void h_poke64(struct hostile *h, void *at)
{
    shmnd_word64 *w = at;
    shmnd_put64(w, h_value(h, shmnd_relaxed64(w)));
}

static inline void h_poke32(struct hostile *h, void *at)
{
    shmnd_word32 *w = at;
    shmnd_put32(w, (uint32_t)h_value(h, shmnd_relaxed32(w)));
}

/* One named word of a side of the link. */
static inline void h_lie_about_side(struct hostile *h, struct shmnd_side *s)
{
    switch (h_take(h, 1) % 14) {
    case 0: h_poke32(h, &s->state); break;
    case 1: h_poke32(h, &s->closing); break;
    case 2: h_poke32(h, &s->wants_credit); break;
    case 3: h_poke32(h, &s->fault); break;
    case 4: h_poke32(h, &s->reaches); break;
    case 5: h_poke32(h, &s->opened); break;
    case 6: h_poke64(h, &s->cancelled); break;
    case 7: h_poke64(h, &s->revision); break;
    case 8: h_poke64(h, &s->read_pos); break;
    case 9: h_poke64(h, &s->taken); break;
    case 10: h_poke64(h, &s->posted); break;
    case 11: h_poke64(h, &s->hazard); break;
    case 12: h_poke64(h, &s->shares[h_take(h, 1) % SHMND_SHARES].claim); break;
    default: h_poke64(h, &s->shares[h_take(h, 1) % SHMND_SHARES].done); break;
    }
}

/* Forged receives of the hostile peer, as the victim reads them. */
static inline void h_forge_posted(struct hostile *h)
{
    struct link *l = h->d.b->link;
    struct shmnd_side *s = (struct shmnd_side *)(l->memory + l->map.side_off[SHMND_ACTIVE]);
    uint64_t idx = shmnd_relaxed64(&s->posted);
    uint8_t *base = l->memory + l->map.posted_off[SHMND_ACTIVE];
    struct shmnd_posted *p =
        (struct shmnd_posted *)(base + (idx & l->map.posted_mask[SHMND_ACTIVE]) *
                                           (uint64_t)l->map.posted_stride[SHMND_ACTIVE]);
    shmnd_put64(&p->capacity, (idx + 1) << 32 | (h_take(h, 1) & 1 ? h_take(h, 4) : 100000));
    uint32_t extents = (uint32_t)(h_take(h, 1) % 40);
    extents = extents < 34 ? extents % 6 : extents;
    shmnd_put64(&p->extents, extents);
    struct shmnd_shared_extent *x = (struct shmnd_shared_extent *)(p + 1);
    for (uint32_t i = 0; i < extents && i < h->d.a->extents; i++) {
        uint64_t segment = h_take(h, 1) % 4 ? 0 : h_take(h, 4);
        shmnd_put64(&x[i].offset, h_value(h, 0));
        shmnd_put64(&x[i].place, segment << 32 | (uint32_t)h_value(h, 70000));
    }
    shmnd_put64(&s->posted, idx + 1);
}

/* A forged listing of the hostile peer's next message. */
static inline void h_forge_listing(struct hostile *h)
{
    struct link *l = h->d.b->link;
    struct shmnd_side *s = (struct shmnd_side *)(l->memory + l->map.side_off[SHMND_ACTIVE]);
    uint64_t message = h->d.b->q.taken + h_take(h, 1) % 2;
    uint8_t *base = l->memory + l->map.listed_off[SHMND_ACTIVE];
    struct shmnd_listed *e =
        (struct shmnd_listed *)(base + (message & l->map.listed_mask[SHMND_ACTIVE]) *
                                           (uint64_t)l->map.listed_stride[SHMND_ACTIVE]);
    uint32_t extents = (uint32_t)(h_take(h, 1) % 40);
    extents = extents < 34 ? extents % 6 : extents;
    uint64_t flags = h_take(h, 1) & 3 ? SHMND_SLOT_ACK : h_take(h, 1);
    shmnd_put64(&e->shape, h_value(h, h->window) << 32 | (message & 0xffff) << 16 |
                               (flags & 0xff) << 8 | extents);
    struct shmnd_shared_extent *x = (struct shmnd_shared_extent *)(e + 1);
    for (uint32_t i = 0; i < extents && i < h->d.a->q.wq.stride; i++) {
        uint64_t segment = h_take(h, 1) % 4 ? 0 : h_take(h, 4);
        shmnd_put64(&x[i].offset, h_take(h, 1) % 3 ? h_take(h, 2) : h_value(h, 0));
        shmnd_put64(&x[i].place, segment << 32 | (uint32_t)h_value(h, 3000));
    }
    shmnd_release64(&e->word,
                    h_value(h, 8) << 3 | (h_take(h, 1) & 3 ? SHMND_LISTED_OPEN : h_take(h, 1) & 7));
    shmnd_put32(&s->state, shmnd_relaxed32(&s->state) | SHMND_LINK_LISTS);
}

/* A forged message, the next one that the victim reads. */
static inline void h_forge_message(struct hostile *h)
{
    struct shmnd_qp *q = &h->d.b->q;
    if (!q->in.ring)
        return;
    struct shmnd_slot *s = shmnd_reader_slot(&q->in, q->in.read_pos + h_take(h, 1) % 3);
    uint64_t pos = q->in.read_pos;
    s->kind = (uint8_t)(h_take(h, 1) % 7);
    s->flags = (uint8_t)h_take(h, 1);
    s->length = h_take(h, 1) & 1 ? h_length(h) : (uint32_t)h_take(h, 4);
    uint32_t words[12];
    for (int i = 0; i < 12; i++)
        words[i] = (uint32_t)h_value(h, i == 0 ? 1 : i == 5 ? s->length : 0);
    memcpy(s->payload, words, sizeof words);
    if (h_take(h, 1) % 4 == 0)
        pos |= h_take(h, 1) & 1 ? SHMND_POS_RECALLED : SHMND_POS_CLAIMED;
    shmnd_release64(&s->ready_pos, pos + 1);
}

static inline void h_lie_about_grants(struct hostile *h)
{
    struct shmnd_grant *g = shmnd_grant_entry(&h->d.pa->registry, h->hostile_token);
    switch (h_take(h, 1) % 7) {
    case 0: h_poke32(h, &g->token); break;
    case 1: h_poke32(h, &g->rights); break;
    case 2: h_poke64(h, &g->base); break;
    case 3: h_poke64(h, &g->length); break;
    case 4: h_poke64(h, &g->offset); break;
    case 5: h_poke32(h, &g->segment); break;
    default: h_poke64(h, &g->connection); break;
    }
}

static inline void h_lie(struct hostile *h)
{
    struct link *l = h->d.b->link;
    struct shmnd_marks *marks = h->d.qb->cq.arming.marks; /* of the victim */
    struct shmnd_bell *bell = h->d.qa->cq.arming.bell; /* of the hostile peer, read by the victim */
    uint64_t words = l->map.bytes / 8;
    switch (h_take(h, 1) % 12) {
    case 0:
    case 1:
        h_lie_about_side(h, (struct shmnd_side *)(l->memory + l->map.side_off[SHMND_ACTIVE]));
        break;
    case 2:
        h_lie_about_side(h, (struct shmnd_side *)(l->memory + l->map.side_off[SHMND_PASSIVE]));
        break;
    case 3:
    case 4: h_forge_message(h); break;
    case 5: h_forge_posted(h); break;
    case 6: h_lie_about_grants(h); break;
    case 7:
        h_poke64(h, h_take(h, 1) & 1 ? &bell->armed : &marks->ready[h_take(h, 1) % 64]);
        h_poke32(h, &bell->use_bitmap);
        break;
    case 8: h_forge_listing(h); break;
    default: h_poke64(h, l->memory + h_take(h, 4) % words * 8);
    }
}

/* ---- the victim ---------------------------------------------------------------------- */

static inline void h_collect(struct hostile *h)
{
    struct queue *q = h->d.qb;
    queue_turn(q);
    for (; q->taken != q->got; q->taken++) {
        struct shmnd_cqe *e = &q->inbox[q->taken];
        uint64_t context = (uint64_t)(uintptr_t)e->context;
        if (e->qp_context == h->victim2) {
            EQUAL(e->status, SHMND_SUCCESS);
            h->honest_got++;
            continue;
        }
        CHECK(e->qp_context == h->d.b && context > 0 && context < H_MOST);
        EQUAL(h->seen[context], 1);
        h->seen[context] = 2;
        h->ended++;
    }
}

static inline void h_count(struct hostile *h, uint32_t status)
{
    if (status == SHMND_SUCCESS)
        h->seen[++h->posted] = 1;
}

static inline void h_act(struct hostile *h)
{
    struct pair *b = h->d.b;
    uint64_t context = h->posted + 1;
    if (context + 1 >= H_MOST || h->d.qb->got + 600 > W_INBOX)
        return;
    uint32_t length = h_length(h), half = length / 2;
    uint8_t *at = h->victim_memory + h_take(h, 2) % (H_REGISTERED - 70000);
    struct shmnd_sge s[2] = {sge(at, half, h->victim_token),
                             sge(at + half, length - half, h->victim_token)};
    /* Contexts are counted before the call, which may complete at once. */
    bool live = b->q.state == SHMND_QP_CONNECTED;
    switch (h_take(h, 1) % 8) {
    case 0:
    case 1: h_count(h, post_receive(b, context, s, 2)); break;
    case 2:
    case 3:
        h_count(h, post_send(b, context, s, 2, (uint32_t)(h_take(h, 1) & SHMND_OP_SOLICIT)));
        break;
    case 4:
        h_count(h, post_rdma(b, context, h_take(h, 1) & 1 ? SHMND_READ : SHMND_WRITE, s, 2,
                             h->hostile_memory + h_take(h, 2), h->hostile_token, 0));
        break;
    case 5:
        if (live && h_take(h, 1) % 4 == 0) {
            shmnd_qp_flush(&b->q);
            settle(b);
        }
        break;
    default: break;
    }
    h_collect(h);
}

/* One message over the honest connection, of which each byte is checked. */
static inline void h_honest(struct hostile *h)
{
    uint32_t length = 1 + (uint32_t)(h->honest_sent * 577 % 9000);
    fill(h->honest_source, length, h->honest_sent);
    memset(h->honest_sink, 0, length + 1);
    struct shmnd_sge s = sge(h->honest_source, length, h->honest_source_token);
    struct shmnd_sge r = sge(h->honest_sink, length, h->honest_sink_token);
    EQUAL(post_receive(h->victim2, 1, &r, 1), SHMND_SUCCESS);
    EQUAL(post_send(h->honest, 1, &s, 1, 0), SHMND_SUCCESS);
    h->honest_sent++;
    for (int i = 0; i < 20 && h->honest_got != h->honest_sent; i++) {
        h_collect(h);
        queue_turn(h->honest->receive);
        h->honest->receive->taken = h->honest->receive->got = 0;
    }
    EQUAL(h->honest_got, h->honest_sent);
    CHECK(filled(h->honest_sink, length, h->honest_sent - 1));
    EQUAL(h->honest_sink[length], 0);
}

/* ---- a run --------------------------------------------------------------------------- */

static inline void h_open(struct hostile *h)
{
    struct world_options o = {.segment_bytes = 256u << 10, .no_vm = true};
    duo_open_with(&h->d, o, pair_usual, pair_usual);
    struct queue *apart = queue_new(h->d.pa, 64);
    h->honest = pair_new(apart, apart, pair_usual);
    h->victim2 = pair_new(h->d.qb, h->d.qb, pair_usual);
    pair_connect(h->honest, h->victim2);
    h->victim_memory = shared_bytes(h->d.pb, H_REGISTERED);
    h->bare = shared_bytes(h->d.pb, H_BARE);
    h->hostile_memory = shared_bytes(h->d.pa, H_REGISTERED);
    h->victim_token = region_new(h->d.pb, h->victim_memory, H_REGISTERED, SHMND_MR_LOCAL_WRITE);
    h->hostile_token = region_new(h->d.pa, h->hostile_memory, H_REGISTERED,
                                  SHMND_MR_REMOTE_READ | SHMND_MR_REMOTE_WRITE);
    h->window = window_new(h->d.pb, h->victim_memory, 4096, SHMND_ALLOW_WRITE, 77);
    h->honest_source = shared_bytes(h->d.pa, 9216);
    h->honest_sink = shared_bytes(h->d.pb, 9216);
    h->honest_source_token = region_new(h->d.pa, h->honest_source, 9216, 0);
    h->honest_sink_token = region_new(h->d.pb, h->honest_sink, 9216, SHMND_MR_LOCAL_WRITE);
    fill(h->bare, H_BARE, 5);
}

static inline void hostile_run(const uint8_t *bytes, size_t count)
{
    static struct hostile run;
    struct hostile *h = &run;
    memset(h, 0, sizeof *h);
    h->bytes = bytes;
    h->left = count;
    h_open(h);
    for (int i = 0; h->left && i < 400; i++) {
        uint32_t what = (uint32_t)h_take(h, 1) % 8;
        if (what < 4)
            h_lie(h);
        else if (what < 7)
            h_act(h);
        else
            h_collect(h);
    }
    h_honest(h);
    CHECK(filled(h->bare, H_BARE, 5));
    peer_dies(h->d.pb);
    for (int i = 0; i < 50 && (h->ended != h->posted || h->d.b->q.going_down); i++) {
        settle(h->d.b);
        settle(h->victim2);
        h_collect(h);
    }
    EQUAL(h->d.b->q.going_down, false);
    if (h->d.b->q.state == SHMND_QP_CONNECTED || h->d.b->q.state == SHMND_QP_DOWN)
        EQUAL(h->ended, h->posted);
    duo_close(&h->d);
}

#endif
