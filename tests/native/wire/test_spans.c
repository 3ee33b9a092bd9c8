/* SPDX-License-Identifier: Apache-2.0
 *
 * Scattered copies of every shape against a plain reference, and the chunks of
 * a large message: that they cover it, and that each is claimed once.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

static uint32_t calls; /* of the kernel, to copy */

static ssize_t counted_readv(pid_t pid, const struct iovec *here, unsigned long n,
                             const struct iovec *there, unsigned long m, unsigned long flags)
{
    calls++;
    return process_vm_readv(pid, here, n, there, m, flags);
}

static ssize_t counted_writev(pid_t pid, const struct iovec *here, unsigned long n,
                              const struct iovec *there, unsigned long m, unsigned long flags)
{
    calls++;
    return process_vm_writev(pid, here, n, there, m, flags);
}

#define process_vm_readv counted_readv
#define process_vm_writev counted_writev
#include "wire/process_memory.h"

#define BYTES 4096u

/* A random scatter list of exactly `total` bytes in `memory`, in order. */
static struct shmnd_spans scatter(struct chance *c, uint8_t *memory, uint32_t total)
{
    struct shmnd_spans s;
    shmnd_spans_clear(&s);
    uint32_t at = 0, left = total;
    while (left) {
        uint32_t n = s.count == SHMND_MAX_SGE - 1 ? left : 1 + (uint32_t)chance_below(c, left);
        at += (uint32_t)chance_below(c, 3);
        shmnd_spans_add(&s, (uint64_t)(uintptr_t)(memory + at), n);
        at += n;
        left -= n;
    }
    EQUAL(s.total, total);
    return s;
}

static void collect(const struct shmnd_spans *s, uint8_t *out)
{
    for (uint32_t i = 0; i < s->count; i++) {
        memcpy(out, (const void *)(uintptr_t)s->v[i].at, s->v[i].length);
        out += s->v[i].length;
    }
}

static void copies(bool remote)
{
    struct shmnd_process me = shmnd_this_process();
    struct chance c = {remote ? 3 : 4};
    uint8_t *src = guard_alloc(2 * BYTES), *dst = guard_alloc(2 * BYTES);
    uint8_t want[BYTES], got[BYTES];
    for (int turn = 0; turn < 500; turn++) {
        uint32_t total = (uint32_t)chance_below(&c, BYTES);
        for (uint32_t i = 0; i < 2 * BYTES; i++)
            src[i] = (uint8_t)chance_next(&c);
        struct shmnd_spans from = scatter(&c, src, total), to = scatter(&c, dst, total);
        uint64_t off = chance_below(&c, total + 1), n = chance_below(&c, total - off + 1);
        struct shmnd_spans a, b;
        collect(&from, want);
        shmnd_spans_slice(&from, off, n, &a);
        shmnd_spans_slice(&to, off, n, &b);
        EQUAL(a.total, n);
        EQUAL(b.total, n);
        collect(&to, got);
        memcpy(got + off, want + off, n);
        if (remote) {
            b.remote = (uint32_t)chance_next(&c); /* any of its stretches */
            EQUAL(shmnd_vm_copy(&me, &b, &a), 0);
        } else {
            shmnd_spans_copy_mapped(&b, &a);
        }
        uint8_t now[BYTES];
        collect(&to, now);
        CHECK(memcmp(now, got, total) == 0);
        guard_check();
    }
    guard_free_all();
}

static void mapped_copies(void)
{
    copies(false);
}

static void remote_copies(void)
{
    copies(true);
}

/* Ranges that the kernel would copy byte by byte go by a stage, in pieces, and in their order. */
static void remote_copies_of_close_addresses(void)
{
    enum { LONG = 3 * SHMND_STAGE_BYTES + 99, ROOM = LONG + 4 * SHMND_COPY_PAGE };
    struct shmnd_process me = shmnd_this_process();
    uint8_t *here = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *there = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(here != MAP_FAILED && there != MAP_FAILED);
    for (uint32_t turn = 0; turn < 48; turn++) {
        bool writing = turn & 1;
        uint32_t distance = turn / 2 * 3 + 1, n = turn % 3 ? LONG : 6049 + turn;
        uint8_t *target = writing ? there : here, *source = writing ? here : there;
        struct shmnd_spans to, from;
        shmnd_spans_clear(&to);
        shmnd_spans_clear(&from);
        for (uint32_t i = 0; i < n; i++)
            source[i] = (uint8_t)((i + turn) * 2654435761u >> 13);
        memset(target, 0, ROOM);
        uint32_t first = turn % 5 * 700; /* a range before it, of another distance */
        shmnd_spans_add(&from, (uintptr_t)source + 1, first);
        shmnd_spans_add(&to, (uintptr_t)target + 1, first);
        shmnd_spans_add(&from, (uintptr_t)source + first + 100, n - first - 100);
        shmnd_spans_add(&to, (uintptr_t)target + first + 100 + distance, n - first - 100);
        *(writing ? &to.remote : &from.remote) = 3;
        calls = 0;
        EQUAL(shmnd_vm_copy(&me, &to, &from), 0);
        bool close = distance < SHMND_COPY_CLOSE && n - first - 100 > SHMND_COPY_LONG;
        uint32_t stages = (n - first - 100 + SHMND_STAGE_BYTES - 1) / SHMND_STAGE_BYTES;
        EQUAL(calls, close ? (first > 0) + stages : 1);
        CHECK(memcmp(target + 1, source + 1, first) == 0);
        CHECK(memcmp(target + first + 100 + distance, source + first + 100, n - first - 100) == 0);
        EQUAL(target[first + 1], 0);
        EQUAL(target[n + distance], 0);
    }
    CHECK(munmap(there + SHMND_STAGE_BYTES, ROOM - SHMND_STAGE_BYTES) == 0);
    for (uint32_t writing = 0; writing < 2; writing++) {
        uint8_t *target = writing ? there : here, *source = writing ? here : there;
        struct shmnd_spans to, from;
        shmnd_spans_clear(&to);
        shmnd_spans_clear(&from);
        memset(here, 1 + (int)writing, ROOM);
        memset(there, 7 + (int)writing, SHMND_STAGE_BYTES);
        shmnd_spans_add(&from, (uintptr_t)source, 8);
        shmnd_spans_add(&to, (uintptr_t)target, 8);
        shmnd_spans_add(&from, (uintptr_t)source + 64, LONG);
        shmnd_spans_add(&to, (uintptr_t)target + 80, LONG);
        *(writing ? &to.remote : &from.remote) = 3;
        EQUAL(shmnd_vm_copy(&me, &to, &from), EFAULT);
        EQUAL(target[7], source[7]); /* what precedes a failed range was copied */
    }
    CHECK(munmap(there, SHMND_STAGE_BYTES) == 0 && munmap(here, ROOM) == 0);
}

static void remote_failures(void)
{
    uint8_t *here = guard_alloc(64);
    struct shmnd_spans mine, theirs;
    shmnd_spans_clear(&mine);
    shmnd_spans_clear(&theirs);
    shmnd_spans_add(&mine, (uint64_t)(uintptr_t)here, 64);
    shmnd_spans_add_remote(&theirs, 16, 64);
    struct shmnd_process me = shmnd_this_process(), nobody = me;
    nobody.pid = 0x7ffffff0;
    EQUAL(shmnd_vm_copy(&me, &mine, &theirs), EFAULT);
    EQUAL(shmnd_vm_copy(&me, &theirs, &mine), EFAULT);
    EQUAL(shmnd_vm_copy(&nobody, &mine, &theirs), ESRCH);
    guard_free_all();
}

/* Another process (here: this one) has the PID of a process that is dead. */
static void a_number_given_away_again(void)
{
    uint8_t *here = guard_alloc(64), *there = guard_alloc(64);
    struct shmnd_spans mine, theirs;
    shmnd_spans_clear(&mine);
    shmnd_spans_clear(&theirs);
    shmnd_spans_add(&mine, (uint64_t)(uintptr_t)here, 64);
    shmnd_spans_add_remote(&theirs, (uint64_t)(uintptr_t)there, 64);
    int until_closed[2];
    CHECK(pipe(until_closed) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(until_closed[1]);
        _exit((int)read(until_closed[0], here, 1));
    }
    struct shmnd_process process = shmnd_this_process();
    process.pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(child > 0 && process.pidfd >= 0);
    memset(here, 1, 64);
    memset(there, 2, 64);
    EQUAL(shmnd_vm_copy(&process, &mine, &theirs), 0);
    EQUAL(here[63], 2);
    close(until_closed[0]);
    close(until_closed[1]);
    CHECK(waitpid(child, NULL, 0) == child);
    shmnd_put64(&process.alive_ns, 0); /* a tick later */
    memset(here, 3, 64);
    EQUAL(shmnd_vm_copy(&process, &mine, &theirs), ESRCH);
    EQUAL(shmnd_vm_copy(&process, &theirs, &mine), ESRCH);
    EQUAL(here[63], 3);
    EQUAL(there[63], 2);
    close(process.pidfd);
    guard_free_all();
}

/* The chunks of every length are adjacent and cover it. */
static void chunks_cover(void)
{
    struct chance c = {9};
    for (int turn = 0; turn < 20000; turn++) {
        uint64_t length = 1 + chance_next(&c) % (1ull << (1 + chance_below(&c, 32)));
        struct shmnd_chunks k = shmnd_chunks_of(length, (uint64_t)turn);
        NOTE("%" PRIu64 " bytes", length);
        CHECK(k.count >= 1 && k.count <= UINT16_MAX); /* room for them in the claim word */
        CHECK(k.size <= SHMND_CHUNK_MAX);
        CHECK(k.count <= SHMND_CHUNKS_MAX || k.size == SHMND_CHUNK_MAX);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < k.count; i++) {
            EQUAL(sum, i * k.size);
            uint64_t bytes = shmnd_claim_bytes(&k, (struct shmnd_claim){i, 1});
            CHECK(bytes > 0);
            sum += bytes;
        }
        EQUAL(sum, length);
    }
}

/* Claims from the back and from the front meet only when all chunks are claimed. */
static void both_ends(void)
{
    struct shmnd_share share = {0};
    for (uint32_t front = 0; front <= SHMND_CHUNKS_MAX; front++) {
        struct shmnd_chunks k = shmnd_chunks_of(SHMND_CHUNKS_MAX * SHMND_CHUNK_MIN, front);
        shmnd_chunks_advertise(&share, &k);
        for (uint32_t i = 0; i < front; i++)
            EQUAL(shmnd_chunks_claim_one(&share, &k, false), (int)i);
        for (uint32_t i = SHMND_CHUNKS_MAX; i-- > front;) {
            CHECK(shmnd_chunks_unclaimed(shmnd_relaxed64(&share.claim), &k));
            EQUAL(shmnd_chunks_claim_one(&share, &k, true), (int)i);
        }
        CHECK(!shmnd_chunks_unclaimed(shmnd_relaxed64(&share.claim), &k));
        EQUAL(shmnd_chunks_claim_one(&share, &k, false), -1);
        EQUAL(shmnd_chunks_claim_one(&share, &k, true), -1);
    }
}

/* How many claims two sides need that take turns, or one alone, each of at most `most` chunks. */
static uint32_t claims_of(uint64_t length, uint32_t most, bool alone, uint32_t *first)
{
    struct shmnd_share share = {0};
    struct shmnd_chunks k = shmnd_chunks_of(length, 5);
    shmnd_chunks_advertise(&share, &k);
    uint32_t n = 0, sum = 0;
    for (struct shmnd_claim c;; n++) {
        c = shmnd_chunks_claim_up_to(&share, &k, !alone && n % 2, most);
        if (!c.count)
            break;
        CHECK(c.count <= most);
        if (n == 0)
            *first = c.count;
        sum += c.count;
    }
    EQUAL(sum, k.count);
    return n;
}

/* Of two halves the first is the sender's and the last the reader's; a short message has one
 * chunk, which is the sender's. Any chunk of a long message is due to both. */
static void the_chunks_of_each_side(void)
{
    static const struct {
        uint32_t length, count, sender, reader; /* chunks due before the other side claims any */
    } cases[] = {
        {1, 1, 1, 0},           {SHMND_SHARE_MIN - 1, 1, 1, 0}, {SHMND_SHARE_MIN, 2, 1, 1},
        {SHMND_PIECE, 2, 1, 1}, {SHMND_PIECE + 1, 33, 33, 33},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int reading = 0; reading < 2; reading++) {
            struct shmnd_chunks c = shmnd_chunks_of(cases[i].length, 7);
            struct shmnd_share share;
            uint32_t due = 0;
            shmnd_chunks_advertise(&share, &c);
            EQUAL(c.count, cases[i].count);
            for (; shmnd_chunks_due(shmnd_relaxed64(&share.claim), &c, reading); due++)
                CHECK(shmnd_chunks_claim_one(&share, &c, reading) >= 0);
            EQUAL(due, reading ? cases[i].reader : cases[i].sender);
        }
}

/* Few system calls copy a long message, and still one side never takes most of it at once. */
static void few_claims_of_a_long_message(void)
{
    uint32_t first;
    EQUAL(claims_of(4u << 20, 16, false, &first), 4);
    EQUAL(first, 16); /* of 64 */
    EQUAL(claims_of(1u << 20, 1, false, &first), 2);
    EQUAL(first, 1); /* of 2 */
    EQUAL(claims_of(3u << 20, 16, false, &first), 4);
    EQUAL(claims_of(256u << 10, 16, false, &first), 2);
    EQUAL(claims_of(64u << 10, 32, false, &first), 2);
    EQUAL(claims_of(64u << 20, 1, false, &first), 64);
    EQUAL(claims_of(4u << 20, 16, true, &first), 6);
    EQUAL(claims_of(2u << 20, 1, true, &first), 2);
}

/* Whatever a peer writes to the word, a claimed chunk belongs to the message. */
static void claims_of_a_hostile_peer(void)
{
    struct chance c = {81};
    struct shmnd_share share = {0};
    for (int turn = 0; turn < 100000; turn++) {
        struct shmnd_chunks k = shmnd_chunks_of(1 + chance_below(&c, 8u << 20), 7);
        uint64_t word = (uint64_t)(chance_below(&c, 4) ? k.tag : 8) << 32 |
                        (uint64_t)chance_below(&c, chance_below(&c, 2) ? 70 : 65536) << 16 |
                        chance_below(&c, chance_below(&c, 2) ? 70 : 65536);
        NOTE("claim word %" PRIx64, word);
        shmnd_put64(&share.claim, word);
        struct shmnd_claim claim =
            shmnd_chunks_claim_up_to(&share, &k, turn % 2, 1 + (uint32_t)turn % 5);
        CHECK(claim.count <= 5 && claim.first + claim.count <= k.count);
    }
}

static struct shmnd_share *share;
static struct shmnd_chunks shared_chunks;
static shmnd_word32 claims[SHMND_CHUNKS_MAX];
static shmnd_word64 turn_number;

#define CLAIM_TURNS 3000u

static void *claimer(void *done_p)
{
    shmnd_word64 *done = done_p;
    for (uint64_t turn = 1; turn <= CLAIM_TURNS; turn++) {
        while (shmnd_acquire64(&turn_number) < turn)
            sched_yield();
        struct shmnd_chunks k = shmnd_chunks_of(64 * SHMND_CHUNK_MIN, turn);
        for (;;) {
            struct shmnd_claim c = shmnd_chunks_claim_up_to(share, &k, turn % 4 < 2, 1 + turn % 5);
            if (!c.count)
                break;
            for (uint32_t i = c.first; i < c.first + c.count; i++)
                shmnd_put32(&claims[i], shmnd_relaxed32(&claims[i]) + 1);
            shmnd_chunks_complete(share, c.count);
        }
        shmnd_release64(done, turn);
    }
    return NULL;
}

/* Two threads, from the same end or from both, claim each chunk of each message once, none of an
 * older message. */
static void each_chunk_once(void)
{
    pthread_t thread;
    shmnd_word64 *done = guard_alloc(8);
    share = guard_alloc(sizeof *share);
    CHECK(pthread_create(&thread, NULL, claimer, done) == 0);
    for (uint64_t turn = 1; turn <= CLAIM_TURNS; turn++) {
        shared_chunks = shmnd_chunks_of(64 * SHMND_CHUNK_MIN, turn);
        for (uint32_t i = 0; i < SHMND_CHUNKS_MAX; i++)
            shmnd_put32(&claims[i], 0);
        shmnd_chunks_advertise(share, &shared_chunks);
        shmnd_release64(&turn_number, turn);
        for (int chunk; (chunk = shmnd_chunks_claim_one(share, &shared_chunks, turn % 2)) >= 0;) {
            shmnd_put32(&claims[chunk], shmnd_relaxed32(&claims[chunk]) + 1);
            shmnd_chunks_complete(share, 1);
        }
        while (!shmnd_chunks_finished(share, &shared_chunks))
            sched_yield();
        for (uint32_t i = 0; i < SHMND_CHUNKS_MAX; i++)
            EQUAL(shmnd_relaxed32(&claims[i]), 1);
        struct shmnd_chunks late = shmnd_chunks_of(64 * SHMND_CHUNK_MIN, turn - 1);
        EQUAL(shmnd_chunks_claim_one(share, &late, turn % 2), -1);
        while (shmnd_acquire64(done) < turn)
            sched_yield();
    }
    pthread_join(thread, NULL);
    guard_free_all();
}

static void *late_claimer(void *unused)
{
    (void)unused;
    while (!shmnd_acquire64(&turn_number))
        sched_yield();
    CHECK(shmnd_chunks_claim_one(share, &shared_chunks, true) >= 0);
    return NULL;
}

/* A side waits no longer than it is allowed, and than until the last claim. */
static void a_claim_is_awaited(void)
{
    pthread_t thread;
    share = guard_alloc(sizeof *share);
    shared_chunks = shmnd_chunks_of(SHMND_SHARE_MIN, 1);
    shmnd_chunks_advertise(share, &shared_chunks);
    EQUAL(shmnd_chunks_claim_one(share, &shared_chunks, false), 0);
    CHECK(!shmnd_chunks_await_claim(share, &shared_chunks, 0));
    CHECK(!shmnd_chunks_await_claim(share, &shared_chunks, SHMND_PATIENCE_NS));
    shmnd_release64(&turn_number, 0);
    CHECK(pthread_create(&thread, NULL, late_claimer, NULL) == 0);
    shmnd_release64(&turn_number, 1);
    CHECK(shmnd_chunks_await_claim(share, &shared_chunks, 60000000000ull));
    CHECK(shmnd_chunks_await_claim(share, &shared_chunks, 0));
    pthread_join(thread, NULL);
    shmnd_release64(&turn_number, 0);
    guard_free_all();
}

static const struct check_test tests[] = {
    TEST(mapped_copies),
    TEST(remote_copies),
    TEST(remote_copies_of_close_addresses),
    TEST(remote_failures),
    TEST(a_number_given_away_again),
    TEST(chunks_cover),
    TEST(both_ends),
    TEST(the_chunks_of_each_side),
    TEST(a_claim_is_awaited),
    TEST(few_claims_of_a_long_message),
    TEST(claims_of_a_hostile_peer),
    TEST(each_chunk_once),
};
MAIN(tests)
