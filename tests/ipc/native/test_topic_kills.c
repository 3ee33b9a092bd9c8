/* SPDX-License-Identifier: Apache-2.0
 *
 * A publisher or a subscriber that ends at a named step, as by SIGKILL: the others receive every
 * sample whole, once and in order, and no slot is missing afterwards.
 */
#define SHMND_KILL_POINTS
#include "topic.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static const char *kill_name;
static long kill_pass;

void shmnd_kill_point(const char *name)
{
    if (kill_name && strcmp(name, kill_name) == 0 && --kill_pass <= 0)
        kill(getpid(), SIGKILL);
}

static pid_t forked(const char *step, long pass)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        kill_name = step;
        kill_pass = pass;
    }
    return child;
}

static void killed(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A subscriber in a child receives, holds, sleeps and gives back until it ends. */
static void live_as_subscriber(struct reader *s, struct topic *t)
{
    struct shmnd_found held[4];
    for (uint32_t i = 0; i < 4; i++)
        held[i].hold = SHMND_NO_SLOT;
    for (uint64_t n = 0;; n++) {
        struct shmnd_found found;
        if (shmnd_reading_next(&s->r, &found) != SHMND_OUTCOME_FOUND) {
            shmnd_reading_doze(&s->r);
            sched_yield();
            continue;
        }
        reader_check(s, t, &found);
        if (found.hold == SHMND_NO_SLOT)
            continue;
        if (held[n % 4].hold != SHMND_NO_SLOT)
            shmnd_reading_let_go(&s->r, held[n % 4].hold);
        held[n % 4] = found;
    }
}

static void a_subscriber_ends_at_each_step(void)
{
    static const char *const steps[] = {"slot-held", "cursor-moved", "subscriber-armed"};
    for (uint32_t i = 0; i < 3 * 4 * 6; i++) {
        const char *step = steps[i % 3];
        enum shmnd_policy policy = i / 3 % 4;
        struct topic t;
        struct reader dies, lives;
        topic_open(&t, 0, 96);
        reader_open(&dies, &t, policy, 10);
        reader_open(&lives, &t, SHMND_DROP_OLDEST, 60);
        topic_seat(&t, &dies, 0);
        topic_seat(&t, &lives, 1);
        reader_sit(&dies);
        reader_sit(&lives);
        NOTE("%s, policy %u", step, policy);
        pid_t child = forked(step, 1 + i / 12 * 7);
        if (child == 0)
            live_as_subscriber(&dies, &t);
        int status = 0;
        while (waitpid(child, &status, WNOHANG) == 0) {
            (void)topic_publish(&t);
            while (reader_take(&lives, &t))
                ;
            sched_yield();
        }
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        shmnd_board_leave(&t.b, 0);
        for (int more = 0; more < 300; more++) {
            CHECK(topic_publish(&t));
            CHECK(reader_take(&lives, &t));
        }
        EQUAL(lives.got, t.b.next);
        EQUAL(topic_missing(&t), 0);
        reader_close(&dies);
        reader_close(&lives);
        topic_close(&t);
    }
}

static void live_as_publisher(struct topic *t)
{
    for (;;) {
        if (topic_publish(t))
            continue;
        shmnd_board_block(&t->b, true);
        sched_yield();
        shmnd_board_block(&t->b, false);
    }
}

static void a_publisher_ends_at_each_step(void)
{
    static const char *const steps[] = {"lines-withdrawn", "line-written", "sample-published",
                                        "publisher-blocked"};
    for (uint32_t i = 0; i < 4 * 8; i++) {
        const char *step = steps[i % 4];
        struct topic t;
        struct reader s[4];
        bool blocks = i / 4 % 2 || i % 4 == 3;
        topic_open(&t, 0, TOPIC_SLOTS);
        for (uint32_t p = 0; p < 4; p++) {
            reader_open(&s[p], &t, p, 20);
            if (p != SHMND_BLOCK || blocks) {
                topic_seat(&t, &s[p], p);
                reader_sit(&s[p]);
            }
        }
        NOTE("%s", step);
        pid_t child = forked(step, 1 + i * 37 % 400);
        if (child == 0)
            live_as_publisher(&t);
        int status = 0;
        bool gone = false;
        for (;;) {
            bool took = false;
            for (uint32_t p = 0; p < 4; p++)
                took = (p != SHMND_BLOCK || blocks) && reader_take(&s[p], &t) ? true : took;
            if (gone && !took)
                break;
            gone = gone || waitpid(child, &status, WNOHANG) == child;
        }
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        uint64_t written = shmnd_relaxed64(&t.b.head->written);
        for (uint32_t p = 0; p < 4; p++) {
            NOTE("%s, policy %u, %" PRIu64 " written", step, p, written);
            CHECK(s[p].next <= written + 1); /* one whose line was written is whole */
            if (p == SHMND_BLOCK && blocks)
                CHECK(s[p].got == s[p].next && s[p].next >= written);
            if (p == SHMND_DROP_OLDEST || p == SHMND_CONFLATE)
                EQUAL(s[p].got + shmnd_reading_lost(&s[p].r), s[p].next);
            reader_close(&s[p]);
        }
        topic_close(&t);
    }
}

static void a_publisher_ends_while_it_seats_one(void)
{
    for (uint32_t policy = 0; policy < 4; policy++) {
        struct topic t;
        struct reader s;
        topic_open(&t, 5, 64);
        for (int i = 0; i < 9; i++)
            CHECK(topic_publish(&t));
        reader_open(&s, &t, policy, 10);
        pid_t child = forked("seat-written", 1);
        if (child == 0)
            topic_seat(&t, &s, 0);
        killed(child);
        CHECK(!shmnd_reading_find_seat(&s.r, s.ident, TOPIC_SEATS));
        struct shmnd_found found;
        for (enum shmnd_outcome outcome; (outcome = shmnd_reading_next(&s.r, &found));) {
            CHECK(outcome == SHMND_OUTCOME_FOUND || outcome == SHMND_OUTCOME_COPY);
            reader_check(&s, &t, &found);
            CHECK(outcome == SHMND_OUTCOME_FOUND || shmnd_reading_copied(&s.r));
        }
        EQUAL(s.got, 5);
        reader_close(&s);
        topic_close(&t);
    }
}

static void a_publisher_ends_as_its_board_moves(void)
{
    struct topic t;
    struct reader s;
    topic_open(&t, 0, 64);
    reader_open(&s, &t, SHMND_BLOCK, 20);
    topic_seat(&t, &s, 0);
    reader_sit(&s);
    for (int i = 0; i < 20; i++)
        CHECK(topic_publish(&t));
    for (int i = 0; i < 5; i++)
        CHECK(reader_take(&s, &t));
    struct shmnd_line *lines = topic_shared(64 * 256);
    pid_t child = forked("board-copied", 1);
    if (child == 0) {
        uint32_t *line_slots = malloc(4 * 256);
        shmnd_board_move(&t.b, lines, line_slots, 255, 256 | 8);
    }
    killed(child);
    while (reader_take(&s, &t))
        ;
    EQUAL(s.got, 20);
    reader_close(&s);
    topic_close(&t);
}

static const struct check_test tests[] = {
    TEST(a_subscriber_ends_at_each_step),
    TEST(a_publisher_ends_at_each_step),
    TEST(a_publisher_ends_while_it_seats_one),
    TEST(a_publisher_ends_as_its_board_moves),
};

MAIN(tests)
