/* SPDX-License-Identifier: Apache-2.0
 *
 * Assertions, seeded chance and guarded memory for the native tests. A failed
 * check names its place and both values, and ends the program.
 */
#ifndef SHMND_TEST_CHECK_H
#define SHMND_TEST_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

/* The name of the running test, for the message of a failure. */
static const char *check_what = "";
static char check_note[256];

#define NOTE(...) ((void)snprintf(check_note, sizeof check_note, __VA_ARGS__))

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            check_failed(__FILE__, __LINE__, #cond, 0, 0, false);                                  \
    } while (0)

#define EQUAL(got, want)                                                                           \
    do {                                                                                           \
        uint64_t got_ = (uint64_t)(got), want_ = (uint64_t)(want);                                 \
        if (got_ != want_)                                                                         \
            check_failed(__FILE__, __LINE__, #got " == " #want, got_, want_, true);                \
    } while (0)

static inline void check_failed(const char *file, int line, const char *text, uint64_t got,
                                uint64_t want, bool values)
{
    fprintf(stderr, "%s:%d: in %s: %s", file, line, check_what, text);
    if (values)
        fprintf(stderr, " (got %#" PRIx64 ", want %#" PRIx64 ")", got, want);
    fprintf(stderr, " [%s]\n", check_note);
    fflush(NULL);
    _exit(1);
}

struct check_test {
    const char *name;
    void (*run)(void);
};

#define TEST(name) {#name, name}

/* Runs the tests, or those whose names contain argv[1]. Nothing run is a failure. */
static inline int check_main(int argc, char **argv, const struct check_test *tests, size_t count)
{
    int ran = 0;
    alarm(120);
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && argv[1][0] && !strstr(tests[i].name, argv[1]))
            continue;
        check_what = tests[i].name;
        check_note[0] = 0;
        tests[i].run();
        ran++;
    }
    printf("%d tests passed\n", ran);
    return ran ? 0 : 1;
}

#define MAIN(tests)                                                                                \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return check_main(argc, argv, tests, sizeof tests / sizeof tests[0]);                      \
    }

/* The number in an environment variable, or a default. */
static inline uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- chance ------------------------------------------------------------------- */

struct chance {
    uint64_t state;
};

static inline uint64_t chance_next(struct chance *c)
{
    c->state += 0x9e3779b97f4a7c15ull;
    uint64_t z = c->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t chance_below(struct chance *c, uint64_t n)
{
    return chance_next(c) % n;
}

/* ---- memory with guards on both sides ------------------------------------------- */

#define GUARD_BYTES 512u
#define GUARD_FILL 0xa5
#define GUARD_MOST 4096u

struct guarded {
    uint8_t *block, *end_guard;
    size_t whole;
};

/* Memory stays shared with forked processes. */
static bool guarded_is_shared;

static struct guarded guarded[GUARD_MOST];
static uint32_t guarded_count;

/* `bytes` of zeros, aligned to a page, with guards before and after. Unused pages, which are most
 * of them, take no memory. */
static inline void *guard_alloc(size_t bytes)
{
    size_t whole = 4096 + ((bytes + 63) & ~(size_t)63) + GUARD_BYTES;
    int how = MAP_ANONYMOUS | (guarded_is_shared ? MAP_SHARED : MAP_PRIVATE);
    CHECK(guarded_count < GUARD_MOST);
    void *block = mmap(NULL, whole, PROT_READ | PROT_WRITE, how, -1, 0);
    CHECK(block != MAP_FAILED);
    uint8_t *at = (uint8_t *)block + 4096;
    memset(at - GUARD_BYTES, GUARD_FILL, GUARD_BYTES);
    /* The guard begins directly after the last byte. */
    memset(at + bytes, GUARD_FILL, whole - 4096 - bytes);
    ASAN_POISON_MEMORY_REGION(block, 4096);
    ASAN_POISON_MEMORY_REGION(at + bytes, whole - 4096 - bytes);
    guarded[guarded_count++] = (struct guarded){block, at + bytes, whole};
    return at;
}

static inline void guard_check(void)
{
    for (uint32_t i = 0; i < guarded_count; i++) {
        uint8_t *at = guarded[i].block + 4096;
        ASAN_UNPOISON_MEMORY_REGION(guarded[i].block, 4096);
        ASAN_UNPOISON_MEMORY_REGION(guarded[i].end_guard, GUARD_BYTES);
        for (uint32_t k = 0; k < GUARD_BYTES; k++) {
            EQUAL(at[-1 - (int)k], GUARD_FILL);
            EQUAL(guarded[i].end_guard[k], GUARD_FILL);
        }
        ASAN_POISON_MEMORY_REGION(guarded[i].block, 4096);
        ASAN_POISON_MEMORY_REGION(guarded[i].end_guard, GUARD_BYTES);
    }
}

/* Checks the guards and frees all memory. */
static inline void guard_free_all(void)
{
    guard_check();
    for (uint32_t i = 0; i < guarded_count; i++) {
        ASAN_UNPOISON_MEMORY_REGION(guarded[i].block, guarded[i].whole);
        CHECK(munmap(guarded[i].block, guarded[i].whole) == 0);
    }
    guarded_count = 0;
}

#endif
