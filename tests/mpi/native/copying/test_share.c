/* SPDX-License-Identifier: Apache-2.0
 *
 * Long messages, which both ranks move: two ranks as two threads, and by turns with chosen steps.
 *
 * Every byte arrives whoever moves it, words of the lane come back, a rank that computes holds up
 * nobody, and words that a peer wrote wrongly touch nothing outside the message. Each with messages
 * in private memory, and with messages in the arenas of the two ranks.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "long_messages.h"

enum { IN_FLIGHT = 20, ROUNDS = 8, VERY_LONG = 2 << 20 };

/* ---- at the same time
 * ------------------------------------------------------------------------- */

static uint64_t size_of(int round, int i)
{
    struct chance c = {(uint64_t)(round * 100 + i + 1)};
    return 8193 + chance_below(&c, LARGEST - 8193);
}

static void *half(void *arg)
{
    struct shmpi_engine *e = rank[*(int *)arg];
    struct shmpi_req *out[IN_FLIGHT], *in[IN_FLIGHT];
    for (int round = 0; round < (mapped ? ROUNDS / 2 : ROUNDS); round++) {
        char *from[IN_FLIGHT], *to[IN_FLIGHT];
        for (int i = 0; i < IN_FLIGHT; i++) {
            uint64_t n = size_of(round, i);
            from[i] = filled(e->rank, n, i + e->rank);
            to[i] = memory(e->rank, n);
            if (i % 2)
                in[i] = begin(e, true, i, to[i], n);
            out[i] = begin(e, false, i, from[i], n);
        }
        for (int i = 0; i < IN_FLIGHT; i += 2)
            in[i] = begin(e, true, i, to[i], size_of(round, i));
        for (int i = 0; i < IN_FLIGHT; i++) {
            wait_for(e, &in[i]->done);
            wait_for(e, &out[i]->done);
            EQUAL(in[i]->fault, 0);
            EQUAL(in[i]->got, size_of(round, i));
            is_filled(to[i], in[i]->got, i + 1 - e->rank);
            shmpi_req_free(e, in[i]);
            shmpi_req_free(e, out[i]);
            returned(e->rank, from[i]);
            returned(e->rank, to[i]);
        }
    }
    while (e->unsent_peers)
        shmpi_progress(e);
    return NULL;
}

static void both_move_messages_at_the_same_time(void)
{
    for (int crowded = 0; crowded < 2; crowded++) {
        pthread_t thread[2];
        int who[2] = {0, 1};
        job_open(crowded);
        for (int i = 0; i < 2; i++)
            EQUAL(pthread_create(&thread[i], NULL, half, &who[i]), 0);
        for (int i = 0; i < 2; i++)
            EQUAL(pthread_join(thread[i], NULL), 0);
        for (int i = 0; i < 2; i++)
            while (shmpi_progress(rank[i])) {
            }
        job_close();
    }
}

/* ---- by turns
 * ----------------------------------------------------------------------------------- */

/* One message. Returns how much the receiver read. */
static uint64_t one_message(uint64_t n, uint64_t room, uint64_t seed, int sender_of_ten)
{
    struct chance c = {seed};
    job_open(seed % 2);
    char *from = filled(0, n, 3), *to = memory(1, room);
    struct shmpi_req *out = begin(rank[0], false, 1, from, n);
    struct shmpi_req *in = begin(rank[1], true, 1, to, room);
    uint64_t whole = n < room ? n : room;
    for (int turns = 0; !in->done; turns++) {
        CHECK(turns < 100000);
        shmpi_progress(rank[chance_below(&c, 10) < (uint64_t)sender_of_ten ? 0 : 1]);
    }
    is_filled(to, whole, 3);
    EQUAL(in->fault, n > room ? SHMPI_TRUNCATED : SHMPI_OK);
    EQUAL(in->got, whole);
    uint64_t read = whole - in->copy.low;
    while (!out->done)
        shmpi_progress(rank[0]);
    EQUAL(out->fault, 0);
    EQUAL(rank[0]->table_free ? rank[0]->table[0] == NULL : 1, 1);
    message_close(out, in, from, to);
    return read;
}

static void any_mixture_of_turns_moves_the_message(void)
{
    uint64_t read_some = 0, pushed_all = 0;
    for (uint64_t seed = 0; seed < (mapped ? 80u : 160u); seed++) {
        uint64_t n = 8193 + seed * (mapped ? 6007 : 3251),
                 read = one_message(n, n, seed, (int)(seed % 9) + 1);
        read_some += read > 0 && read < n;
        pushed_all += read == 0;
    }
    NOTE("%lu by both, %lu by the sender", (unsigned long)read_some, (unsigned long)pushed_all);
    CHECK(read_some > 10 && (mapped || pushed_all > 2));
}

static void a_message_whose_sender_computes_is_read(void)
{
    EQUAL(one_message(400000, 400000, 2, 0), 400000);
    EQUAL(one_message(400000, 400000, 3, 0), 400000);
}

static void a_very_long_message_is_moved_by_either_way(void)
{
    for (uint64_t seed = 0; seed < 6; seed++)
        one_message(VERY_LONG + seed * 100003, VERY_LONG + 600000, seed, 5);
    EQUAL(one_message(VERY_LONG, VERY_LONG, 1, 0), VERY_LONG);
    one_message(2 * VERY_LONG, VERY_LONG + 77, 2, 4);
}

static void a_cut_message_ends_at_the_wanted_length(void)
{
    for (uint64_t room = 1; room < 300000; room += 9973)
        one_message(300000, room, room, 5);
}

static void without_a_free_word_the_receiver_reads_all(void)
{
    enum { MANY = SHMPI_SHARES + 4 };
    struct shmpi_req *out[MANY], *in[MANY];
    static char to[MANY][20000];
    job_open(true);
    char *from = filled(0, 20000, 9);
    for (int i = 0; i < MANY; i++) {
        out[i] = begin(rank[0], false, i, from, 20000);
        EQUAL(out[i]->copy.share, i < SHMPI_SHARES ? i + 1 : 0);
    }
    for (int i = 0; i < MANY; i++)
        in[i] = begin(rank[1], true, i, to[i], 20000);
    for (int i = 0; i < MANY; i++) {
        for (int turns = 0; !in[i]->done || !out[i]->done; turns++) {
            CHECK(turns < 10000);
            shmpi_progress(rank[turns % 2]);
        }
        is_filled(to[i], 20000, 9);
        if (i >= SHMPI_SHARES)
            EQUAL(in[i]->copy.low, 0);
        shmpi_req_free(rank[0], out[i]);
        shmpi_req_free(rank[1], in[i]);
    }
    returned(0, from);
    job_close();
}

static void a_send_that_was_given_up_leaves_its_word_to_its_receiver(void)
{
    job_open(true);
    char *from = filled(0, 50000, 1), *to = memory(1, 50000);
    struct shmpi_req *out = begin(rank[0], false, 1, from, 50000);
    shmpi_stop(rank[0], out, SHMPI_REVOKED);
    CHECK(out->done);
    EQUAL(rank[0]->peers[1].shares, 1);
    shmpi_req_free(rank[0], out);
    out = begin(rank[0], false, 2, from, 50000);
    EQUAL(out->copy.share, 2);
    struct shmpi_req *in = begin(rank[1], true, 2, to, 50000);
    for (int turns = 0; !in->done || !out->done; turns++) {
        CHECK(turns < 10000);
        shmpi_progress(rank[turns % 2]);
    }
    is_filled(to, 50000, 1);
    shmpi_req_free(rank[0], out);
    shmpi_req_free(rank[1], in);
    shmpi_refuse_waiting(rank[1], shmpi_context(&rank[1]->matching, 16));
    while (shmpi_progress(rank[0]) + shmpi_progress(rank[1])) {
    }
    EQUAL(rank[0]->peers[1].shares, 1);
    rank[0]->peers[1].shares = 0;
    returned(0, from);
    returned(1, to);
    job_close();
}

/* ---- a receive that ends while its sender writes into its buffer
 * ------------------------------ */

static void *sends_on(void *arg)
{
    struct shmpi_req *out = arg;
    while (!out->done)
        shmpi_progress(rank[0]);
    return NULL;
}

static void a_buffer_that_was_given_back_is_not_written(void)
{
    enum { BYTES = 4 << 20 };
    for (uint64_t round = 0; round < 60; round++) {
        pthread_t sender;
        job_open(false);
        char *from = filled(0, BYTES, 1), *to = memory(1, BYTES);
        memset(to, 0, BYTES); /* its pages are there: what follows is fast */
        struct shmpi_req *out = begin(rank[0], false, 1, from, BYTES);
        struct shmpi_req *in = begin(rank[1], true, 1, to, BYTES);
        EQUAL(pthread_create(&sender, NULL, sends_on, out), 0);
        shmpi_progress(rank[1]); /* asks, and reads a first stretch */
        CHECK(in->copy.placing);
        shmnd_word64 *placed = &rank[1]->peers[0].in.lane->placed[in->copy.share - 1];
        time_t until = time(NULL) + 30; /* of the clock: the sender may get its turn late */
        while (shmnd_acquire64(placed) <= round % 20) {
            CHECK(time(NULL) < until);
            sched_yield();
        }
        shmpi_stop(rank[1], in, SHMPI_BROKEN);
        EQUAL(in->done && in->fault == SHMPI_BROKEN, 1);
        /* The program has its memory back. It begins where the sender would go on. */
        uint64_t front = shmnd_acquire64(placed) * rank[1]->unit;
        front = front < BYTES ? front : BYTES;
        memset(to + front, 0x55, BYTES - front);
        memset(to, 0x55, front);
        EQUAL(pthread_join(sender, NULL), 0);
        CHECK(to[0] == 0x55 && !memcmp(to, to + 1, BYTES - 1));
        EQUAL(out->fault, 0);
        message_close(out, in, from, to);
    }
}

static void a_place_outside_the_arena_ends_the_message(void)
{
    job_open(false);
    char *from = filled(0, 50000, 1), *to = memory(1, 50000);
    for (int i = 0; i < 4; i++) {
        struct shmpi_req *in = begin(rank[1], true, 1, to, 50000);
        struct shmpi_unsent o = {.kind = SHMPI_READY,
                                 .flags = SHMPI_MAPPED,
                                 .a = 0,
                                 .b = 50000,
                                 .tag = 1,
                                 .context = 16,
                                 .payload = sizeof *o.words};
        const uint64_t wrong[] = {ARENA, ARENA - 49999, UINT64_MAX - 10, (uintptr_t)from};
        o.words[0] = wrong[i];
        CHECK(shmpi_write(&rank[0]->peers[1], &o));
        shmpi_progress(rank[1]);
        CHECK(in->done);
        EQUAL(in->fault, SHMPI_BROKEN);
        shmpi_req_free(rank[1], in);
    }
    while (shmpi_progress(rank[0]) + shmpi_progress(rank[1])) {
    }
    returned(0, from);
    returned(1, to);
    job_close();
}

/* ---- calls of the kernel on both sides
 * -------------------------------------------------------- */

/* Any process that is not there: the kernel refuses calls that name it. */
enum { NO_PROCESS = 0x7ffffff0 };

static void without_the_kernel_a_sender_continues_by_the_lane(void)
{
    enum { BYTES = 2 << 20 };
    for (int refused_from = 0; refused_from < 3; refused_from++) {
        job_open(false);
        char *from = filled(0, BYTES, 6), *to = calloc(1, BYTES);
        struct shmpi_req *in = begin(rank[1], true, 1, to, BYTES);
        struct shmpi_req *out = begin(rank[0], false, 1, from, BYTES);
        shmpi_progress(rank[1]);
        CHECK(in->copy.by_kernel && in->copy.placing);
        rank[0]->peers[1].no_writing = refused_from == 0;
        for (int i = 0; i < refused_from - 1; i++)
            shmpi_progress(rank[0]);
        shmnd_put32(&rank[1]->mine->pid, NO_PROCESS); /* the sender writes there by this number */
        for (int turns = 0; !in->done || !out->done; turns++) {
            CHECK(turns < 10000);
            shmpi_progress(rank[turns % 3 == 0]);
        }
        EQUAL(in->fault + out->fault, 0);
        CHECK(!out->copy.by_kernel);
        is_filled(to, BYTES, 6);
        EQUAL(rank[1]->peers[0].in.lane->placed[0], SHMPI_PLACES_NO_MORE);
        message_close(out, in, from, to);
    }
}

static void in_both_directions_each_side_reads(void)
{
    enum { BYTES = 2 << 20 };
    struct shmpi_req *out[2], *in[2];
    char *from[2], *to[2];
    job_open(false);
    for (int i = 0; i < 2; i++) {
        from[i] = filled(i, BYTES, i);
        to[i] = calloc(1, BYTES);
        out[i] = begin(rank[i], false, 1, from[i], BYTES);
        in[i] = begin(rank[i], true, 1, to[i], BYTES);
    }
    for (int turns = 0; !(in[0]->done && in[1]->done && out[0]->done && out[1]->done); turns++) {
        CHECK(turns < 10000);
        shmpi_progress(rank[turns % 2]);
        EQUAL(out[0]->copy.moved + out[1]->copy.moved, 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(in[i]->copy.by_kernel && !in[i]->copy.placing);
        is_filled(to[i], BYTES, 1 - i);
        shmpi_req_free(rank[i], out[i]);
        shmpi_req_free(rank[i], in[i]);
        returned(i, from[i]);
        free(to[i]);
    }
    job_close();
}

static void a_receive_that_ends_does_not_wait_for_a_sender_that_was_refused(void)
{
    enum { BYTES = 2 << 20 };
    job_open(false);
    char *from = filled(0, BYTES, 6), *to = calloc(1, BYTES);
    struct shmpi_req *in = begin(rank[1], true, 1, to, BYTES);
    struct shmpi_req *out = begin(rank[0], false, 1, from, BYTES);
    shmpi_progress(rank[1]);
    shmnd_put32(&rank[1]->mine->pid, NO_PROCESS);
    shmpi_progress(rank[0]);
    CHECK(!out->copy.by_kernel);
    shmpi_stop(rank[1], in, SHMPI_BROKEN);
    CHECK(in->done);
    while (!out->done)
        shmpi_progress(rank[0]);
    message_close(out, in, from, to);
}

/* Sides that begin together take one call each; of any rest, a side takes some, and no more. */
static void a_stretch_is_half_of_the_message_where_that_is_one_call(void)
{
    job_open(false);
    struct shmpi_engine *e = rank[0];
    uint64_t most = SHMPI_STRETCH_MOST / e->unit;
    for (uint64_t whole = 1; whole < 9 * most; whole++) {
        uint64_t first = shmpi_stretch(e, whole, whole), calls = 0;
        EQUAL(first, (whole + 1) / 2 < most ? (whole + 1) / 2 : most);
        if (whole <= 2 * most && whole > 1)
            EQUAL(shmpi_stretch(e, whole - first, whole), whole - first);
        for (uint64_t left = whole, n; left; left -= n, calls++) {
            n = shmpi_stretch(e, left, whole);
            CHECK(n >= 1 && n <= left && n <= most);
        }
        CHECK(whole > 2 * most || calls <= 2);
        CHECK(calls <= whole / most + 8); /* the last ones are halves of one */
    }
    job_close();
}

/* ---- which way: choose_way.h
 * --------------------------------------------------------------------- */

static void the_way_that_took_less_is_taken_until_the_next_trial(void)
{
    for (int faster = 0; faster < 2; faster++) {
        struct shmpi_ways ways;
        bool timed;
        shmpi_ways_begin(&ways);
        struct shmpi_way *w = shmpi_way_of(&ways, 60000);
        for (int trial = 0; trial < 3; trial++) {
            int each[2] = {0, 0};
            for (int i = 0; i < SHMPI_WAY_TRIALS; i++) {
                bool by_kernel = shmpi_way_next(w, true, &timed);
                CHECK(timed);
                each[by_kernel]++;
                /* One of each is slow, for some other reason. */
                shmpi_way_took(w, by_kernel,
                               i / 2 == trial % 2    ? 1u << 30
                               : by_kernel == faster ? 7
                                                     : 9);
            }
            EQUAL(each[0], each[1]);
            for (int i = 0; i < SHMPI_WAY_STAYS; i++) {
                EQUAL(shmpi_way_next(w, true, &timed), faster);
                CHECK(!timed);
            }
        }
    }
}

static void messages_that_are_not_alone_are_not_timed(void)
{
    struct shmpi_ways ways;
    bool timed;
    shmpi_ways_begin(&ways);
    for (uint64_t n = 8193; n <= SHMPI_WAYS_MOST; n += 1000)
        for (int i = 0; i < 500; i++) {
            EQUAL(shmpi_way_next(shmpi_way_of(&ways, n), false, &timed), n > SHMPI_WAYS_LANE);
            CHECK(!timed);
        }
    CHECK(!shmpi_way_of(&ways, SHMPI_WAYS_MOST + 1));
}

/* Both of two receives begin before one ends, so the time of neither counts. */
static void a_trial_ends_with_messages_one_after_another(void)
{
    enum { BYTES = 20000 };
    job_open(false);
    struct shmpi_way *way = shmpi_way_of(&rank[1]->peers[0].ways, BYTES);
    char *from = filled(0, BYTES, 6), *to[2] = {malloc(BYTES), malloc(BYTES)};
    for (int at_once = 2; at_once > 0; at_once--) {
        for (int round = 0; round < SHMPI_WAY_TRIALS; round++) {
            struct shmpi_req *out[2], *in[2];
            EQUAL(way->messages, at_once == 2 ? 0 : round);
            for (int i = 0; i < at_once; i++) {
                in[i] = begin(rank[1], true, i, to[i], BYTES);
                out[i] = begin(rank[0], false, i, from, BYTES);
            }
            for (int i = 0; i < at_once; i++) {
                for (int turns = 0; !in[i]->done || !out[i]->done; turns++) {
                    CHECK(turns < 10000);
                    shmpi_progress(rank[turns % 2]);
                }
                is_filled(to[i], BYTES, 6);
                shmpi_req_free(rank[0], out[i]);
                shmpi_req_free(rank[1], in[i]);
            }
        }
    }
    EQUAL(way->messages, SHMPI_WAY_TRIALS);
    CHECK(way->least_ns[0] != UINT32_MAX && way->least_ns[1] != UINT32_MAX);
    returned(0, from);
    free(to[0]);
    free(to[1]);
    job_close();
}

/* ---- what a peer wrote wrongly
 * ---------------------------------------------------------------- */

static void wrong_words_touch_nothing_else(void)
{
    struct chance c = {99};
    for (int round = 0; round < (mapped ? 120 : 400); round++) {
        uint64_t n = 8193 + chance_below(&c, 200000);
        job_open(true);
        char *from = filled(0, n, 5), *to = mapped ? memory(1, n) : guard_alloc(n);
        struct shmpi_req *out = begin(rank[0], false, 1, from, n);
        struct shmpi_req *in = begin(rank[1], true, 1, to, n);
        shmnd_word64 *word = &rank[0]->peers[1].out.lane->shares[0];
        for (int turns = 0; turns < 40 && !(in->done && out->done); turns++) {
            uint64_t wrong = chance_below(&c, 3)
                                 ? shmpi_share_word(chance_below(&c, 9), chance_below(&c, 9))
                                 : chance_next(&c);
            if (chance_below(&c, 3) == 0)
                shmnd_put64(word, wrong);
            shmpi_progress(rank[chance_below(&c, 2)]);
        }
        /* Else the receiver waits for the units that the wrong word says are being written. */
        shmnd_put64(&rank[0]->peers[1].out.lane->placed[0], SHMPI_PLACES_NO_MORE);
        if (!in->done)
            shmpi_stop(rank[1], in, SHMPI_BROKEN);
        if (!out->done)
            shmpi_stop(rank[0], out, SHMPI_BROKEN);
        CHECK(in->done && out->done);
        while (shmpi_progress(rank[0]) + shmpi_progress(rank[1])) {
        }
        shmpi_req_free(rank[0], out);
        shmpi_req_free(rank[1], in);
        rank[0]->peers[1].shares = 0;
        returned(0, from);
        job_close();
    }
}

/* ---- all of it in arenas
 * ------------------------------------------------------------------------ */

static void the_same_in_arenas(void)
{
    mapped = true;
    both_move_messages_at_the_same_time();
    any_mixture_of_turns_moves_the_message();
    a_message_whose_sender_computes_is_read();
    a_very_long_message_is_moved_by_either_way();
    a_cut_message_ends_at_the_wanted_length();
    without_a_free_word_the_receiver_reads_all();
    a_send_that_was_given_up_leaves_its_word_to_its_receiver();
    wrong_words_touch_nothing_else();
    a_buffer_that_was_given_back_is_not_written();
    a_place_outside_the_arena_ends_the_message();
    mapped = false;
}

static const struct check_test tests[] = {
    TEST(the_same_in_arenas),
    TEST(both_move_messages_at_the_same_time),
    TEST(any_mixture_of_turns_moves_the_message),
    TEST(a_message_whose_sender_computes_is_read),
    TEST(a_very_long_message_is_moved_by_either_way),
    TEST(a_cut_message_ends_at_the_wanted_length),
    TEST(without_a_free_word_the_receiver_reads_all),
    TEST(a_send_that_was_given_up_leaves_its_word_to_its_receiver),
    TEST(without_the_kernel_a_sender_continues_by_the_lane),
    TEST(in_both_directions_each_side_reads),
    TEST(a_receive_that_ends_does_not_wait_for_a_sender_that_was_refused),
    TEST(a_stretch_is_half_of_the_message_where_that_is_one_call),
    TEST(the_way_that_took_less_is_taken_until_the_next_trial),
    TEST(messages_that_are_not_alone_are_not_timed),
    TEST(a_trial_ends_with_messages_one_after_another),
    TEST(a_buffer_that_was_given_back_is_not_written),
    TEST(wrong_words_touch_nothing_else),
};

MAIN(tests)
