/* SPDX-License-Identifier: Apache-2.0
 *
 * Fair polling of a completion queue: a quiet connection is served among those that send as much
 * as they can, whatever number of results the owner takes per poll.
 */
#include "world.h"

#define LINKS 12
#define RECEIVES 48
#define BYTES 8

struct crowd {
    struct world w;
    struct queue *server, *clients;
    struct pair *there[LINKS], *here[LINKS];
    uint32_t links;
    struct shmnd_sge source, sink;
};

static void crowd_open(struct crowd *c, uint32_t links, uint32_t depth)
{
    struct pair_options o = pair_usual;
    o.receives = RECEIVES;
    o.requests = 16;
    world_open(&c->w, (struct world_options){0});
    c->server = queue_new(&c->w.p[1], depth);
    c->clients = queue_new(&c->w.p[0], 4096);
    c->links = links;
    for (uint32_t i = 0; i < links; i++) {
        c->there[i] = pair_new(c->clients, c->clients, o);
        c->here[i] = pair_new(c->server, c->server, o);
        pair_connect(c->there[i], c->here[i]);
    }
    uint8_t *from = shared_bytes(&c->w.p[0], 4096), *to = shared_bytes(&c->w.p[1], 4096);
    uint32_t rights = SHMND_MR_REMOTE_WRITE;
    c->source = sge(from, BYTES, region_new(&c->w.p[0], from, 4096, rights));
    c->sink = sge(to, BYTES, region_new(&c->w.p[1], to, 4096, rights));
    for (uint32_t i = 0; i < links; i++)
        for (uint32_t k = 0; k < RECEIVES; k++)
            EQUAL(post_receive(c->here[i], i, &c->sink, 1), SHMND_SUCCESS);
}

/* All but the first connection send as long as there are receives. */
static void flood(struct crowd *c)
{
    struct shmnd_cqe out[64];
    for (uint32_t i = 1; i < c->links; i++) {
        struct shmnd_qp *q = &c->there[i]->q;
        while (q->messages < shmnd_relaxed64(&q->link.theirs->posted))
            EQUAL(post_send(c->there[i], i, &c->source, 1, SHMND_OP_SILENT_SUCCESS), SHMND_SUCCESS);
    }
    while (queue_poll(c->clients, out, 64))
        ;
}

/* Polls once and reposts the receives; counts messages by connection. */
static uint32_t serve_once(struct crowd *c, uint32_t max, uint32_t *came)
{
    struct shmnd_cqe out[64];
    uint32_t n = queue_poll(c->server, out, max);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (uint32_t)(uintptr_t)out[k].context;
        EQUAL(out[k].status, SHMND_SUCCESS);
        if (out[k].type != SHMND_RECEIVE)
            continue;
        came[i]++;
        EQUAL(post_receive(c->here[i], i, &c->sink, 1), SHMND_SUCCESS);
    }
    return n;
}

static const uint32_t counts[] = {2, 4, 5, LINKS};
static const uint32_t maxima[] = {1, 2, 3, 16, 64};

/* How many messages of one busy connection are delivered before that of a quiet one. */
static void quiet_one(uint32_t links, uint32_t max, uint32_t depth, bool waiting)
{
    struct crowd c = {0};
    crowd_open(&c, links, depth);
    NOTE("%u links, %u results a poll, depth %u, %s", links, max, depth,
         waiting ? "a request waits" : "none waits");
    uint32_t warm[LINKS] = {0};
    if (waiting) /* for a receive that the peer does not post: all messages go through the ring */
        for (uint32_t k = 0; k <= RECEIVES; k++)
            (void)post_send(c.here[links - 1], 99, &c.sink, 1, SHMND_OP_SILENT_SUCCESS);
    for (uint32_t turn = 0; turn < 40; turn++) {
        flood(&c);
        serve_once(&c, max, warm);
    }
    for (uint32_t again = 0; again < 50; again++) {
        uint32_t came[LINKS] = {0}, polls = 0;
        EQUAL(post_send(c.there[0], 0, &c.source, 1, SHMND_OP_SILENT_SUCCESS), SHMND_SUCCESS);
        while (!came[0]) {
            flood(&c);
            CHECK(serve_once(&c, max, came) > 0);
            CHECK(++polls < 10000);
        }
        /* Two rounds, and the poll during which it arrived. */
        uint32_t share = max < SHMND_POLL_BUDGET ? max : SHMND_POLL_BUDGET;
        for (uint32_t i = 1; i < links; i++)
            CHECK(came[i] <= 2 * share + max);
    }
    /* No busy connection is starved either. */
    uint32_t came[LINKS] = {0}, most = 0, least = UINT32_MAX;
    for (uint32_t turn = 0; turn < 200 * links; turn++) {
        flood(&c);
        serve_once(&c, max, came);
    }
    for (uint32_t i = 1; i < links; i++) {
        most = came[i] > most ? came[i] : most;
        least = came[i] < least ? came[i] : least;
    }
    CHECK(most <= 2 * least);
    world_close(&c.w);
}

static void a_quiet_connection_is_served(void)
{
    for (uint32_t l = 0; l < sizeof counts / sizeof counts[0]; l++)
        for (uint32_t m = 0; m < sizeof maxima / sizeof maxima[0]; m++)
            quiet_one(counts[l], maxima[m], 256, false);
}

static void so_it_is_while_a_request_waits(void)
{
    for (uint32_t l = 0; l < sizeof counts / sizeof counts[0]; l++)
        for (uint32_t m = 0; m < sizeof maxima / sizeof maxima[0]; m++)
            quiet_one(counts[l], maxima[m], 256, true);
}

static void so_it_is_on_a_queue_of_few_results(void)
{
    for (uint32_t l = 0; l < sizeof counts / sizeof counts[0]; l++)
        for (uint32_t m = 0; m < 3; m++)
            quiet_one(counts[l], maxima[m], 4, false);
}

/* A program that posts a Write before each poll for one result still receives. */
static void completions_of_requests_keep_no_message_out(void)
{
    for (uint32_t l = 0; l < sizeof counts / sizeof counts[0]; l++) {
        struct crowd c = {0};
        crowd_open(&c, counts[l], 64);
        NOTE("%u links", counts[l]);
        uint8_t *at = shared_bytes(&c.w.p[0], 64);
        uint32_t token = region_new(&c.w.p[0], at, 64, SHMND_MR_REMOTE_WRITE);
        uint32_t came[LINKS] = {0}, polls = 0;
        EQUAL(post_send(c.there[0], 0, &c.source, 1, 0), SHMND_SUCCESS);
        while (!came[0]) {
            EQUAL(post_rdma(c.here[0], 7, SHMND_WRITE, &c.sink, 1, at, token, 0), SHMND_SUCCESS);
            EQUAL(serve_once(&c, 1, came), 1);
            CHECK(++polls <= 4);
        }
        world_close(&c.w);
    }
}

/* The hint tells of a message on any connection, and of nothing once all are taken. */
static void a_hint_shows_each_message(void)
{
    for (uint32_t l = 0; l < sizeof counts / sizeof counts[0]; l++) {
        struct crowd c = {0};
        crowd_open(&c, counts[l], 64);
        NOTE("%u links", counts[l]);
        uint32_t came[LINKS] = {0}, polls = 0;
        while (shmnd_cq_may_find(&c.server->cq)) { /* after a link was added */
            serve_once(&c, 64, came);
            CHECK(++polls < 4);
        }
        for (uint32_t again = 1; again <= 3; again++)
            for (uint32_t i = 0; i < counts[l]; i++) {
                EQUAL(post_send(c.there[i], i, &c.source, 1, SHMND_OP_SILENT_SUCCESS),
                      SHMND_SUCCESS);
                CHECK(shmnd_cq_may_find(&c.server->cq));
                EQUAL(serve_once(&c, 64, came), 1);
                EQUAL(came[i], again);
                CHECK(!shmnd_cq_may_find(&c.server->cq));
            }
        world_close(&c.w);
    }
}

static const struct check_test tests[] = {
    TEST(a_quiet_connection_is_served),       TEST(so_it_is_while_a_request_waits),
    TEST(so_it_is_on_a_queue_of_few_results), TEST(completions_of_requests_keep_no_message_out),
    TEST(a_hint_shows_each_message),
};
MAIN(tests)
