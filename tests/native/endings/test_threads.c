/* SPDX-License-Identifier: Apache-2.0
 *
 * Concurrent operations of two processes (lanes.h), for long, and with the ends of connections,
 * windows and registrations in between.
 *
 * Messages that one side reports as sent are exactly those that the other has received. The
 * memory of a finished request is overwritten by its owner: under the thread sanitizer a copy
 * that is still running then is a data race, as is each word that lacks its order.
 *
 * SHMND_ENDINGS sets the number of rounds for each kind of end, SHMND_ENDINGS_SEED the first
 * seed.
 */
#include "dawdle.h"

#include "lanes.h"
#include "lane_posts.h"

/* ---- revoking access ------------------------------------------------------------------------ */

/* The owner's Invalidate. False: the queue is full now. A Send that completed before the thread
 * that placed it returned still occupies its entry. */
static bool take_window(struct lane *l)
{
    struct shmnd_qp *q = &l->e->q;
    uint32_t i = 0;
    while (i < REQUESTS && l->out[i].asked != NOTHING)
        i++;
    uint32_t status = shmnd_check_connected(q);
    CHECK(status == SHMND_SUCCESS || status == SHMND_NO_MORE_ENTRIES);
    if (i == REQUESTS || status != SHMND_SUCCESS)
        return false;
    if (!shmnd_window_unbind(q->registry, l->window, q->serial))
        return true;
    shmnd_region_lookup(q->registry, l->window)->token = 0;
    l->out[i].asked = TAKEN;
    l->out[i].length = 0;
    CHECK(shmnd_hold_entry(q) == SHMND_SUCCESS);
    shmnd_post_window(q, context_of(l, ASKED, i), SHMND_INVALIDATE, l->window, SHMND_SUCCESS, 0);
    runner_advance(l->side->runner, l->e);
    return true;
}

/* The memory of a request or a receive; in half of the cases the one that is being filled. */
static const struct request *any_memory(struct lane *l)
{
    const struct shmnd_qp *q = &l->e->q;
    const struct request *r = any(l, 2) ? &l->in[any(l, RECEIVES)] : &l->out[any(l, REQUESTS)];
    for (uint32_t i = 0; q->rx.open && any(l, 2) && i < RECEIVES; i++)
        if (l->in[i].token == q->rx.sges[0].token)
            return &l->in[i];
    return r;
}

/* Deregister, its first half. */
static void take_memory(struct lane *l)
{
    const struct request *r = any_memory(l);
    uint64_t which = any(l, 4);
    l->taking = which == 0 ? l->board : which == 1 ? l->shelf : r->at;
    l->taking_length = which < 2 ? PAGE : l->side->plan.room;
    l->taking_token = which == 0 ? l->board_token : which == 1 ? l->shelf_token : r->token;
    l->taking_since = 0;
    region_withdraw(l->side->proc, l->taking_token);
}

/* True: the state must be checked again. */
static bool end(struct lane *l)
{
    struct shmnd_qp *q = &l->e->q;
    if (l->taking) {
        if (!shmnd_qp_has_released(q, l->taking_token, &l->taking_since, shmnd_coarse_ns()))
            return true;
        memset(l->taking, 0x88, l->taking_length);
        l->taking = NULL;
    } else if (!l->ended && l->sent >= l->side->plan.ends_at && q->state == SHMND_QP_CONNECTED) {
        l->ended = true;
        switch (l->side->plan.ends[l->side->index]) {
        case STAYS: break;
        case LEAVES: shmnd_qp_disconnect(q); break;
        case TAKES_WINDOW: l->ended = take_window(l); break;
        case TAKES_MEMORY: take_memory(l);
        }
        return true;
    } else if (l->ended && q->state == SHMND_QP_CONNECTED && breaks(l) && any(l, 8) == 0) {
        shmnd_qp_disconnect(q);
    }
    return false;
}

/* The connection has ended: the memory belongs to this side alone. */
static void scribble(struct lane *l)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        memset(l->out[i].at, 0x77, l->side->plan.room);
    for (uint32_t i = 0; i < RECEIVES; i++)
        memset(l->in[i].at, 0x77, l->side->plan.room);
    memset(l->board, 0x77, PAGE);
    memset(l->shelf, 0x77, PAGE);
    memset(l->pane, 0x77, PAGE);
}

/* Have all requests completed that were posted before the end? */
static bool all_completed(const struct lane *l)
{
    bool all = !outstanding(l);
    for (uint32_t i = 0; i < RECEIVES; i++)
        all = all && !l->in[i].posted;
    return all;
}

static bool lane_turn(struct lane *l)
{
    const struct plan *plan = &l->side->plan;
    struct shmnd_qp *q = &l->e->q;
    bool some = end(l);
    if (q->state == SHMND_QP_DOWN && !q->going_down && !l->left && all_completed(l)) {
        l->left = true;
        scribble(l);
    }
    if (q->state != SHMND_QP_CONNECTED)
        return some;
    if (plan->flush_in && l->sent < plan->messages && any(l, plan->flush_in) == 0)
        shmnd_qp_flush(q);
    some = post_receives(l) || some;
    return post_requests(l) || some;
}

static bool turn(void *user)
{
    struct side *s = user;
    bool some = false;
    for (uint32_t k = 0; k < s->plan.lanes; k++)
        some = lane_turn(&s->lanes[k]) || some;
    return some;
}

static bool done(void *user)
{
    const struct side *s = user;
    for (uint32_t k = 0; k < s->plan.lanes; k++) {
        const struct lane *l = &s->lanes[k];
        if (!(l->left || (l->last_told && l->last_got)) || outstanding(l))
            return false;
    }
    return true;
}

static void run(struct plan plan, uint64_t seed)
{
    static struct stage st;
    open_stage(&st, plan);
    dawdle_one_in = plan.dawdles;
    for (int i = 0; i < 2; i++) {
        st.runners[i].took = took;
        st.runners[i].turn = turn;
        st.runners[i].done = done;
    }
    runners_start(st.runners, seed);
    runners_join(st.runners);
    for (uint64_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < plan.lanes; k++) {
            const struct lane *l = &st.sides[i].lanes[k];
            NOTE("seed %" PRIu64 ", side %" PRIu64 ", lane %u", seed, i, k);
            /* If a receive lost its memory, later messages are reported as sent, and lost. */
            CHECK(l->told >= l->far->got);
            if (plan.ends[0] != TAKES_MEMORY && plan.ends[1] != TAKES_MEMORY) {
                EQUAL(l->told, l->far->got);
                EQUAL(l->told_sum, l->far->got_sum);
            }
            CHECK(l->left || l->told > plan.messages / 4);
        }
    }
    world_close(&st.w);
}

static void everything_both_ways(void)
{
    run((struct plan){.messages = 1500, .lanes = 1, .room = LONG_ROOM}, 1);
}

/* Rings so small that many Sends are listed: the sender and the reader compete for them. */
static void small_rings_both_ways(void)
{
    run((struct plan){.messages = 2000, .lanes = 1, .room = LONG_ROOM, .small_rings = true}, 5);
    run(
        (struct plan){
            .messages = 800, .lanes = 2, .room = LONG_ROOM, .small_rings = true, .flush_in = 100},
        6);
}

static void in_parts(void)
{
    run((struct plan){.messages = 400, .lanes = 1, .room = LONG_ROOM, .no_vm = true}, 2);
}

/* More connections than are polled one by one: producers mark them. */
static void many_connections(void)
{
    run((struct plan){.messages = 600, .lanes = LANES, .room = SHORT_ROOM}, 3);
}

static void flushes_in_between(void)
{
    run((struct plan){.messages = 1500, .lanes = 2, .room = LONG_ROOM, .flush_in = 100}, 4);
}

/* Every kind of end, by either side, after many or few messages. */
static void end_in_the_midst(enum ending ending)
{
    uint64_t rounds = number_of("SHMND_ENDINGS", 24);
    uint64_t seed = number_of("SHMND_ENDINGS_SEED", 100);
    if (rounds > 100)
        alarm(0); /* a long run was requested */
    for (uint64_t i = 0; i < rounds; i++) {
        struct plan plan = {.messages = 1000, .lanes = 1, .room = LONG_ROOM, .no_vm = i % 5 == 0};
        plan.dawdles = i % 2 ? 12 : 0;
        plan.small_rings = i % 3 != 0;
        plan.ends[0] = i % 4 == 1 ? STAYS : ending;
        plan.ends[1] = i % 4 == 0 ? STAYS : ending;
        plan.ends_at = 1 + i % 100;
        run(plan, seed + i);
    }
}

static void one_side_or_both_leave_in_the_midst(void)
{
    end_in_the_midst(LEAVES);
}

static void a_window_is_taken_back_in_the_midst(void)
{
    end_in_the_midst(TAKES_WINDOW);
}

static void memory_is_taken_back_in_the_midst(void)
{
    end_in_the_midst(TAKES_MEMORY);
}

/* ---- a thread that polls it ------------------------------------------------------------- */

#define WATCHED 3000u

static uint8_t *watched;
static shmnd_word64 watched_seen;

/* Lengths for every kind of copy, an aligned word among them. */
static uint32_t watched_length(uint64_t k)
{
    static const uint32_t lengths[] = {1, 2, 8, 9, 64, 65, 1000, 4096};
    return lengths[k % (sizeof lengths / sizeof lengths[0])];
}

static void *watches(void *arg)
{
    (void)arg;
    for (uint64_t k = 1; k <= WATCHED; k++) {
        uint32_t n = watched_length(k);
        uint8_t value = (uint8_t)(1 + k % 255);
        /* A word is stored and polled as a whole. */
        while (n == 8 ? shmnd_acquire64((shmnd_word64 *)(void *)watched) != ~0ull / 255 * value
                      : shmnd_byte_at(watched + n - 1) != value)
            sched_yield();
        for (uint32_t i = 0; i < n; i++)
            EQUAL(watched[i], value);
        memset(watched, 0, n);
        shmnd_release64(&watched_seen, k);
    }
    return NULL;
}

static void a_write_shows_its_last_byte_last(void)
{
    struct duo d;
    pthread_t watcher;
    duo_open(&d);
    uint8_t *source = shared_bytes(d.pa, PAGE);
    watched = shared_bytes(d.pb, PAGE);
    shmnd_put64(&watched_seen, 0);
    uint32_t from = region_new(d.pa, source, PAGE, 0);
    uint32_t to = region_new(d.pb, watched, PAGE, SHMND_MR_REMOTE_WRITE);
    CHECK(pthread_create(&watcher, NULL, watches, NULL) == 0);
    for (uint64_t k = 1; k <= WATCHED; k++) {
        struct shmnd_sge s = sge(source, watched_length(k), from);
        memset(source, (int)(1 + k % 255), watched_length(k));
        EQUAL(post_rdma(d.a, k, SHMND_WRITE, &s, 1, watched, to, 0), SHMND_SUCCESS);
        EXPECT(d.qa, SHMND_WRITE, k, SHMND_SUCCESS);
        while (shmnd_acquire64(&watched_seen) < k)
            sched_yield();
    }
    CHECK(pthread_join(watcher, NULL) == 0);
    duo_close(&d);
}

static const struct check_test tests[] = {
    TEST(everything_both_ways),
    TEST(small_rings_both_ways),
    TEST(in_parts),
    TEST(many_connections),
    TEST(flushes_in_between),
    TEST(one_side_or_both_leave_in_the_midst),
    TEST(a_window_is_taken_back_in_the_midst),
    TEST(memory_is_taken_back_in_the_midst),
    TEST(a_write_shows_its_last_byte_last),
};
MAIN(tests)
