/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that a receive reads where they lie, in the arena of their sender.
 */
#include "long_messages.h"

/* A receive of any length, which may borrow its message. */
static struct shmpi_req *begin_object(int tag)
{
    struct shmpi_req *r = shmpi_req_new(rank[1]);
    r->peer = 0;
    r->context = 16;
    r->tag = tag;
    r->grows = r->borrows = true;
    CHECK(shmpi_start_receive(rank[1], r));
    return r;
}

/* The sender waits exactly until the message is returned, by the call or with the request. */
static void a_borrowed_message_is_its_senders_when_it_is_returned(void)
{
    mapped = true;
    for (int how = 0; how < 4; how++) {
        bool late = how & 1, by_call = how & 2;
        job_open(false);
        char *from = filled(0, LARGEST, how);
        struct shmpi_req *in = late ? NULL : begin_object(3);
        struct shmpi_req *out = begin(rank[0], false, 3, from, LARGEST);
        while (shmpi_progress(rank[1])) {
        }
        if (late)
            in = begin_object(3);
        CHECK(in->done && !in->fault);
        CHECK(in->borrowed);
        EQUAL(in->got, LARGEST);
        is_filled(in->buffer, LARGEST, how);
        shmpi_progress(rank[0]);
        CHECK(!out->done);
        if (by_call) {
            CHECK(shmpi_return_borrowed(rank[1], in));
            CHECK(!in->buffer && !in->borrowed);
        }
        shmpi_req_free(rank[1], in);
        while (shmpi_progress(rank[0]) + shmpi_progress(rank[1])) {
        }
        CHECK(out->done && !out->fault);
        shmpi_req_free(rank[0], out);
        returned(0, from);
        job_close();
    }
}

/* Short ones, and those that the kernel copies, have a buffer of their own. */
static void data_outside_an_arena_are_not_borrowed(void)
{
    mapped = true;
    job_open(false);
    char data[100] = "short", *from = malloc(LARGEST);
    memset(from, 7, LARGEST);
    struct shmpi_req *out = begin(rank[0], false, 1, data, sizeof data), *in = begin_object(1);
    while (shmpi_progress(rank[1])) {
    }
    CHECK(in->done && !in->borrowed && in->owns_buffer && !memcmp(in->buffer, data, sizeof data));
    shmpi_req_free(rank[0], out);
    shmpi_req_free(rank[1], in);
    in = begin_object(2);
    out = begin(rank[0], false, 2, from, LARGEST);
    while (!in->done || !out->done)
        shmpi_progress(rank[0]), shmpi_progress(rank[1]);
    CHECK(!in->borrowed && in->owns_buffer && !memcmp(in->buffer, from, LARGEST));
    shmpi_req_free(rank[0], out);
    shmpi_req_free(rank[1], in);
    free(from);
    job_close();
}

/* The sender has died meanwhile: what was borrowed can be read, and is returned to nobody. */
static void a_borrowed_message_outlives_its_sender(void)
{
    mapped = true;
    job_open(false);
    char *from = filled(0, LARGEST, 5);
    struct shmpi_req *out = begin(rank[0], false, 3, from, LARGEST), *in = begin_object(3);
    while (shmpi_progress(rank[1])) {
    }
    CHECK(in->done && in->borrowed);
    shmpi_job_mark_dead(job, 0);
    shmpi_progress(rank[1]);
    is_filled(in->buffer, LARGEST, 5);
    shmpi_req_free(rank[1], in);
    shmpi_stop(rank[0], out, SHMPI_BROKEN);
    shmpi_req_free(rank[0], out);
    rank[0]->peers[1].shares = 0;
    returned(0, from);
    job_close();
}

static const struct check_test tests[] = {
    TEST(a_borrowed_message_is_its_senders_when_it_is_returned),
    TEST(data_outside_an_arena_are_not_borrowed),
    TEST(a_borrowed_message_outlives_its_sender),
};

MAIN(tests)
