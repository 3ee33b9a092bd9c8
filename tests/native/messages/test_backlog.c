/* SPDX-License-Identifier: Apache-2.0
 *
 * The backlog: Sends that could not be sent when they were posted, and whose sender makes no
 * further call. The reader takes them from the backlog in order, whole, and once; or the sender
 * reclaims them, if it acts first.
 */
#include "world.h"

#define MOST 40u
#define LONG (3 * SHMND_PIECE + 12345)

struct scene {
    struct duo d;
    struct shmnd_receives srq;
    uint8_t *from, *into;
    uint32_t source, sink, bytes, count;
    bool shared;
};

/* `count` messages of up to `bytes` bytes each, and the smallest possible ring for them. */
static void open_scene(struct scene *s, uint32_t count, uint32_t bytes, uint32_t privates, bool srq,
                       uint32_t depth)
{
    memset(s, 0, sizeof *s);
    struct pair_options ao = pair_usual, bo;
    ao.receives = ao.requests = depth;
    ao.inline_size = 600;
    bo = ao;
    s->shared = srq;
    if (srq) {
        receives_make(&s->srq, depth, 4);
        bo.srq = &s->srq;
    }
    uint64_t all = (uint64_t)count * (bytes + 64);
    duo_open_with(&s->d, (struct world_options){.segment_bytes = all + 64, .fitting_rings = true},
                  ao, bo);
    s->count = count;
    s->bytes = bytes;
    s->from = privates & 1 ? guard_alloc(all) : shared_bytes(s->d.pa, all);
    s->into = privates & 2 ? guard_alloc(all) : shared_bytes(s->d.pb, all);
    s->source = region_new(s->d.pa, s->from, all, 0);
    s->sink = region_new(s->d.pb, s->into, all, SHMND_MR_LOCAL_WRITE);
    for (uint32_t i = 0; i < count; i++)
        fill(s->from + (uint64_t)i * bytes, bytes, 1 + i);
}

static struct shmnd_sge piece(uint8_t *at, const struct scene *s, uint32_t i, uint32_t token)
{
    return sge(at + (uint64_t)i * s->bytes, s->bytes, token);
}

static void post_receives(struct scene *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        struct shmnd_sge r = piece(s->into, s, i, s->sink);
        if (s->shared) {
            shmnd_receives_add(&s->srq, (void *)(uintptr_t)(1000 + i), &r, 1);
            if (s->srq.starved)
                shmnd_qp_activate(&s->d.b->q);
        } else {
            EQUAL(post_receive(s->d.b, 1000 + i, &r, 1), SHMND_SUCCESS);
            if (s->d.b->q.rx.stalled)
                shmnd_qp_activate(&s->d.b->q);
        }
    }
}

static void post_sends(struct scene *s, uint32_t from, uint32_t to, uint32_t flags)
{
    for (uint32_t i = from; i < to; i++) {
        struct shmnd_sge m = piece(s->from, s, i, s->source);
        EQUAL(post_send(s->d.a, i, &m, 1, flags), SHMND_SUCCESS);
    }
}

/* The next message, with calls of the receiver only. */
static void expect_alone(struct scene *s, uint32_t i)
{
    struct queue *c = s->d.qb;
    for (int k = 0; k < 200 && c->taken == c->got; k++)
        queue_turn(c);
    NOTE("message %u of %u bytes", i, s->bytes);
    CHECK(c->taken != c->got);
    struct shmnd_cqe *e = &c->inbox[c->taken++];
    EQUAL((uintptr_t)e->context, 1000 + i);
    EQUAL(e->status, SHMND_SUCCESS);
    EQUAL(e->bytes, s->bytes);
    CHECK(filled(s->into + (uint64_t)i * s->bytes, s->bytes, 1 + i));
}

static void expect_sent(struct scene *s, uint32_t from, uint32_t to, uint32_t status)
{
    for (uint32_t i = from; i < to; i++)
        EXPECT(s->d.qa, SHMND_SEND, i, status);
    EQUAL(s->d.a->q.backlog.count, 0);
}

/* ---- one of the two sides acts ------------------------------------------------------------ */

static const uint32_t sizes[] = {0,    8,    48,   49,    440,   511,   512,
                                 1023, 1024, 3000, 10000, 70000, 300000};

/* The sender posts all, before or after the receives are posted, and makes no further call. */
static void every_send_goes_though_its_sender_computes(void)
{
    for (uint32_t way = 0; way < 16; way++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            struct scene s;
            bool late = way & 4, srq = way & 8;
            open_scene(&s, MOST, sizes[k], way & 3, srq, MOST);
            if (!late)
                post_receives(&s, 0, MOST);
            post_sends(&s, 0, MOST, 0);
            if (late)
                post_receives(&s, 0, MOST);
            for (uint32_t i = 0; i < MOST; i++)
                expect_alone(&s, i);
            expect_sent(&s, 0, MOST, SHMND_SUCCESS);
            duo_close(&s.d);
        }
}

/* More than the ring holds; then the sender acts first, and sends all by itself. */
static void a_sender_that_moves_takes_back_listed_sends(void)
{
    struct scene s;
    struct shmnd_cqe out[64];
    struct shmnd_todo todo;
    open_scene(&s, MOST, 500, 0, false, MOST);
    post_sends(&s, 0, MOST, 0);
    uint32_t listed = s.d.a->q.backlog.count;
    CHECK(listed > 10);
    CHECK(shmnd_relaxed32(&s.d.a->q.link.mine->state) & SHMND_LINK_LISTS);
    post_receives(&s, 0, MOST);
    for (uint32_t turn = 0; s.d.a->q.backlog.count; turn++) {
        CHECK(turn < 100);
        uint32_t before = s.d.a->q.backlog.count;
        uint32_t n = shmnd_cq_poll(&s.d.qb->cq, out, 4, &todo); /* not to the end of the ring */
        for (uint32_t i = 0; i < n; i++)
            EQUAL(out[i].status, SHMND_SUCCESS);
        EQUAL(s.d.b->q.rx.job.kind, SHMND_JOB_NONE);
        advance(s.d.a);
        CHECK(s.d.a->q.backlog.count <= before);
    }
    CHECK(!(shmnd_relaxed32(&s.d.a->q.link.mine->state) & SHMND_LINK_LISTS));
    for (uint64_t pos = s.d.a->q.wq.oldest; pos != s.d.a->q.wq.end; pos++)
        CHECK(!s.d.a->q.wq.entries[pos & s.d.a->q.wq.mask].pulled);
    expect_sent(&s, 0, MOST, SHMND_SUCCESS);
    for (uint32_t i = 0; i < MOST; i++)
        CHECK(i >= 32 || filled(s.into + i * 500, 500, 1 + i));
    duo_close(&s.d);
}

/* The receiver sleeps for another event, and polls only when it is asked: also for each message
 * that the sender issues by itself after the receiver has polled. */
static void later_sends_are_asked_for(void)
{
    struct scene s;
    struct shmnd_cqe out[64];
    struct shmnd_todo todo;
    open_scene(&s, MOST, 5000, 0, true, MOST);
    struct shmnd_marks *marks = s.d.qb->cq.arming.marks;
    post_receives(&s, 0, MOST);
    post_sends(&s, 0, MOST, 0);
    CHECK(s.d.a->q.backlog.count > 10);
    for (uint32_t turn = 0; s.d.a->q.wq.next != s.d.a->q.wq.end; turn++) {
        NOTE("turn %u", turn);
        CHECK(turn < MOST);
        CHECK(shmnd_marks_poll_requested(marks));
        shmnd_marks_accept_request(marks);
        for (uint32_t n = 0; n < 4;) { /* not to the end of the ring, so that some stay listed */
            n += shmnd_cq_poll(&s.d.qb->cq, out, 4 - n, &todo);
            if (todo.what != SHMND_IDLE)
                serve(todo.qp, todo.what, todo.receiving);
        }
        advance(s.d.a);
    }
    CHECK(shmnd_marks_poll_requested(marks));
    shmnd_marks_accept_request(marks);
    advance(s.d.a);
    CHECK(!shmnd_marks_poll_requested(marks)); /* not again for the same messages */
    duo_close(&s.d);
}

/* Posts and polls of both sides in random order: all messages arrive in order, and once. */
static void any_order_of_turns(void)
{
    for (uint64_t seed = 1; seed <= 120; seed++) {
        static struct duo d;
        struct chance c = {seed};
        uint32_t depth = 1 + (uint32_t)chance_below(&c, 12), room = 100000, sent = 0, got = 0;
        uint32_t asked = 0, told = 0, all = 60 * depth, lengths[1024];
        struct pair_options o = pair_usual;
        o.receives = o.requests = depth;
        uint64_t bytes = 2ull * depth * (room + 64);
        NOTE("seed %" PRIu64, seed);
        duo_open_with(&d, (struct world_options){.segment_bytes = bytes, .fitting_rings = true}, o,
                      o);
        uint8_t *from = seed & 1 ? guard_alloc(depth * room) : shared_bytes(d.pa, depth * room);
        uint8_t *into = seed & 2 ? guard_alloc(depth * room) : shared_bytes(d.pb, depth * room);
        uint32_t ta = region_new(d.pa, from, depth * room, 0);
        uint32_t tb = region_new(d.pb, into, depth * room, SHMND_MR_LOCAL_WRITE);
        while (told < all || got < all) {
            uint64_t turn = chance_below(&c, 8);
            if (turn < 4 && sent < all && sent - told < depth) {
                static const uint32_t some[] = {5, 200, 600, 3000, 20000, 90000};
                uint32_t at = sent % depth * room, n = some[chance_below(&c, 6)];
                uint32_t half = chance_below(&c, 3) ? n : n / 2;
                struct shmnd_sge m[2] = {sge(from + at, half, ta),
                                         sge(from + at + half, n - half, ta)};
                fill(from + at, n, seed + sent);
                lengths[sent] = n;
                uint32_t inlined = n == 5 && chance_below(&c, 2) ? SHMND_OP_INLINE : 0;
                EQUAL(post_send(d.a, sent++, m, half == n ? 1 : 2, inlined), SHMND_SUCCESS);
            } else if (turn < 6 && asked < all && asked - got < depth) {
                struct shmnd_sge r = sge(into + asked % depth * room, room, tb);
                EQUAL(post_receive(d.b, asked++, &r, 1), SHMND_SUCCESS);
                if (d.b->q.rx.stalled)
                    shmnd_qp_activate(&d.b->q);
            } else if (turn == 6) {
                queue_turn(d.qa);
            } else {
                queue_turn(d.qb);
            }
            for (; d.qa->taken != d.qa->got; d.qa->taken++, told++) {
                EQUAL((uintptr_t)d.qa->inbox[d.qa->taken].context, told);
                EQUAL(d.qa->inbox[d.qa->taken].status, SHMND_SUCCESS);
                memset(from + told % depth * room, 0x33, lengths[told]);
            }
            for (; d.qb->taken != d.qb->got; d.qb->taken++, got++) {
                struct shmnd_cqe *e = &d.qb->inbox[d.qb->taken];
                EQUAL((uintptr_t)e->context, got);
                EQUAL(e->status, SHMND_SUCCESS);
                EQUAL(e->bytes, lengths[got]);
                CHECK(filled(into + got % depth * room, e->bytes, seed + got));
            }
        }
        EQUAL(d.a->q.backlog.count, 0);
        duo_close(&d);
    }
}

/* ---- a long one, piece by piece ------------------------------------------------------------ */

/* No share words are left, so that it is listed. */
static void post_long(struct scene *s)
{
    s->d.a->q.shares.count = SHMND_SHARES;
    memset(s->d.a->q.shares.message, 0xff, sizeof s->d.a->q.shares.message);
    post_receives(s, 0, 2);
    post_sends(s, 0, 2, 0);
    EQUAL(s->d.a->q.backlog.count, 2);
}

/* One piece of it. */
static void pull_piece(struct scene *s)
{
    struct shmnd_cqe out;
    struct shmnd_todo todo;
    EQUAL(shmnd_cq_poll(&s->d.qb->cq, &out, 1, &todo), 0);
    EQUAL(todo.what, SHMND_RUN);
    EQUAL(s->d.b->q.rx.job.kind, SHMND_JOB_PULL);
    serve(todo.qp, todo.what, todo.receiving);
}

static void a_long_one_is_pulled_in_pieces(void)
{
    for (uint32_t privates = 0; privates < 4; privates++) {
        struct scene s;
        open_scene(&s, 2, LONG, privates, false, 4);
        post_long(&s);
        for (uint64_t done = SHMND_PIECE; done < LONG; done += SHMND_PIECE) {
            pull_piece(&s);
            CHECK(memcmp(s.from, s.into, done) == 0);
            EQUAL(s.into[done], 0);
            CHECK(shmnd_cq_has_unfinished_copy(&s.d.qb->cq));
            CHECK(nothing(s.d.qa) || s.d.qb->got);
            s.d.qb->taken = s.d.qb->got = 0;
            break; /* the rest arrived during the polls */
        }
        expect_sent(&s, 0, 2, SHMND_SUCCESS);
        CHECK(filled(s.into, LONG, 1) && filled(s.into + LONG, LONG, 2));
        duo_close(&s.d);
    }
}

/* Between two pieces the sender disconnects or dies, or the receiver does. The shared memory stays
 * accessible to a receiver that continues. */
static void an_end_between_two_pieces(void)
{
    for (int who = 0; who < 4; who++) {
        struct scene s;
        bool whole = who == 1 || who == 2;
        NOTE("case %d", who);
        open_scene(&s, 2, LONG, 0, false, 4);
        post_long(&s);
        pull_piece(&s);
        if (who == 0)
            disconnect(s.d.a);
        else if (who == 1)
            peer_dies(s.d.pb);
        else if (who == 2)
            disconnect(s.d.b);
        else
            peer_dies(s.d.pa);
        if (who == 0) { /* its memory is released at once */
            EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_CANCELED);
            memset(s.from, 0x77, LONG);
            EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
        }
        if (who != 3) {
            EXPECT(s.d.qb, SHMND_RECEIVE, 1000, whole ? SHMND_SUCCESS : SHMND_CANCELED);
            EXPECT(s.d.qb, SHMND_RECEIVE, 1001, SHMND_CANCELED);
        }
        if (who == 2)
            EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_SUCCESS);
        if (who == 3)
            EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_IO_TIMEOUT);
        EQUAL(s.into[LONG - 1], whole || who == 3 ? s.from[LONG - 1] : 0); /* 3: it polls on */
        duo_close(&s.d);
    }
}

/* During a piece no side releases memory; after the last one both know that it was whole. */
static void a_whole_message_stays_whole(void)
{
    for (int amid = 0; amid < 2; amid++) {
        struct scene s;
        open_scene(&s, 2, LONG, 0, false, 4);
        post_long(&s);
        struct shmnd_qp *b = &s.d.b->q;
        struct shmnd_job *job = &b->rx.job;
        do
            pull_piece(&s);
        while (job->moved + SHMND_PIECE < LONG);
        struct shmnd_listed *entry = shmnd_peer_backlog_entry(b, 0);
        if (amid) {
            shmnd_put64(&entry->word, b->rx.listing | SHMND_LISTED_COPYING);
            disconnect(s.d.a);
            CHECK(s.d.a->q.going_down);
            EQUAL(s.d.qa->cq.write_pos, 0);
            shmnd_put64(&entry->word, b->rx.listing | SHMND_LISTED_TAKEN);
        } else {
            pull_piece(&s);
            EQUAL(shmnd_relaxed64(&entry->word), b->rx.listing | SHMND_LISTED_DONE);
            disconnect(s.d.a);
        }
        EXPECT(s.d.qb, SHMND_RECEIVE, 1000, amid ? SHMND_CANCELED : SHMND_SUCCESS);
        EXPECT(s.d.qb, SHMND_RECEIVE, 1001, SHMND_CANCELED);
        EXPECT(s.d.qa, SHMND_SEND, 0, amid ? SHMND_CANCELED : SHMND_SUCCESS);
        EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
        duo_close(&s.d);
    }
}

/* ---- withdrawn ----------------------------------------------------------------------------- */

static void flushed_while_listed(void)
{
    struct scene s;
    open_scene(&s, MOST, 3000, 0, false, MOST);
    post_sends(&s, 0, MOST, 0);
    CHECK(s.d.a->q.backlog.count > 10);
    shmnd_qp_flush(&s.d.a->q);
    EQUAL(s.d.a->q.backlog.count, 0);
    settle(s.d.a);
    post_receives(&s, 0, MOST);
    expect_sent(&s, 0, MOST, SHMND_CANCELED);
    CHECK(nothing(s.d.qb));
    post_sends(&s, 0, MOST, 0);
    for (uint32_t i = 0; i < MOST; i++)
        expect_alone(&s, i);
    expect_sent(&s, 0, MOST, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* Sends that the reader has claimed stay; those behind them are flushed. */
static void flushed_while_its_reader_has_it(void)
{
    struct scene s;
    open_scene(&s, 2, LONG, 0, false, 4);
    post_long(&s);
    pull_piece(&s);
    shmnd_qp_flush(&s.d.a->q);
    settle(s.d.a);
    while (s.d.qb->taken == s.d.qb->got)
        queue_turn(s.d.qb);
    expect_alone(&s, 0);
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
    CHECK(nothing(s.d.qb));
    duo_close(&s.d);
}

static void deregistered_while_listed(void)
{
    struct scene s;
    uint64_t since = 0;
    open_scene(&s, MOST, 3000, 0, false, MOST);
    uint8_t *other = shared_bytes(s.d.pa, 64);
    uint32_t token = region_new(s.d.pa, other, 64, 0);
    struct shmnd_sge m = sge(other, 64, token);
    post_sends(&s, 0, 30, 0);
    EQUAL(post_send(s.d.a, 30, &m, 1, 0), SHMND_SUCCESS);
    post_sends(&s, 31, 32, 0);
    region_withdraw(s.d.pa, token);
    CHECK(shmnd_qp_has_released(&s.d.a->q, token, &since, 1));
    CHECK(s.d.a->q.backlog.count > 5); /* those before it make progress */
    post_receives(&s, 0, MOST);
    for (uint32_t i = 0; i < 30; i++)
        expect_alone(&s, i);
    expect_sent(&s, 0, 30, SHMND_SUCCESS);
    EXPECT(s.d.qa, SHMND_SEND, 30, SHMND_ACCESS_VIOLATION);
    EXPECT(s.d.qa, SHMND_SEND, 31, SHMND_CANCELED);
    duo_close(&s.d);
}

/* No receive is posted: the first Send times out, although all behind it are listed. */
static void timed_out_while_listed(void)
{
    struct scene s;
    open_scene(&s, MOST, 3000, 0, false, MOST);
    s.d.a->q.rnr_ns = 1;
    post_sends(&s, 0, MOST, 0);
    CHECK(s.d.a->q.backlog.count > 5);
    for (uint64_t end = shmnd_now_ns() + 10 * W_SECOND; s.d.qa->taken == s.d.qa->got;) {
        queue_turn(s.d.qa); /* until a coarse clock has moved */
        CHECK(shmnd_now_ns() < end);
    }
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_IO_TIMEOUT);
    for (uint32_t i = 1; i < MOST; i++)
        EXPECT(s.d.qa, SHMND_SEND, i, SHMND_CANCELED);
    EQUAL(s.d.a->q.backlog.count, 0);
    duo_close(&s.d);
}

/* A reader that has read a listing, and continues when its entry holds another Send. */
static void a_late_reader_takes_nothing(void)
{
    struct scene s;
    struct shmnd_message_header a;
    open_scene(&s, 4, LONG, 0, false, 4);
    post_long(&s);
    struct shmnd_qp *b = &s.d.b->q;
    shmnd_qp_check_peer(b);
    EQUAL(shmnd_rx_read_listed(b, &a), SHMND_PEEK_MESSAGE);
    CHECK(shmnd_rx_check_listed(b, &a));
    shmnd_qp_flush(&s.d.a->q);
    settle(s.d.a);
    CHECK(!shmnd_rx_claim_listed(b));
    EXPECT(s.d.qa, SHMND_SEND, 0, SHMND_CANCELED);
    EXPECT(s.d.qa, SHMND_SEND, 1, SHMND_CANCELED);
    post_sends(&s, 2, 4, 0);
    EQUAL(s.d.a->q.backlog.count, 2);
    CHECK(!shmnd_rx_claim_listed(b));
    EXPECT_RECEIVED(s.d.qb, 1000, LONG);
    CHECK(filled(s.into, LONG, 3));
    expect_sent(&s, 2, 4, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* ---- requests that are not listed ---------------------------------------------------------- */

/* A Write keeps its place: Sends behind it are not listed before it was executed. */
static void nothing_goes_past_a_write(void)
{
    struct scene s;
    open_scene(&s, MOST, 500, 0, false, MOST);
    uint8_t *board = shared_bytes(s.d.pb, 8);
    uint32_t token = region_new(s.d.pb, board, 8, SHMND_MR_REMOTE_WRITE);
    struct shmnd_sge eight = sge(s.from, 8, s.source);
    post_sends(&s, 0, 20, 0);
    EQUAL(post_rdma(s.d.a, 20, SHMND_WRITE, &eight, 1, board, token, 0), SHMND_SUCCESS);
    post_sends(&s, 21, 30, 0);
    post_receives(&s, 0, 20);
    post_receives(&s, 21, 30);
    for (uint32_t i = 0; i < 20; i++)
        expect_alone(&s, i);
    for (int i = 0; i < 20; i++)
        queue_turn(s.d.qb);
    CHECK(s.d.qb->taken == s.d.qb->got);
    EQUAL(board[0], 0);
    for (uint32_t i = 0; i < 30; i++)
        EXPECT(s.d.qa, i == 20 ? SHMND_WRITE : SHMND_SEND, i, SHMND_SUCCESS);
    CHECK(memcmp(board, s.from, 8) == 0);
    for (uint32_t i = 21; i < 30; i++)
        expect_alone(&s, i);
    duo_close(&s.d);
}

/* Sends that invalidate a window of the reader's, and inline data. */
static void windows_and_inline_data(void)
{
    struct scene s;
    uint32_t windows[MOST];
    open_scene(&s, MOST, 600, 0, false, MOST);
    uint8_t *shown = shared_bytes(s.d.pb, 8);
    for (uint32_t i = 0; i < MOST; i += 2)
        windows[i] = window_bind(s.d.b, shown, 8, SHMND_ALLOW_WRITE, 2000 + i);
    for (uint32_t i = 0; i < MOST; i++) {
        struct shmnd_sge m = piece(s.from, &s, i, s.source);
        EQUAL(i % 2 ? post_send(s.d.a, i, &m, 1, SHMND_OP_INLINE)
                    : post_invalidating(s.d.a, i, &m, 1, windows[i], SHMND_OP_SOLICIT),
              SHMND_SUCCESS);
    }
    CHECK(s.d.a->q.backlog.count > 5);
    memset(s.from, 0, 1); /* not of one that is inline */
    fill(s.from, 600, 1);
    post_receives(&s, 0, MOST);
    for (uint32_t i = 0; i < MOST; i++) {
        expect_alone(&s, i);
        if (i % 2)
            continue;
        for (int k = 0; k < 20 && s.d.qb->taken == s.d.qb->got; k++)
            queue_turn(s.d.qb);
        CHECK(s.d.qb->taken != s.d.qb->got);
        EQUAL((uintptr_t)s.d.qb->inbox[s.d.qb->taken++].context, 2000 + i);
    }
    expect_sent(&s, 0, MOST, SHMND_SUCCESS);
    duo_close(&s.d);
}

/* A Send whose memory the reader cannot access stays with the sender, as do those behind it. */
static void out_of_reach_it_waits_for_its_sender(void)
{
    struct scene s;
    open_scene(&s, MOST, 400, 1, false, MOST);
    shmnd_put32(&s.d.b->q.link.mine->reaches, 2);
    s.d.pb->peer.vm = s.d.pa->peer.vm = false;
    post_sends(&s, 0, MOST, 0);
    EQUAL(s.d.a->q.backlog.count, 0);
    CHECK(s.d.a->q.wq.next != s.d.a->q.wq.end);
    post_receives(&s, 0, MOST);
    expect_sent(&s, 0, MOST, SHMND_SUCCESS);
    for (uint32_t i = 0; i < MOST; i++)
        expect_alone(&s, i);
    duo_close(&s.d);
}

/* A thread that sleeps at the queue is woken by a listing as by a message. */
static void a_listing_rings(void)
{
    struct scene s;
    open_scene(&s, MOST, 400, 0, false, MOST);
    post_receives(&s, 0, MOST);
    post_sends(&s, 0, 20, 0);
    while (queue_turn(s.d.qb))
        ;
    shmnd_bell_arm(&s.d.qb->cq.arming, SHMND_ARMED_ANY);
    uint32_t listed = s.d.a->q.backlog.count;
    s.d.a->q.out.room_pos = s.d.a->q.out.write_pos;
    shmnd_word64 nonsense = UINT64_MAX; /* a malformed position: no room */
    s.d.a->q.out.read_pos = &nonsense;
    post_sends(&s, 20, 21, 0);
    EQUAL(s.d.a->q.backlog.count, listed + 1);
    EQUAL(shmnd_relaxed64(&s.d.qb->cq.arming.bell->armed), s.d.a->q.link.receive_rung);
    s.d.a->q.out.read_pos = &s.d.a->q.link.theirs->read_pos;
    duo_close(&s.d);
}

/* The reader maps a segment for a listed message, which its sender reclaims and places meanwhile:
 * the message in the slot needs no segment. */
static void a_reclaimed_message_needs_no_segment(void)
{
    struct scene s;
    struct shmnd_cqe e;
    struct shmnd_todo todo = {NULL, SHMND_IDLE, false};
    open_scene(&s, MOST, 400, 0, false, MOST);
    struct shmnd_mapping *mapping = &s.d.pb->peer.data[0];
    s.d.pb->hidden = *mapping;
    mapping->base = NULL;
    post_sends(&s, 0, MOST, 0);
    post_receives(&s, 0, MOST);
    CHECK(s.d.a->q.backlog.count > 0);
    uint32_t taken = 0;
    while (todo.what == SHMND_IDLE && taken < MOST)
        taken += shmnd_cq_poll(&s.d.qb->cq, &e, 1, &todo);
    EQUAL(todo.what, SHMND_NEEDS_MAP);
    uint64_t sent = s.d.a->q.messages;
    serve(&s.d.b->q, todo.what, todo.receiving);
    settle(s.d.a);
    CHECK(s.d.a->q.messages > sent);
    for (uint32_t i = taken; i < MOST; i++)
        expect_alone(&s, i);
    EQUAL(s.d.b->q.state, SHMND_QP_CONNECTED);
    duo_close(&s.d);
}

static const struct check_test tests[] = {
    TEST(every_send_goes_though_its_sender_computes),
    TEST(a_sender_that_moves_takes_back_listed_sends),
    TEST(later_sends_are_asked_for),
    TEST(any_order_of_turns),
    TEST(a_long_one_is_pulled_in_pieces),
    TEST(an_end_between_two_pieces),
    TEST(a_whole_message_stays_whole),
    TEST(flushed_while_listed),
    TEST(flushed_while_its_reader_has_it),
    TEST(deregistered_while_listed),
    TEST(timed_out_while_listed),
    TEST(a_late_reader_takes_nothing),
    TEST(nothing_goes_past_a_write),
    TEST(windows_and_inline_data),
    TEST(out_of_reach_it_waits_for_its_sender),
    TEST(a_listing_rings),
    TEST(a_reclaimed_message_needs_no_segment),
};
MAIN(tests)
