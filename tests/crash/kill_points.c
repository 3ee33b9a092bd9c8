/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that ends itself at a named step of the data plane, and what is left
 * to the one that it was connected with.
 *
 *     kill_points NAME PASS
 *
 * The child and its parent send to each other what there is: messages of all
 * lengths, Reads and Writes, windows, flushes, wake-ups, and at last a message
 * that does not fit and the end of the connection. At the given pass of the
 * named step the child ends as by SIGKILL. The parent must find every request
 * of its own ended, nothing outside registered memory changed, and a second
 * connection in order. It says how long the end took, in microseconds, from the
 * death on; 3 is its exit code when the child came to its end alive.
 *
 *     kill_points at-random SEED
 *
 * A clock ends the child at a random instant instead; until then it goes on.
 *
 *     kill_points NAME PASS stopped
 *
 * The child stands still at that step. The parent polls, uses its second connection and
 * ends the first meanwhile; then the child goes on, and both come to their ends.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define W_INBOX 8192u
#include "world.h"

#define ROUNDS 24
#define BYTES 80000u
#define LARGE 70000u
#define MOST 4000u
#define ENDED 4001u /* the context of a window that the other side has ended */

static const char *kill_name;
static long kill_pass;
static bool stands_still;
static uint64_t *death_ns; /* in memory of both */
static volatile sig_atomic_t child_ended;

void shmnd_kill_point(const char *name)
{
    if (!kill_name || strcmp(name, kill_name) != 0 || --kill_pass > 0)
        return;
    *death_ns = shmnd_now_ns();
    kill_name = NULL;
    kill(getpid(), stands_still ? SIGSTOP : SIGKILL);
}

static void on_child(int number)
{
    (void)number;
    child_ended = 1;
}

/* The kernel ends this process at an instant that nothing in it chooses. */
static void die_at(uint64_t ns)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec at = {.it_value = {(time_t)(ns / W_SECOND), (long)(ns % W_SECOND)}};
    timer_t timer;
    *death_ns = ns;
    EQUAL(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    EQUAL(timer_settime(timer, TIMER_ABSTIME, &at, NULL), 0);
}

struct actor {
    struct pair *pair;
    struct queue *queue;
    uint8_t *memory, *private;
    uint32_t token, private_token, remote_token, window, lent;
    shmnd_word32 *offer, *offered; /* in memory of both: ours that the other is to end, and its */
    uint32_t last;                 /* that we have ended */
    const uint8_t *remote;
    uint64_t posted, ended;
    bool pending[MOST]; /* by context, which come round again */
};

static void collect(struct actor *a)
{
    queue_turn(a->queue);
    for (; a->queue->taken != a->queue->got; a->queue->taken++) {
        struct shmnd_cqe *e = &a->queue->inbox[a->queue->taken];
        uint64_t context = (uintptr_t)e->context;
        if (context == ENDED) {
            EQUAL(e->type, SHMND_INVALIDATE);
            continue;
        }
        CHECK(context < MOST);
        CHECK(a->pending[context]);
        a->pending[context] = false;
        a->ended++;
    }
    a->queue->taken = a->queue->got = 0;
}

static uint64_t next_context(struct actor *a)
{
    CHECK(!a->pending[a->posted % MOST]);
    return a->posted % MOST;
}

static void count(struct actor *a, uint32_t status)
{
    if (status == SHMND_SUCCESS)
        a->pending[a->posted++ % MOST] = true;
}

static void take_in(struct actor *a, uint32_t bytes, bool private)
{
    uint8_t *at = private ? a->private : a->memory;
    uint32_t token = private ? a->private_token : a->token, third = bytes / 3;
    struct shmnd_sge s[2] = {sge(at, third, token), sge(at + third, bytes - third, token)};
    count(a, post_receive(a->pair, next_context(a), s, 2));
}

static void send_bytes(struct actor *a, uint32_t bytes, bool private)
{
    uint8_t *at = private ? a->private : a->memory;
    uint32_t token = private ? a->private_token : a->token, half = bytes / 2;
    struct shmnd_sge s[2] = {sge(at, half, token), sge(at + half, bytes - half, token)};
    count(a, post_send(a->pair, next_context(a), s, 2, 0));
}

static void reach_over(struct actor *a, uint8_t type, uint32_t bytes)
{
    struct shmnd_sge s = sge(a->memory, bytes, a->token);
    count(a, post_rdma(a->pair, next_context(a), type, &s, 1, a->remote, a->remote_token, 0));
}

/* Lends the other side a window, unless it still has one. */
static void lend(struct actor *a)
{
    struct proc *proc = a->pair->proc;
    struct shmnd_region *r = &proc->registry.regions[shmnd_token_index(a->lent)];
    if (r->serial)
        return;
    a->lent = window_again(proc, a->lent, SHMND_ALLOW_WRITE, a->pair->q.link.connection);
    r->serial = a->pair->q.serial;
    r->context = (void *)(uintptr_t)ENDED;
    shmnd_put32(a->offer, a->lent);
}

/* Writes through the window that the other side lends, and ends it with a message. */
static void give_back(struct actor *a)
{
    struct shmnd_sge s = sge(a->memory, 2000, a->token);
    uint32_t token = shmnd_relaxed32(a->offered);
    if (token == a->last)
        return;
    count(a, post_rdma(a->pair, next_context(a), SHMND_WRITE, &s, 1, a->remote, token, 0));
    count(a, post_invalidating(a->pair, next_context(a), &s, 1, token, 0));
    a->last = token;
}

/* Until what was asked for is done, or for a while. */
static void carry_on(struct actor *a)
{
    uint64_t end = shmnd_now_ns() + W_SECOND / 50;
    do
        collect(a);
    while (a->pair->q.wq.oldest != a->pair->q.wq.end && shmnd_now_ns() < end && !child_ended);
}

/* Makes no call until the other side has taken the first Send that is listed, or for a while. */
static void compute(struct actor *a)
{
    const struct shmnd_qp *q = &a->pair->q;
    const struct shmnd_wqe *w = &q->wq.entries[q->wq.next & q->wq.mask];
    struct timespec moment = {.tv_nsec = 300000};
    for (int i = 0; i < 100 && q->backlog.count && !child_ended; i++) {
        if (w->listing &&
            shmnd_relaxed64(&shmnd_own_backlog_entry(q, w->message)->word) != w->listing)
            break;
        (void)nanosleep(&moment, NULL);
    }
}

/* Sends that find no room in the ring are listed. */
static void find_no_room(struct actor *a, bool computes)
{
    shmnd_word64 nonsense = UINT64_MAX;
    struct shmnd_slots_writer *out = &a->pair->q.out;
    const shmnd_word64 *read_pos = out->read_pos;
    out->read_pos = &nonsense;
    out->room_pos = out->write_pos;
    for (int i = 0; i < 3; i++)
        send_bytes(a, 600, false);
    if (computes)
        compute(a);
    out->read_pos = read_pos;
}

/* Announces a large message, and makes no call until the reader has claimed its chunks, or for a
 * while. */
static void leave_to_reader(struct actor *a)
{
    struct shmnd_qp *q = &a->pair->q;
    struct shmnd_sge s = sge(a->memory, LARGE, a->token);
    struct timespec moment = {.tv_nsec = 300000};
    bool kept;
    uint64_t context = next_context(a);
    uint32_t status = shmnd_post_send(q, (void *)(uintptr_t)context, &s, 1, 0, &kept);
    count(a, status);
    if (status != SHMND_SUCCESS || shmnd_tx_advance(q) != SHMND_RUN ||
        q->tx.job.kind != SHMND_JOB_CHUNKS)
        return;
    const struct shmnd_job *job = &q->tx.job;
    for (int i = 0; i < 100 && !child_ended; i++) {
        if (!shmnd_chunks_unclaimed(shmnd_relaxed64(&job->share->claim), &job->chunks))
            return;
        (void)nanosleep(&moment, NULL);
    }
}

/* One round of everything; `salt` tells the rounds apart. */
static void act(struct actor *a, uint32_t salt)
{
    static const uint32_t sizes[] = {8, 500, 2000, 5000, LARGE};
    struct shmnd_arming *arming = &a->queue->cq.arming;
    for (int i = 0; i < 9; i++)
        take_in(a, BYTES, (salt + (uint32_t)i) % 3 == 2);
    if (salt % 2)
        pair_never_bounces(a->pair);
    else
        a->pair->q.bounces.refused = false;
    if (salt / 2 % 2)
        (void)shmnd_bell_arm_at_word(arming);
    else
        shmnd_bell_arm(arming, SHMND_ARMED_ANY);
    for (int i = 0; i < 5; i++) {
        send_bytes(a, sizes[i], i == 3 || (i == 4 && salt % 4 == 3));
        if (salt % 3)
            carry_on(a);
    }
    carry_on(a);
    if (salt % 8 == 2)
        leave_to_reader(a);
    carry_on(a);
    shmnd_bell_disarm(arming);
    reach_over(a, SHMND_WRITE, 4000);
    reach_over(a, SHMND_READ, LARGE);
    lend(a);
    give_back(a);
    carry_on(a);
    if (salt % 4 == 1) {
        for (int i = 0; i < 4; i++)
            take_in(a, BYTES, false);
        find_no_room(a, salt % 8 == 1);
    }
    carry_on(a);
    a->window =
        window_again(a->pair->proc, a->window, SHMND_ALLOW_READ, a->pair->q.link.connection);
    shmnd_grant_revoke(shmnd_grant_entry(&a->pair->proc->registry, a->window));
    if (salt % 4 == 3) {
        /* More than there are receives: the peer posts no more while this queue is full. */
        for (int i = 0; i < 16; i++)
            send_bytes(a, 8, false);
        shmnd_qp_flush(&a->pair->q);
        settle(a->pair);
    }
    carry_on(a);
}

/* The child's last steps: a message that does not fit, the end of the connection. */
static void finish(struct actor *a, bool too_small)
{
    uint64_t end = shmnd_now_ns() + 20 * W_SECOND; /* the other side may have much to do */
    if (too_small) {
        shmnd_qp_flush(&a->pair->q);
        settle(a->pair);
        /* While the flush waits for a copy of the other side, the queue of receives is full. */
        for (uint64_t before = a->posted; a->posted == before && shmnd_now_ns() < end; collect(a))
            take_in(a, 3, false);
        while (a->pair->q.state == SHMND_QP_CONNECTED && shmnd_now_ns() < end)
            collect(a);
    } else {
        disconnect(a->pair);
    }
    while (a->pair->q.going_down && shmnd_now_ns() < end)
        settle(a->pair);
}

static struct actor actor_of(struct pair *pair, struct queue *queue, struct proc *proc)
{
    struct actor a = {.pair = pair, .queue = queue};
    a.memory = shared_bytes(proc, BYTES);
    a.private = guard_alloc(BYTES);
    a.token = region_new(proc, a.memory, BYTES, 0xf);
    a.private_token = region_new(proc, a.private, BYTES, 1);
    a.window = region_new(proc, a.memory, 4096, 0);
    a.lent = region_new(proc, a.memory, 4096, 0);
    a.offer = guard_alloc(sizeof *a.offer);
    queue_reserve(queue, 1);
    return a;
}

/* Idle connections, so many that the queues use their bitmaps. */
static void add_idle(struct duo *d)
{
    struct pair_options few = {2, 2, 2, 0, W_SECOND, NULL};
    for (int i = 0; i < 5; i++)
        pair_connect(pair_new(d->qa, d->qa, few), pair_new(d->qb, d->qb, few));
}

/* A connection that has nothing to do with any of it. */
static void undisturbed(void)
{
    static struct duo d;
    duo_open(&d);
    uint8_t *src = shared_bytes(d.pa, 4096), *dst = shared_bytes(d.pb, 4096);
    uint32_t ta = region_new(d.pa, src, 4096, 0), tb = region_new(d.pb, dst, 4096, 1);
    struct shmnd_sge s = sge(src, 4096, ta), r = sge(dst, 4096, tb);
    fill(src, 4096, 3);
    EQUAL(post_receive(d.b, 1, &r, 1), SHMND_SUCCESS);
    EQUAL(post_send(d.a, 2, &s, 1, 0), SHMND_SUCCESS);
    EXPECT(d.qa, SHMND_SEND, 2, SHMND_SUCCESS);
    EXPECT_RECEIVED(d.qb, 1, 4096);
    CHECK(filled(dst, 4096, 3));
}

/* The child stands still: no call of ours waits for it, and what it is not in the midst of ends.
 * True: then it went on to its own end. */
static bool outlast_a_stop(struct duo *d, struct actor *mine, pid_t child)
{
    int status = 0;
    for (int i = 0; i < 100; i++)
        collect(mine);
    undisturbed();
    if (d->b->q.state == SHMND_QP_CONNECTED)
        disconnect(d->b);
    for (int i = 0; i < 100 && d->b->q.going_down; i++)
        settle(d->b);
    CHECK(waitpid(child, &status, WNOHANG | WUNTRACED) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    while (waitpid(child, &status, WNOHANG) == 0) {
        settle(d->b);
        collect(mine);
    }
    for (int i = 0; i < 50 && (mine->ended != mine->posted || d->b->q.going_down); i++) {
        settle(d->b);
        collect(mine);
    }
    EQUAL(d->b->q.going_down, false);
    EQUAL(mine->ended, mine->posted);
    guard_check();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    static struct duo d;
    static struct actor mine, childs;
    check_what = argc > 2 ? argv[1] : "usage";
    CHECK(argc > 2);
    alarm(100);
    guarded_is_shared = true;
    death_ns = guard_alloc(sizeof *death_ns);
    struct world_options o = {.segment_bytes = 256u << 10, .no_vm = true, .fitting_rings = true};
    struct pair_options p = {16, 16, 4, 0, 20 * W_SECOND, NULL};
    duo_open_with(&d, o, p, p);
    add_idle(&d);
    childs = actor_of(d.a, d.qa, d.pa);
    mine = actor_of(d.b, d.qb, d.pb);
    childs.remote = mine.memory, childs.remote_token = mine.token;
    mine.remote = childs.memory, mine.remote_token = childs.token;
    childs.offered = mine.offer, mine.offered = childs.offer;
    bool at_random = strcmp(argv[1], "at-random") == 0;
    stands_still = argc > 3;
    CHECK(signal(SIGCHLD, on_child) != SIG_ERR);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct chance luck = {(uint64_t)atol(argv[2])};
        if (at_random)
            die_at(shmnd_now_ns() + chance_below(&luck, W_SECOND / 30));
        kill_name = argv[1];
        kill_pass = atol(argv[2]);
        for (uint32_t i = 0; at_random || i < ROUNDS; i++)
            act(&childs, i);
        finish(&childs, atol(argv[2]) % 2);
        _exit(0);
    }
    int status = 0;
    for (uint32_t i = 0; waitpid(child, &status, WNOHANG | WUNTRACED) == 0; i++) {
        if (at_random || i < ROUNDS)
            act(&mine, i + 1);
        else if (d.b->q.state == SHMND_QP_CONNECTED && i % 64 == 0)
            send_bytes(&mine, 500, false);
        collect(&mine);
    }
    if (WIFSTOPPED(status)) {
        CHECK(outlast_a_stop(&d, &mine, child));
        world_close(&d.w);
        return 0;
    }
    CHECK(WIFEXITED(status) || WTERMSIG(status) == SIGKILL);
    uint64_t from = *death_ns;
    peer_dies(d.pb);
    for (int i = 0; i < 50 && (mine.ended != mine.posted || d.b->q.going_down); i++) {
        settle(d.b);
        collect(&mine);
    }
    EQUAL(d.b->q.going_down, false);
    EQUAL(mine.ended, mine.posted);
    uint64_t took = (shmnd_now_ns() - from) / 1000;
    guard_check();
    undisturbed();
    world_close(&d.w);
    if (WIFEXITED(status))
        return 3;
    printf("%" PRIu64 " us\n", took);
    return 0;
}
