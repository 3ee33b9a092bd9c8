/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of an arena: none overlaps another, zeros are zeros, pages go back to the kernel, threads
 * do not disturb each other, and a forked child has blocks of its own.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "transport/copying/arena.h"

#include "check.h"

enum { BYTES = 256 << 20, MANY = 48 };

static struct shmpi_arena arena;

static void arena_begin(void)
{
    char *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    CHECK(shmpi_arena_open(&arena, base, BYTES));
}

static void arena_end(void)
{
    munmap(arena.base, BYTES);
    shmpi_arena_close(&arena);
}

static void sizes_are_the_smallest_that_fit(void)
{
    for (uint32_t kind = 1; kind < SHMPI_ARENA_KINDS; kind++)
        CHECK(shmpi_arena_size(kind) > shmpi_arena_size(kind - 1));
    for (uint64_t n = SHMPI_ARENA_LEAST; n <= SHMPI_ARENA_MOST; n += 1 + n / 999) {
        uint32_t kind = shmpi_arena_kind(n);
        CHECK(kind < SHMPI_ARENA_KINDS && shmpi_arena_size(kind) >= n);
        CHECK(!kind || shmpi_arena_size(kind - 1) < n);
        CHECK(shmpi_arena_size(kind) % SHMPI_PAGE == 0);
    }
}

/* One thread: blocks are marked in all their pages, and marks stay. */
static void *takes_and_gives(void *seed)
{
    struct chance c = {(uint64_t)(uintptr_t)seed};
    char *block[MANY] = {0};
    uint64_t size[MANY] = {0};
    for (int step = 0; step < 20000; step++) {
        uint64_t i = chance_below(&c, MANY);
        char mark = (char)(1 + (uintptr_t)seed * MANY + i);
        if (block[i]) {
            for (uint64_t at = 0; at < size[i]; at += SHMPI_PAGE)
                EQUAL(block[i][at], mark);
            EQUAL(block[i][size[i] - 1], mark);
            CHECK(shmpi_arena_has(&arena, block[i]) &&
                  shmpi_arena_held(&arena, block[i]) >= size[i]);
            shmpi_arena_return(&arena, block[i]);
            block[i] = NULL;
            continue;
        }
        bool zero = false;
        size[i] = SHMPI_ARENA_LEAST + chance_below(&c, step % 9 ? 300000 : 4 << 20);
        if (!(block[i] = shmpi_arena_take(&arena, size[i], &zero)))
            continue;
        for (uint64_t at = 0; at < size[i]; at += SHMPI_PAGE) {
            CHECK(!zero || !block[i][at]);
            block[i][at] = mark;
        }
        block[i][size[i] - 1] = mark;
    }
    for (int i = 0; i < MANY; i++)
        if (block[i])
            shmpi_arena_return(&arena, block[i]);
    return NULL;
}

static void blocks_of_threads_do_not_overlap(void)
{
    pthread_t thread[2];
    arena_begin();
    for (uintptr_t i = 0; i < 2; i++)
        EQUAL(pthread_create(&thread[i], NULL, takes_and_gives, (void *)i), 0);
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
    CHECK(arena.waiting <= SHMPI_ARENA_WAITING);
    arena_end();
}

static void small_and_large_sizes_are_not_taken(void)
{
    bool zero;
    arena_begin();
    CHECK(!shmpi_arena_take(&arena, SHMPI_ARENA_LEAST - 1, &zero));
    CHECK(!shmpi_arena_take(&arena, SHMPI_ARENA_MOST + 1, &zero));
    CHECK(!shmpi_arena_take(&arena, 0, &zero));
    void *block = shmpi_arena_take(&arena, SHMPI_ARENA_MOST, &zero);
    CHECK(block && zero);
    int more = 0;
    while (shmpi_arena_take(&arena, SHMPI_ARENA_MOST, &zero))
        more++;
    EQUAL(more, BYTES / SHMPI_ARENA_MOST - 1);
    shmpi_arena_return(&arena, block);
    CHECK(shmpi_arena_take(&arena, SHMPI_ARENA_MOST, &zero) == block);
    arena_end();
}

static void pages_go_back_and_read_as_zeros(void)
{
    enum { BLOCKS = 12 };
    char *block[BLOCKS];
    bool zero;
    int zeros = 0;
    arena_begin();
    for (int i = 0; i < BLOCKS; i++)
        memset(block[i] = shmpi_arena_take(&arena, SHMPI_ARENA_MOST, &zero), 7, SHMPI_ARENA_MOST);
    for (int i = 0; i < BLOCKS; i++)
        shmpi_arena_return(&arena, block[i]);
    EQUAL(arena.waiting, SHMPI_ARENA_WAITING);
    for (int i = 0; i < BLOCKS; i++) {
        char *again = shmpi_arena_take(&arena, SHMPI_ARENA_MOST, &zero);
        zeros += zero;
        for (uint64_t at = 0; at < SHMPI_ARENA_MOST; at += 511)
            CHECK(again[at] == (zero ? 0 : 7));
    }
    EQUAL(zeros, BLOCKS - SHMPI_ARENA_WAITING / SHMPI_ARENA_MOST);
    arena_end();
}

static void a_block_that_was_given_twice_is_taken_once(void)
{
    bool zero;
    arena_begin();
    void *block = shmpi_arena_take(&arena, 20000, &zero);
    shmpi_arena_return(&arena, block);
    shmpi_arena_return(&arena, block);
    CHECK(shmpi_arena_take(&arena, 20000, &zero) == block);
    CHECK(shmpi_arena_take(&arena, 20000, &zero) != block);
    arena_end();
}

static void a_forked_child_has_blocks_of_its_own(void)
{
    bool zero;
    arena_begin();
    char *gone = shmpi_arena_take(&arena, 50000, &zero);
    char *block = shmpi_arena_take(&arena, 100000, &zero);
    shmpi_arena_return(&arena, gone);
    memset(block, 1, 100000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        arena.lock = 1; /* as if another thread had held it */
        bool fits = shmpi_arena_unshare(&arena);
        for (int i = 0; i < 100000; i++)
            fits &= block[i] == 1;
        memset(block, 2, 100000);
        fits &= !shmpi_arena_take(&arena, 50000, &zero);
        shmpi_arena_return(&arena, block);
        _exit(fits ? 0 : 1);
    }
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    for (int i = 0; i < 100000; i++)
        CHECK(block[i] == 1);
    CHECK(shmpi_arena_take(&arena, 50000, &zero) == gone);
    arena_end();
}

static const struct check_test tests[] = {
    TEST(sizes_are_the_smallest_that_fit),
    TEST(blocks_of_threads_do_not_overlap),
    TEST(small_and_large_sizes_are_not_taken),
    TEST(pages_go_back_and_read_as_zeros),
    TEST(a_block_that_was_given_twice_is_taken_once),
    TEST(a_forked_child_has_blocks_of_its_own),
};

MAIN(tests)
