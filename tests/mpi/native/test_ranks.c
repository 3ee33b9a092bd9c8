/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine without an interpreter: all ranks of a job in one process, by turns.
 *
 * Random programs are compared with the rules of matching: messages between two ranks of one
 * context overtake no earlier one that the same receive could take, every byte arrives, and
 * nothing is left.
 */
#include "turns.h"

/* ---- random messages ------------------------------------------------------------------------ */

#define PLANNED 300

struct planned {
    int from, to, tag;
    uint32_t bytes, cut;
    struct shmpi_req *send, *receive;
    uint8_t *out, *in;
};

static struct planned plan[PLANNED];

static void begin_send(struct planned *p, uint32_t i, bool sync)
{
    struct shmpi_req *r = p->send = shmpi_req_new(rank[p->from]);
    p->out = malloc(p->bytes + 1);
    for (uint32_t k = 0; k < p->bytes; k++)
        p->out[k] = (uint8_t)(i * 31 + k);
    r->peer = p->to;
    r->tag = p->tag;
    r->context = 16;
    r->bytes = p->bytes;
    r->buffer = (char *)p->out;
    r->sync = sync;
    CHECK(shmpi_start_send(rank[p->from], r));
}

/* `now`: without a request, where the message can be received so. */
static void begin_receive(struct planned *p, bool any_tag, bool now)
{
    struct shmpi_req *r = p->receive = shmpi_req_new(rank[p->to]);
    p->in = malloc(p->cut + 1);
    r->peer = p->from;
    r->tag = any_tag ? SHMPI_ANY : p->tag;
    r->context = 16;
    r->bytes = p->cut;
    r->buffer = (char *)p->in;
    struct shmpi_came came;
    if (!now ||
        !shmpi_receive_now(rank[p->to], p->from, r->context, r->tag, r->buffer, r->bytes, &came)) {
        CHECK(shmpi_start_receive(rank[p->to], r));
        return;
    }
    r->done = true;
    r->source = p->from;
    r->source_tag = came.tag;
    r->got = came.bytes;
}

static void end_of(struct planned *p, uint32_t i)
{
    uint64_t whole = p->bytes < p->cut ? p->bytes : p->cut;
    NOTE("message %u of %u bytes from %d to %d", i, p->bytes, p->from, p->to);
    EQUAL(p->receive->got, whole);
    EQUAL(p->receive->source, p->from);
    EQUAL(p->receive->source_tag, p->tag);
    EQUAL(p->receive->fault, p->bytes > p->cut ? SHMPI_TRUNCATED : SHMPI_OK);
    for (uint32_t k = 0; k < whole; k++)
        if (p->in[k] != (uint8_t)(i * 31 + k))
            EQUAL(p->in[k], (uint8_t)(i * 31 + k));
    shmpi_req_free(rank[p->from], p->send);
    shmpi_req_free(rank[p->to], p->receive);
    free(p->out);
    free(p->in);
}

/* With any tag for all, or the tag of each: either way the n-th receive gets the n-th message
 * that it could take. Sends and receives are begun in their order, interleaved by chance. */
static void random_messages(uint32_t size, bool any_tag, bool pieces, uint64_t seed)
{
    struct chance c = {seed};
    uint32_t sent = 0, received = 0;
    static const uint32_t sizes[] = {0, 1, 32, 33, 800, 2000, 2017, 2100, 9000, 60000};
    job_open(size, 8192);
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t k = 0; k < size; k++)
            rank[i]->peers[k].no_reading = pieces;
    for (uint32_t i = 0; i < PLANNED; i++) {
        uint32_t bytes = sizes[chance_below(&c, 10)];
        plan[i] = (struct planned){.from = (int)chance_below(&c, size),
                                   .to = (int)chance_below(&c, size),
                                   .tag = (int)chance_below(&c, 3),
                                   .bytes = bytes,
                                   .cut = chance_below(&c, 8) ? bytes : bytes / 2};
    }
    while (sent < PLANNED || received < PLANNED) {
        uint64_t what = chance_below(&c, 3);
        if (what == 0 && sent < PLANNED) {
            begin_send(&plan[sent], sent, chance_below(&c, 4) == 0);
            sent++;
        } else if (what == 1 && received < PLANNED) {
            begin_receive(&plan[received], any_tag, chance_below(&c, 2));
            received++;
        } else {
            shmpi_progress(rank[chance_below(&c, size)]);
        }
    }
    for (uint32_t i = 0; i < PLANNED; i++) {
        for (uint32_t turns = 0; !plan[i].send->done || !plan[i].receive->done; turns++) {
            CHECK(turns < 100000);
            turn_of_all();
        }
    }
    for (uint32_t i = 0; i < PLANNED; i++)
        end_of(&plan[i], i);
    turn_of_all();
    job_close();
}

static void messages_match_by_tag_in_order(void)
{
    for (uint32_t size = 1; size <= 4; size++)
        random_messages(size, false, false, 100 + size);
}

static void messages_match_any_tag_in_order(void)
{
    for (uint32_t size = 1; size <= 4; size++)
        random_messages(size, true, false, 200 + size);
}

static void messages_come_in_pieces_where_memory_cannot_be_read(void)
{
    for (uint32_t size = 2; size <= 4; size++)
        random_messages(size, false, true, 300 + size);
}

/* ---- any source, probes, cancelling
 * ----------------------------------------------------------- */

static void any_source_takes_messages_as_they_came(void)
{
    job_open(3, 8192);
    for (int from = 2; from > 0; from--) {
        CHECK(shmpi_send_now(rank[from], 0, 16, from, &from, sizeof from));
        shmpi_progress(rank[0]);
    }
    for (int want = 2; want > 0; want--) {
        int got = 0;
        struct shmpi_message *m = shmpi_probe(rank[0], 16, SHMPI_ANY, SHMPI_ANY);
        CHECK(m && m->source == want);
        struct shmpi_req *r = shmpi_req_new(rank[0]);
        r->peer = r->tag = SHMPI_ANY;
        r->context = 16;
        r->bytes = sizeof got;
        r->buffer = (char *)&got;
        CHECK(shmpi_start_receive(rank[0], r) && r->done);
        EQUAL(got, want);
        shmpi_req_free(rank[0], r);
    }
    job_close();
}

static void a_posted_receive_can_be_taken_back(void)
{
    job_open(2, 8192);
    struct shmpi_req *r = shmpi_req_new(rank[0]);
    r->peer = 1;
    r->context = 16;
    CHECK(shmpi_start_receive(rank[0], r) && !r->done);
    shmpi_cancel(rank[0], r);
    CHECK(r->done && r->cancelled);
    shmpi_req_free(rank[0], r);
    CHECK(shmpi_send_now(rank[1], 0, 16, 0, "x", 1));
    shmpi_progress(rank[0]);
    struct shmpi_message *m = shmpi_probe(rank[0], 16, 1, 0);
    CHECK(m && m->bytes == 1);
    shmpi_claim(rank[0], m);
    free(m);
    job_close();
}

/* ---- what a peer wrote wrongly
 * ------------------------------------------------------------------ */

/* Marks, ids and offsets by chance: nothing outside the lanes is touched (the guards and the
 * sanitizers look), and no request of another peer ends. */
static void forged_records_touch_nothing(void)
{
    struct chance c = {4711};
    for (uint32_t round = 0; round < 300; round++) {
        job_open(3, 4096);
        struct shmpi_req *r = shmpi_req_new(rank[0]);
        char secret[64], into[64];
        struct shmpi_came came;
        r->peer = 2;
        r->context = 16;
        r->bytes = sizeof secret;
        r->buffer = secret;
        CHECK(shmpi_start_receive(rank[0], r));
        CHECK(shmpi_req_name(rank[0], r));
        r->source = 2;
        struct shmpi_in *in = &rank[0]->peers[1].in;
        for (uint32_t at = 0; at < in->size; at += SHMPI_LINE) {
            struct shmpi_record *record = (struct shmpi_record *)(in->data + at);
            uint64_t kind = SHMPI_EAGER + chance_below(&c, 8);
            /* No READY: the address in it is the sender's own, and only read by the kernel. */
            kind = kind == SHMPI_READY ? SHMPI_PIECE : kind;
            shmnd_put64(&record->mark,
                        kind | chance_below(&c, 256) << 8 |
                            (chance_below(&c, 3) ? chance_below(&c, 5000) : chance_next(&c) >> 32)
                                << 32);
            record->context = 17;
            record->tag = (int)chance_next(&c);
            record->a = chance_below(&c, 2) ? r->id : chance_next(&c);
            record->b = chance_below(&c, 2) ? 0 : chance_next(&c);
        }
        for (uint32_t turns = 0; turns < 4; turns++) {
            shmpi_receive_now(rank[0], 1, 17, SHMPI_ANY, into, sizeof into, &came);
            shmpi_progress(rank[0]);
        }
        CHECK(!r->done);
        shmpi_cancel(rank[0], r);
        shmpi_req_free(rank[0], r);
        struct shmpi_context *other = shmpi_context(&rank[0]->matching, 17);
        while (other->waiting[1].first) {
            struct shmpi_message *m = other->waiting[1].first;
            shmpi_take_waiting(other, m);
            free(m);
        }
        for (int peer = 0; peer < 3; peer++)
            while (rank[0]->peers[peer].unsent) {
                struct shmpi_unsent *o = rank[0]->peers[peer].unsent;
                rank[0]->peers[peer].unsent = o->next;
                free(o);
            }
        rank[0]->unsent_peers = 0;
        job_close();
    }
}

static const struct check_test tests[] = {
    TEST(messages_match_by_tag_in_order),
    TEST(messages_match_any_tag_in_order),
    TEST(messages_come_in_pieces_where_memory_cannot_be_read),
    TEST(any_source_takes_messages_as_they_came),
    TEST(a_posted_receive_can_be_taken_back),
    TEST(forged_records_touch_nothing),
};

MAIN(tests)
