/* SPDX-License-Identifier: Apache-2.0
 *
 * A Write whose target is watched by a thread that makes no call: the last byte becomes visible
 * last, wherever the bytes come from, and wherever the target lies.
 */
#include <pthread.h>
#include <sched.h>

#include "check.h"

#define SHMND_KILL_POINTS
void shmnd_kill_point(const char *name);

#include "world.h"

#define ROUNDS 60000u
#define PARTS 4u
#define MOST (40u << 10)

static const uint8_t *target, *wanted;
static uint32_t bytes, seen_before;

/* All but the last byte are there, and the last one is not. */
void shmnd_kill_point(const char *name)
{
    if (!target || strcmp(name, "write-before-last-byte"))
        return;
    seen_before++;
    CHECK(memcmp(target, wanted, bytes - 1) == 0);
    CHECK(target[bytes - 1] != wanted[bytes - 1]);
}

struct scene {
    struct duo d;
    uint8_t *from, *into;
    uint32_t source, sink;
};

static void open_scene(struct scene *s, bool private_target, bool private_source)
{
    duo_open(&s->d);
    s->from = private_source ? guard_alloc(MOST) : shared_bytes(s->d.pa, MOST);
    s->into = private_target ? guard_alloc(MOST) : shared_bytes(s->d.pb, MOST);
    s->source = region_new(s->d.pa, s->from, MOST, 0);
    s->sink = region_new(s->d.pb, s->into, MOST, SHMND_MR_LOCAL_WRITE | SHMND_MR_REMOTE_WRITE);
}

/* The source is in a file that another process may truncate: the kernel reads it. */
static void make_source_fragile(struct scene *s)
{
    struct shmnd_region *r = shmnd_region_lookup(&s->d.pa->registry, s->source);
    r->rights |= SHMND_MR_FRAGILE;
    r->offset = r->length;
    r->length = 0;
}

/* Writes `n` bytes from `parts` ranges, of which the last one has all but a few. */
static void write_list(struct scene *s, uint64_t context, uint32_t n, uint32_t parts, uint32_t at)
{
    struct shmnd_sge list[PARTS];
    uint32_t few = n > 2 * (PARTS - 1) ? 2 : 0;
    for (uint32_t i = 0, off = 0; i < parts; i++) {
        uint32_t length = i + 1 < parts ? few : n - off;
        list[i] = sge(s->from + off, length, s->source);
        off += length;
    }
    EQUAL(post_rdma(s->d.a, context, SHMND_WRITE, list, parts, s->into + at, s->sink, 0),
          SHMND_SUCCESS);
    EXPECT(s->d.qa, SHMND_WRITE, context, SHMND_SUCCESS);
}

static void of_a_list(void)
{
    static const uint32_t sizes[] = {1, 7, 8, 9, 31, 300, 1000, 5000, 20000, MOST - 100};
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t parts = 1; parts <= PARTS; parts++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                struct scene s;
                NOTE("source %u, %u parts, %u bytes", k, parts, sizes[i]);
                open_scene(&s, false, k);
                if (k == 2)
                    make_source_fragile(&s);
                fill(s.from, sizes[i], 3);
                s.from[sizes[i] - 1] |= 1;
                seen_before = 0;
                bytes = sizes[i];
                wanted = s.from;
                target = s.into + 24;
                write_list(&s, 1, bytes, parts, 24);
                target = NULL;
                EQUAL(seen_before, bytes == 8 && parts == 1 ? 0 : 1); /* one store */
                CHECK(memcmp(s.into + 24, s.from, bytes) == 0);
                EQUAL(s.into[24 + bytes], 0);
                EQUAL(s.into[23], 0);
                duo_close(&s.d);
            }
}

/* ---- by the kernel ------------------------------------------------------------------------ */

static const uint8_t *watched;
static uint32_t length;
static shmnd_word32 round_seen;
static uint64_t early;

/* The other thread may have this CPU. */
static void yield_at(uint32_t polls)
{
    if (polls % 1024 == 0)
        sched_yield();
}

static void *watch(void *unused)
{
    (void)unused;
    for (uint32_t i = 1; i < ROUNDS; i++) {
        const uint8_t value = (uint8_t)(i % 251 + 1);
        for (uint32_t polls = 1; shmnd_byte_at(watched + length - 1) != value; polls++)
            yield_at(polls);
        for (uint32_t k = 0; k < length - 1; k += 16)
            early += shmnd_byte_at(watched + k) != value;
        shmnd_release32(&round_seen, i);
    }
    return NULL;
}

/* The thread reads while the kernel writes. A target that does not begin at a line is the one for
 * which processors store the last line first. */
static void into_private_memory(void)
{
    static const uint32_t sizes[] = {1000, 5000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct scene s;
        pthread_t thread;
        NOTE("%u bytes", sizes[k]);
        open_scene(&s, true, false);
        uint32_t at = (uint32_t)(64 - ((uintptr_t)s.into & 63)) + 24;
        watched = s.into + at;
        length = sizes[k];
        early = 0;
        shmnd_put32(&round_seen, 0);
        CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
        for (uint32_t i = 1; i < ROUNDS; i++) {
            memset(s.from, (int)(i % 251 + 1), length);
            write_list(&s, i, length, 1, at);
            for (uint32_t polls = 1; shmnd_acquire32(&round_seen) != i; polls++)
                yield_at(polls);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        EQUAL(early, 0);
        CHECK(memcmp(watched, s.from, length) == 0);
        duo_close(&s.d);
    }
}

static const struct check_test tests[] = {
    TEST(of_a_list),
    TEST(into_private_memory),
};
MAIN(tests)
