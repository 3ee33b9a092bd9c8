/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments that a peer released are unmapped without waiting: a long one by another thread, which
 * handles no signal, a short one at once, and at once if no thread can be started.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

static int observed_munmap(void *at, size_t bytes);
static int observed_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                           void *arg);
#define munmap observed_munmap
#define pthread_create observed_create
#include "wire/unmap.h"
#undef munmap
#undef pthread_create

#include "check.h"

static pthread_t by;
static bool deaf, refused;
static _Atomic size_t gone, longest;

static int observed_munmap(void *at, size_t bytes)
{
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
    deaf = sigismember(&blocked, SIGINT) == 1;
    by = pthread_self();
    int done = munmap(at, bytes);
    if (bytes > atomic_load(&longest))
        atomic_store(&longest, bytes);
    atomic_fetch_add(&gone, bytes);
    return done;
}

static int observed_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                           void *arg)
{
    return refused ? EAGAIN : pthread_create(thread, attr, run, arg);
}

/* Unmaps so much. True: this thread did. */
static bool unmaps_here(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    atomic_store(&gone, 0);
    atomic_store(&longest, 0);
    shmnd_unmap_soon(at, bytes);
    while (atomic_load(&gone) != bytes)
        usleep(1000);
    CHECK(msync(at, bytes, MS_ASYNC) != 0); /* it is not mapped any more */
    return pthread_equal(by, pthread_self());
}

static void a_short_one_at_once(void)
{
    CHECK(unmaps_here(SHMND_UNMAP_AT_ONCE));
    CHECK(!deaf);
}

static void a_long_one_by_another_thread(void)
{
    CHECK(!unmaps_here(SHMND_UNMAP_AT_ONCE + 4096));
    CHECK(deaf);
    EQUAL(atomic_load(&longest), SHMND_UNMAP_PIECE);
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
    CHECK(!sigismember(&blocked, SIGINT));
}

static void at_once_where_no_thread_can_be_had(void)
{
    refused = true;
    CHECK(unmaps_here(SHMND_UNMAP_AT_ONCE + 4096));
    refused = false;
}

static const struct check_test tests[] = {
    TEST(a_short_one_at_once),
    TEST(a_long_one_by_another_thread),
    TEST(at_once_where_no_thread_can_be_had),
};
MAIN(tests)
