/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends that invalidate a window of the receiver's: every protocol, the order of the
 * completions, the race with the owner's own Invalidate, and tokens that a peer has no
 * right to name.
 */
#include "world.h"

#define ALL (SHMND_ALLOW_READ | SHMND_ALLOW_WRITE)
#define TOLD 500u /* the context of a window's result */

struct stage {
    struct duo d;
    struct shmnd_receives srq;
    uint8_t *src, *dst, *open; /* `open` is the memory of the window */
    uint32_t ta, tb, to, window;
    uint32_t bytes;
    bool shared;
};

struct how {
    bool private, no_vm, srq, silent_window;
    uint32_t bytes, receives;
};

static void stage_open(struct stage *s, struct how h)
{
    memset(s, 0, sizeof *s);
    struct pair_options o = pair_usual, bo = pair_usual;
    o.receives = bo.receives = h.receives ? h.receives : 16;
    s->shared = h.srq;
    if (h.srq) {
        receives_make(&s->srq, 16, 4);
        bo.srq = &s->srq;
    }
    duo_open_with(&s->d, (struct world_options){.segment_bytes = 256 << 10, .no_vm = h.no_vm}, o,
                  bo);
    s->bytes = h.bytes;
    uint64_t room = h.bytes + 64;
    s->src = h.private ? guard_alloc(room) : shared_bytes(s->d.pa, room);
    s->dst = h.private ? guard_alloc(room) : shared_bytes(s->d.pb, room);
    s->open = shared_bytes(s->d.pb, 4096);
    s->ta = region_new(s->d.pa, s->src, room, 0);
    s->tb = region_new(s->d.pb, s->dst, room, 1);
    s->to = region_new(s->d.pb, s->open, 4096, 1);
    s->window = window_bind(s->d.b, s->open, 4096, ALL, h.silent_window ? 0 : TOLD);
    fill(s->src, h.bytes, 9);
}

static void stage_receive(struct stage *s, uint64_t context)
{
    struct shmnd_sge r = sge(s->dst, s->bytes, s->tb);
    if (s->shared)
        shmnd_receives_add(&s->srq, (void *)(uintptr_t)context, &r, 1);
    else
        EQUAL(post_receive(s->d.b, context, &r, 1), SHMND_SUCCESS);
}

static void stage_send(struct stage *s, uint64_t context, uint32_t token)
{
    struct shmnd_sge m = sge(s->src, s->bytes, s->ta);
    EQUAL(post_invalidating(s->d.a, context, &m, 1, token, 0), SHMND_SUCCESS);
}

static void stage_plain(struct stage *s, uint64_t context)
{
    struct shmnd_sge m = sge(s->src, 8, s->ta);
    EQUAL(post_send(s->d.a, context, &m, 1, 0), SHMND_SUCCESS);
}

static bool alive(const struct stage *s)
{
    const struct shmnd_registry *r = &s->d.pb->registry;
    bool granted = shmnd_relaxed32(&shmnd_grant_entry(r, s->window)->token) == s->window;
    EQUAL(granted,
          shmnd_region_lookup(r, s->window) && shmnd_region_lookup(r, s->window)->serial != 0);
    return granted;
}

/* A Write through the window, by the peer. */
static void stage_write(struct stage *s, uint64_t context)
{
    struct shmnd_sge m = sge(s->src, 8, s->ta);
    EQUAL(post_rdma(s->d.a, context, SHMND_WRITE, &m, 1, s->open, s->window, 0), SHMND_SUCCESS);
}

/* clang-format off */
static const uint32_t sizes[] = {0, 8, 44, 45, 1023, 1024, SHMND_EAGER_MAX - 4, SHMND_EAGER_MAX - 3,
                                 SHMND_EAGER_MAX, 20000, SHMND_SHARE_MIN, SHMND_SHARE_MIN + 70001};
/* clang-format on */
#define SIZES (sizeof sizes / sizeof sizes[0])

/* Every size, posted before and after, from shared and private memory, with and without
 * reach, to a shared receive queue: the window is dead when the receive is seen. */
static void every_way(void)
{
    for (uint32_t k = 0; k < 32; k++) {
        for (size_t i = 0; i < SIZES; i++) {
            struct stage s;
            bool late = k & 8;
            NOTE("case %u, %u bytes", k, sizes[i]);
            stage_open(&s, (struct how){.private = k & 1,
                                        .no_vm = k & 2,
                                        .srq = k & 4,
                                        .silent_window = k & 16,
                                        .bytes = sizes[i]});
            stage_write(&s, 1);
            EXPECT(s.d.qa, SHMND_WRITE, 1, SHMND_SUCCESS);
            if (!late)
                stage_receive(&s, 10);
            stage_send(&s, 2, s.window);
            stage_plain(&s, 3);
            EQUAL(s.d.qa->cq.write_pos, s.d.qa->cq.read_pos); /* not before the owner took it */
            CHECK(alive(&s));
            if (late) {
                CHECK(nothing(s.d.qa) && nothing(s.d.qb));
                CHECK(alive(&s));
                stage_receive(&s, 10);
            }
            stage_receive(&s, 11);
            EXPECT_RECEIVED(s.d.qb, 10, sizes[i]);
            CHECK(!alive(&s));
            CHECK(filled(s.dst, sizes[i] < 8 ? 0 : 8, 9));
            if (!(k & 16))
                EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
            EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
            if (sizes[i] >= 8)
                EXPECT_RECEIVED(s.d.qb, 11, 8);
            else
                EXPECT(s.d.qb, SHMND_RECEIVE, 11, SHMND_BUFFER_OVERFLOW);
            EXPECT(s.d.qa, SHMND_SEND, 3, sizes[i] >= 8 ? SHMND_SUCCESS : SHMND_REMOTE_ERROR);
            CHECK(sizes[i] < 8 || memcmp(s.src, s.dst, 8) == 0);
            CHECK(nothing(s.d.qb));
            duo_close(&s.d);
        }
    }
}

/* No byte of the message is lost because of the token before it. */
static void contents(void)
{
    for (uint32_t k = 0; k < 8; k++) {
        for (size_t i = 0; i < SIZES; i++) {
            struct stage s;
            NOTE("case %u, %u bytes", k, sizes[i]);
            stage_open(&s, (struct how){
                               .private = k & 1, .no_vm = k & 2, .srq = k & 4, .bytes = sizes[i]});
            stage_receive(&s, 10);
            stage_send(&s, 2, s.window);
            EXPECT_RECEIVED(s.d.qb, 10, sizes[i]);
            CHECK(memcmp(s.src, s.dst, sizes[i]) == 0);
            for (uint32_t x = 0; x < 64; x++)
                EQUAL(s.dst[sizes[i] + x], 0);
            EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
            EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
            duo_close(&s.d);
        }
    }
}

static void inline_silent_and_solicited(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 128});
    stage_receive(&s, 10);
    uint8_t loose[100];
    fill(loose, 100, 4);
    struct shmnd_sge m = sge(loose, 100, 0);
    EQUAL(post_invalidating(s.d.a, 2, &m, 1, s.window,
                            SHMND_OP_INLINE | SHMND_OP_SILENT_SUCCESS | SHMND_OP_SOLICIT),
          SHMND_SUCCESS);
    memset(loose, 0, sizeof loose);
    struct shmnd_cqe e = next(s.d.qb);
    EQUAL(e.flags, SHMND_CQE_SOLICITED);
    EQUAL(e.bytes, 100);
    CHECK(filled(s.dst, 100, 4));
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS); /* also if the Send is silent */
    CHECK(nothing(s.d.qa));
    duo_close(&s.d);
}

/* Requests behind it wait until the window is dead, and find it so. */
static void a_write_behind_fails(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    stage_receive(&s, 10);
    stage_send(&s, 2, s.window);
    stage_write(&s, 3);
    for (int i = 0; i < 20; i++)
        queue_turn(s.d.qa);
    EQUAL(s.d.qa->got, 0);
    EQUAL(s.open[0], 0);
    EXPECT_RECEIVED(s.d.qb, 10, 8);
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_WRITE, 3, SHMND_ACCESS_VIOLATION);
    EQUAL(s.open[0], 0);
    duo_close(&s.d);
}

/* The window's completion comes directly after its receive, however few are taken at a time. */
static void one_at_a_time(void)
{
    for (int most = 1; most < 4; most++) {
        struct stage s;
        NOTE("%d at a time", most);
        stage_open(&s, (struct how){.bytes = 8});
        for (uint64_t i = 0; i < 5; i++)
            stage_receive(&s, 10 + i);
        stage_plain(&s, 1);
        stage_send(&s, 2, s.window);
        stage_plain(&s, 3);
        uint64_t want[] = {10, 11, TOLD, 12};
        for (uint32_t got = 0; got < 4;) {
            struct shmnd_cqe e[4];
            uint32_t n = queue_poll(s.d.qb, e, (uint32_t)most);
            CHECK(n);
            for (uint32_t i = 0; i < n; i++, got++) {
                EQUAL((uintptr_t)e[i].context, want[got]);
                EQUAL(e[i].type, got == 2 ? SHMND_INVALIDATE : SHMND_RECEIVE);
            }
        }
        EQUAL(queue_poll(s.d.qb, (struct shmnd_cqe[1]){{0}}, 1), 0);
        duo_close(&s.d);
    }
}

/* ---- tokens that the peer may not name ---------------------------------------------------- */

static void refused(struct stage *s, uint32_t token)
{
    stage_receive(s, 10);
    stage_receive(s, 11);
    stage_send(s, 2, token);
    stage_plain(s, 3);
    EXPECT(s->d.qb, SHMND_RECEIVE, 10, SHMND_INVALID_DEVICE_REQUEST);
    if (s->shared)
        CHECK(nothing(s->d.qb));
    else
        EXPECT(s->d.qb, SHMND_RECEIVE, 11, SHMND_CANCELED);
    CHECK(nothing(s->d.qb));
    EXPECT(s->d.qa, SHMND_SEND, 2, SHMND_INVALID_DEVICE_REQUEST);
    EXPECT(s->d.qa, SHMND_SEND, 3, SHMND_CANCELED);
    EQUAL(s->d.b->q.state, SHMND_QP_DOWN);
    EQUAL(s->d.a->q.state, SHMND_QP_DOWN);
}

static void tokens_that_name_nothing(void)
{
    for (uint32_t k = 0; k < 7; k++) {
        for (size_t i = 0; i < SIZES; i++) {
            struct stage s;
            NOTE("case %u, %u bytes", k, sizes[i]);
            stage_open(&s, (struct how){
                               .bytes = sizes[i], .no_vm = k & 1, .private = k & 1, .srq = k == 2});
            uint32_t own = window_bind(s.d.a, s.src, 1, ALL, 0);
            /* clang-format off */
            uint32_t tokens[] = {0, 0xffffffffu, s.window + (1u << SHMND_TOKEN_INDEX_BITS), s.tb,
                                 s.window | 0x3ffff, own ^ s.window, 77};
            /* clang-format on */
            refused(&s, tokens[k]);
            CHECK(alive(&s));
            duo_close(&s.d);
        }
    }
}

/* A peer cannot end a window of another connection of the same process. */
static void windows_of_others(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    struct pair *c = pair_new(s.d.qa, s.d.qa, pair_usual),
                *e = pair_new(s.d.qb, s.d.qb, pair_usual);
    pair_connect(c, e);
    uint32_t other = window_bind(e, s.open, 4096, ALL, TOLD + 1);
    refused(&s, other);
    CHECK(shmnd_region_lookup(&s.d.pb->registry, other)->serial == e->q.serial);
    struct shmnd_sge m = sge(s.src, 8, s.ta);
    EQUAL(post_rdma(c, 5, SHMND_WRITE, &m, 1, s.open, other, 0), SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_WRITE, 5, SHMND_SUCCESS);
    duo_close(&s.d);
}

static void once_only(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    stage_receive(&s, 9);
    stage_send(&s, 1, s.window);
    EXPECT_RECEIVED(s.d.qb, 9, 8);
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
    refused(&s, s.window);
    duo_close(&s.d);
}

/* ---- against the owner's own Invalidate ---------------------------------------------------- */

static void one_of_two_wins(void)
{
    for (size_t i = 0; i < 2 * SIZES; i++) {
        struct stage s;
        bool peer_first = i & 1;
        NOTE("%u bytes, %d", sizes[i / 2], peer_first);
        stage_open(&s, (struct how){.bytes = sizes[i / 2]});
        stage_receive(&s, 10);
        stage_send(&s, 2, s.window);
        if (peer_first) {
            EXPECT_RECEIVED(s.d.qb, 10, sizes[i / 2]);
            EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
        }
        window_invalidate(s.d.b, 30, s.window);
        EXPECT(s.d.qb, SHMND_INVALIDATE, 30,
               peer_first ? SHMND_INVALID_DEVICE_REQUEST : SHMND_SUCCESS);
        if (!peer_first)
            EXPECT(s.d.qb, SHMND_RECEIVE, 10, SHMND_INVALID_DEVICE_REQUEST);
        EXPECT(s.d.qa, SHMND_SEND, 2, peer_first ? SHMND_SUCCESS : SHMND_INVALID_DEVICE_REQUEST);
        world_turns(&s.d.w, 20);
        EQUAL(s.d.a->q.state, SHMND_QP_DOWN);
        EQUAL(s.d.b->q.state, SHMND_QP_DOWN);
        CHECK(nothing(s.d.qa) && nothing(s.d.qb));
        duo_close(&s.d);
    }
}

/* ---- a peer that is still accessing the window ----------------------------------------------- */

enum ending { COMES_OUT, DIES, OWNER_LEAVES, OWNER_FLUSHES };

static void still_inside(struct how h, enum ending ending)
{
    struct stage s;
    stage_open(&s, h);
    shmnd_word64 *hazard = &s.d.a->q.link.mine->hazard;
    stage_receive(&s, 10);
    stage_receive(&s, 11);
    stage_send(&s, 2, s.window);
    stage_plain(&s, 3);
    /* A correct peer never does this. */
    shmnd_put64(hazard, s.window);
    for (int i = 0; i < 20; i++) {
        CHECK(queue_turn(s.d.qb) == 0);
        if (h.private && h.no_vm)
            queue_turn(s.d.qa); /* the other parts of a message in parts */
    }
    CHECK(!alive(&s)); /* no new access begins */
    if (ending == OWNER_LEAVES)
        disconnect(s.d.b);
    if (ending == OWNER_FLUSHES) {
        shmnd_qp_flush(&s.d.b->q);
        settle(s.d.b);
    }
    for (int i = 0; i < 20; i++)
        CHECK(queue_turn(s.d.qb) == 0);
    if (ending == DIES)
        peer_dies(s.d.pb);
    else
        shmnd_put64(hazard, 0);
    EXPECT_RECEIVED(s.d.qb, 10, h.bytes);
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
    EXPECT_RECEIVED(s.d.qb, 11, 8);
    CHECK(nothing(s.d.qb));
    if (ending != DIES) {
        EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
        EXPECT(s.d.qa, SHMND_SEND, 3, SHMND_SUCCESS);
    }
    duo_close(&s.d);
}

static void a_peer_that_is_still_inside(void)
{
    for (uint32_t k = 0; k < 4; k++)
        for (size_t i = 0; i < SIZES; i++)
            for (int ending = COMES_OUT; ending <= OWNER_FLUSHES; ending++) {
                NOTE("case %u, %u bytes, ending %d", k, sizes[i], ending);
                if (sizes[i] >= 8)
                    still_inside((struct how){.private = k & 1, .no_vm = k & 2, .bytes = sizes[i]},
                                 ending);
            }
}

/* The owner's own Invalidate waits until the peer's access has ended; a later access ends the
 * connection, and completes after the Invalidate. */
static void a_peer_that_runs_into_it(void)
{
    for (int ending = COMES_OUT; ending <= OWNER_LEAVES; ending++) {
        struct stage s;
        NOTE("ending %d", ending);
        stage_open(&s, (struct how){.bytes = 8});
        shmnd_word64 *hazard = &s.d.a->q.link.mine->hazard;
        stage_receive(&s, 10);
        shmnd_put64(hazard, s.window);
        window_invalidate(s.d.b, 30, s.window);
        window_invalidate(s.d.b, 31, s.window); /* one of a window that is gone never begins */
        for (int i = 0; i < 20; i++)
            CHECK(queue_turn(s.d.qb) == 0);
        if (ending == DIES)
            peer_dies(s.d.pb);
        else
            shmnd_put64(hazard, 0);
        if (ending == OWNER_LEAVES)
            disconnect(s.d.b);
        if (ending == COMES_OUT)
            stage_write(&s, 2);
        EXPECT(s.d.qb, SHMND_INVALIDATE, 30, ending == DIES ? SHMND_IO_TIMEOUT : SHMND_SUCCESS);
        EXPECT(s.d.qb, SHMND_INVALIDATE, 31, SHMND_CANCELED);
        EXPECT(s.d.qb, SHMND_RECEIVE, 10, SHMND_CANCELED);
        if (ending == COMES_OUT)
            EXPECT(s.d.qa, SHMND_WRITE, 2, SHMND_ACCESS_VIOLATION);
        duo_close(&s.d);
    }
}

/* ---- recalled, timed out, cut off ---------------------------------------------------------- */

/* Until its reader claims it, a Flush recalls it, and the window stays bound. */
static void taken_back(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (int posted = 0; posted < 2; posted++) {
            struct stage s;
            NOTE("%u bytes, posted %d", sizes[i], posted);
            stage_open(&s, (struct how){.bytes = sizes[i]});
            if (posted)
                stage_receive(&s, 10);
            stage_send(&s, 2, s.window);
            queue_turn(s.d.qa);
            shmnd_qp_flush(&s.d.a->q);
            settle(s.d.a);
            EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_CANCELED);
            CHECK(alive(&s));
            CHECK(nothing(s.d.qb));
            /* The connection stays open, and the receive matches the next message. */
            memset(s.dst, 0, sizes[i]);
            if (!posted)
                stage_receive(&s, 10);
            stage_send(&s, 3, s.window);
            EXPECT_RECEIVED(s.d.qb, 10, sizes[i]);
            CHECK(memcmp(s.src, s.dst, sizes[i]) == 0);
            EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
            EXPECT(s.d.qa, SHMND_SEND, 3, SHMND_SUCCESS);
            CHECK(!alive(&s));
            duo_close(&s.d);
        }
    }
}

static void no_receive_in_time(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    s.d.a->q.rnr_ns = 1;
    stage_send(&s, 2, s.window);
    world_turns(&s.d.w, 1); /* from now on it waits */
    for (uint64_t since = shmnd_coarse_ns(); shmnd_coarse_ns() - since <= 1;)
        ;
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_IO_TIMEOUT);
    CHECK(alive(&s));
    duo_close(&s.d);
}

/* A Flush by the owner takes messages that arrived first; one of receives that no message matched
 * does not affect the window. */
static void the_owner_flushes(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    stage_receive(&s, 10);
    stage_receive(&s, 11);
    stage_send(&s, 2, s.window);
    shmnd_qp_flush(&s.d.b->q);
    settle(s.d.b);
    EXPECT_RECEIVED(s.d.qb, 10, 8);
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
    EXPECT(s.d.qb, SHMND_RECEIVE, 11, SHMND_CANCELED);
    EXPECT(s.d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* Whichever side ends the connection: taken or recalled, and both sides agree. */
static void cut_off(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (int k = 0; k < 8; k++) {
            struct stage s;
            bool posted = k & 1, by_owner = k & 2, dies = k & 4;
            NOTE("%u bytes, case %d", sizes[i], k);
            stage_open(&s, (struct how){.bytes = sizes[i]});
            if (posted)
                stage_receive(&s, 10);
            stage_send(&s, 2, s.window);
            queue_turn(s.d.qa);
            if (dies)
                peer_dies(by_owner ? s.d.pa : s.d.pb);
            else
                disconnect(by_owner ? s.d.b : s.d.a);
            bool told = false, seen = false;
            if (!(dies && by_owner)) {
                world_turns(&s.d.w, 40);
                for (uint32_t x = 0; x < s.d.qb->got; x++) {
                    struct shmnd_cqe e = s.d.qb->inbox[x];
                    told = told || e.type == SHMND_INVALIDATE;
                    seen = seen || (e.type == SHMND_RECEIVE && e.status == SHMND_SUCCESS);
                }
                EQUAL(told, seen);
                EQUAL(alive(&s), !seen);
                CHECK(!seen || posted);
            }
            if (!dies || by_owner) {
                struct shmnd_cqe e = next(s.d.qa);
                CHECK(e.status == SHMND_SUCCESS || e.status == SHMND_CANCELED ||
                      e.status == SHMND_IO_TIMEOUT);
                if (!dies && sizes[i] < SHMND_SHARE_MIN)
                    EQUAL(e.status == SHMND_SUCCESS, seen);
            }
            duo_close(&s.d);
        }
    }
}

/* A queue that is full when the connection ends has room for every window bound on it. */
static void room_for_all(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8, .receives = 64});
    uint32_t windows[40];
    for (uint32_t i = 0; i < 40; i++)
        windows[i] = window_bind(s.d.b, s.open, 64, ALL, TOLD + i);
    s.d.qb->cq.limit = 1;
    queue_reserve(s.d.qb, 0);
    s.d.a->q.wq.depth = 63;
    s.d.a->q.wq.mask = 63;
    s.d.a->q.wq.entries = guard_alloc(64 * sizeof(struct shmnd_wqe));
    s.d.a->q.wq.sges = guard_alloc(64 * 4 * sizeof(struct shmnd_sge));
    for (uint64_t i = 0; i < 40; i++) {
        stage_receive(&s, i);
        stage_send(&s, 100 + i, windows[i]);
    }
    disconnect(s.d.b);
    EQUAL(shmnd_cq_count(&s.d.qb->cq), 80);
    for (uint64_t i = 0; i < 40; i++) {
        EXPECT_RECEIVED(s.d.qb, i, 8);
        EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD + i, SHMND_SUCCESS);
    }
    duo_close(&s.d);
}

/* A queue without room delays both, keeps their order, and loses neither. */
static void a_full_queue_waits(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    s.d.qb->cq.limit = 1;
    for (uint64_t i = 0; i < 4; i++)
        stage_receive(&s, 10 + i);
    stage_send(&s, 1, s.window);
    stage_plain(&s, 2);
    struct shmnd_todo todo;
    for (int i = 0; i < 8; i++)
        shmnd_cq_drain_links(&s.d.qb->cq, &todo);
    EQUAL(shmnd_cq_count(&s.d.qb->cq), 1);
    EXPECT_RECEIVED(s.d.qb, 10, 8);
    EXPECT(s.d.qb, SHMND_INVALIDATE, TOLD, SHMND_SUCCESS);
    EXPECT_RECEIVED(s.d.qb, 11, 8);
    duo_close(&s.d);
}

/* Completions that are delayed on a link without pending requests arrive nevertheless. */
static void many_links(void)
{
    struct stage s;
    stage_open(&s, (struct how){.bytes = 8});
    struct pair *theirs[12];
    for (uint64_t i = 0; i < 12; i++) {
        struct pair *mine = pair_new(s.d.qb, s.d.qb, pair_usual);
        theirs[i] = pair_new(s.d.qa, s.d.qa, pair_usual);
        pair_connect(theirs[i], mine);
        uint32_t window = window_bind(mine, s.open, 64, ALL, TOLD + i);
        struct shmnd_sge m = sge(s.src, 8, s.ta), r = sge(s.dst, 8, s.tb);
        EQUAL(post_receive(mine, i, &r, 1), SHMND_SUCCESS);
        EQUAL(post_invalidating(theirs[i], i, &m, 1, window, 0), SHMND_SUCCESS);
    }
    s.d.qb->cq.limit = 1;
    bool received[12] = {false};
    for (uint32_t got = 0, polls = 0; got < 24; got++) {
        struct shmnd_cqe e;
        for (; !queue_poll(s.d.qb, &e, 1); polls++)
            CHECK(polls < 200);
        uint64_t at = (uintptr_t)e.context - (e.type == SHMND_RECEIVE ? 0 : TOLD);
        CHECK(at < 12);
        EQUAL(received[at], e.type == SHMND_INVALIDATE);
        received[at] = true;
    }
    duo_close(&s.d);
}

/* ---- malformed slots ------------------------------------------------------------------------ */

/* The flag on every kind, with every length and token: one connection ends, no more. */
static void forged_slots(void)
{
    struct chance chance = {12};
    for (int round = 0; round < 1500; round++) {
        struct stage s;
        NOTE("round %d", round);
        stage_open(&s, (struct how){.bytes = 5000, .srq = round % 5 == 0});
        stage_receive(&s, 10);
        stage_receive(&s, 11);
        uint32_t kind = (uint32_t)chance_below(&chance, 6);
        for (uint64_t pos = 0; pos < 3; pos++) {
            struct shmnd_slot *slot = shmnd_writer_slot(&s.d.a->q.out, pos);
            uint32_t tokens[] = {s.window, s.tb, 0, (uint32_t)chance_next(&chance)};
            /* clang-format off */
            uint32_t lengths[] = {0, 44, SHMND_EAGER_MAX - 4, SHMND_EAGER_MAX - 3, SHMND_EAGER_MAX,
                                  (uint32_t)chance_next(&chance)};
            /* clang-format on */
            uint32_t word = tokens[chance_below(&chance, 4)];
            slot->length = lengths[chance_below(&chance, 6)];
            slot->kind = (uint8_t)kind;
            slot->flags = (uint8_t)(SHMND_SLOT_INVALIDATE | chance_next(&chance));
            memcpy(slot->payload, &word, 4);
            word = (uint32_t)chance_below(&chance, 20);
            memcpy(slot->payload + 4, &word, 4);
            shmnd_release64(&slot->ready_pos, pos + 1);
        }
        for (int i = 0; i < 30; i++)
            queue_turn(s.d.qb);
        uint32_t told = 0;
        for (uint32_t i = 0; i < s.d.qb->got; i++)
            told += s.d.qb->inbox[i].type == SHMND_INVALIDATE;
        EQUAL(told, alive(&s) ? 0 : 1);
        guard_check();
        duo_close(&s.d);
    }
}

static const struct check_test tests[] = {
    TEST(every_way),
    TEST(contents),
    TEST(inline_silent_and_solicited),
    TEST(a_write_behind_fails),
    TEST(one_at_a_time),
    TEST(tokens_that_name_nothing),
    TEST(windows_of_others),
    TEST(once_only),
    TEST(one_of_two_wins),
    TEST(a_peer_that_runs_into_it),
    TEST(a_peer_that_is_still_inside),
    TEST(taken_back),
    TEST(no_receive_in_time),
    TEST(the_owner_flushes),
    TEST(cut_off),
    TEST(room_for_all),
    TEST(a_full_queue_waits),
    TEST(many_links),
    TEST(forged_slots),
};

MAIN(tests)
