/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of messages that prove themselves, both ways over many connections.
 *
 * Length and bytes of a message follow from its connection, its direction and
 * its number, so the receiver knows every byte beforehand: one that is lost,
 * doubled, torn or out of order cannot look right. So do whether it is sent in
 * two pieces, one of private memory, and whether it is silent.
 *
 * Connections send at different rates. Now and then a side computes: it posts
 * what it may, and makes no call for a while. It takes any number of results at
 * a time, so that most of its polls leave some behind.
 */
#ifndef SHMND_SOAK_STREAMS_H
#define SHMND_SOAK_STREAMS_H

#include <sched.h>
#include <string.h>
#include <time.h>

#include "send/post.h"

#define SOAK_POLL 64
/* Bytes of a message in its first piece, where it has two. */
#define SOAK_HEAD 40u

struct soak_stream {
    struct shmnd_qp *qp;
    void *context; /* by which completions name the queue pair */
    uint64_t out_key, in_key;
    uint64_t out_target, in_target;
    uint64_t posted, sent, received, bytes;
    uint64_t told;     /* all before it that are not silent have completed */
    uint8_t *out, *in; /* `depth` places of `stride` bytes each */
    uint32_t out_token, in_token;
    uint8_t *heads; /* private: `depth` first pieces of each direction, out and then in */
    uint32_t heads_token;
    uint32_t rate; /* it sends in one turn of so many */
    uint32_t largest, depth;
    uint64_t stride;
};

struct soak_side {
    struct shmnd_cq *cq;
    struct soak_stream *streams;
    uint32_t count;
    uint32_t *by_context; /* open hash: stream number + 1 */
    uint32_t mask;
    void *none;
    int (*serve)(struct shmnd_todo *);
    const char *wrong; /* what went wrong, if anything */
    uint64_t at, number;
};

static inline uint64_t soak_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Mostly short, now and then up to the largest; every kind of message occurs. */
static inline uint32_t soak_size(uint64_t h, uint32_t largest)
{
    static const struct {
        uint32_t below, up_to;
    } kinds[] = {
        {54000, 48}, {63500, 1023}, {65400, 4096}, {65530, 65536}, {65536, 1u << 20},
    };
    uint32_t kind = 0, pick = (uint32_t)(h & 0xFFFF), up_to;
    while (pick >= kinds[kind].below)
        kind++;
    up_to = kinds[kind].up_to < largest ? kinds[kind].up_to : largest;
    return (uint32_t)(((h >> 16) & 0xFFFFFFFF) % (up_to + 1u));
}

static inline bool soak_is_silent(uint64_t h)
{
    return (h >> 48 & 3) == 0;
}

static inline bool soak_is_split(uint64_t h, uint32_t size)
{
    return (h >> 50 & 3) == 0 && size > SOAK_HEAD;
}

/* Receives of every other place have two pieces. */
static inline bool soak_takes_split(const struct soak_stream *s, uint64_t slot)
{
    return slot % 2 && s->largest > SOAK_HEAD;
}

static inline uint8_t *soak_head(const struct soak_stream *s, bool in, uint64_t slot)
{
    return s->heads + ((in ? s->depth : 0) + slot) * SOAK_HEAD;
}

static inline uint64_t soak_word(uint64_t h, uint64_t number, uint32_t i)
{
    return i ? h + i * 0xD6E8FEB86659FD93ull : number;
}

static inline void soak_fill(uint8_t *to, uint64_t h, uint64_t number, uint32_t size)
{
    uint32_t i, words = size / 8;
    uint64_t word;
    for (i = 0; i < words; i++) {
        word = soak_word(h, number, i);
        memcpy(to + 8ull * i, &word, 8);
    }
    word = soak_word(h, number, i);
    memcpy(to + 8ull * i, &word, size % 8);
}

static inline bool soak_right(const uint8_t *in, uint64_t h, uint64_t number, uint32_t size)
{
    uint32_t i, words = size / 8;
    uint64_t word, got, differing = 0;
    for (i = 0; i < words; i++) {
        memcpy(&got, in + 8ull * i, 8);
        differing |= got ^ soak_word(h, number, i);
    }
    word = soak_word(h, number, i);
    return !differing && !memcmp(in + 8ull * i, &word, size % 8);
}

static inline struct soak_stream *soak_find(const struct soak_side *side, const void *context)
{
    uint32_t at = (uint32_t)soak_mix((uintptr_t)context) & side->mask;
    while (side->by_context[at]) {
        struct soak_stream *s = &side->streams[side->by_context[at] - 1];
        if (s->context == context)
            return s;
        at = (at + 1) & side->mask;
    }
    return NULL;
}

static inline void soak_enter(struct soak_side *side, uint32_t number)
{
    uint32_t at = (uint32_t)soak_mix((uintptr_t)side->streams[number].context) & side->mask;
    while (side->by_context[at])
        at = (at + 1) & side->mask;
    side->by_context[at] = number + 1;
}

static inline bool soak_fail(struct soak_side *side, const struct soak_stream *s, uint64_t number,
                             const char *wrong)
{
    side->wrong = wrong;
    side->at = s ? (uint64_t)(s - side->streams) : 0;
    side->number = number;
    return false;
}

/* Bytes at a place, of which the first may lie elsewhere. Gives the number of pieces. */
static inline uint32_t soak_pieces(const struct soak_stream *s, uint8_t *place, uint32_t bytes,
                                   uint32_t token, uint8_t *head, struct shmnd_sge sges[2])
{
    uint32_t first = head ? SOAK_HEAD : 0;
    sges[0] = (struct shmnd_sge){(uint64_t)(uintptr_t)head, first, s->heads_token};
    sges[head != NULL] =
        (struct shmnd_sge){(uint64_t)(uintptr_t)(place + first), bytes - first, token};
    return head ? 2 : 1;
}

static inline bool soak_receive(struct soak_side *side, struct soak_stream *s, uint64_t slot)
{
    struct shmnd_sge sges[2];
    uint8_t *head = soak_takes_split(s, slot) ? soak_head(s, true, slot) : NULL;
    uint32_t n = soak_pieces(s, s->in + slot * s->stride, s->largest, s->in_token, head, sges);
    if (shmnd_post_receive(s->qp, side->none, sges, n) != SHMND_SUCCESS)
        return soak_fail(side, s, slot, "a Receive was refused");
    if (s->qp->rx.stalled)
        shmnd_qp_activate(s->qp);
    return true;
}

static inline bool soak_send(struct soak_side *side, struct soak_stream *s)
{
    uint64_t number = s->posted, h = soak_mix(s->out_key + number), slot = number % s->depth;
    uint8_t *place = s->out + slot * s->stride, *head = NULL;
    uint32_t size = soak_size(h, s->largest), n;
    bool kept, silent = soak_is_silent(h);
    struct shmnd_sge sges[2];
    struct shmnd_todo todo = {.qp = s->qp};
    soak_fill(place, h, number, size);
    if (soak_is_split(h, size)) {
        head = soak_head(s, false, slot);
        memcpy(head, place, SOAK_HEAD);
        memset(place, 0x5A, SOAK_HEAD);
    }
    n = soak_pieces(s, place, size, s->out_token, head, sges);
    /* A silent one has no context to give back. */
    if (shmnd_post_send(s->qp, silent ? NULL : side->none, sges, n,
                        silent ? SHMND_OP_SILENT_SUCCESS : 0, &kept) != SHMND_SUCCESS)
        return soak_fail(side, s, number, "a Send was refused");
    s->posted++;
    s->bytes += size;
    while (s->qp->wq.oldest != s->qp->wq.end) {
        todo.what = shmnd_tx_advance(s->qp);
        if (todo.what == SHMND_IDLE)
            break;
        if (side->serve(&todo) < 0)
            return soak_fail(side, s, number, "a job of a Send failed");
    }
    return true;
}

/* Steps over silent Sends, which have no completion. */
static inline void soak_pass_silent(struct soak_stream *s)
{
    s->sent = s->posted - (s->qp->wq.end - s->qp->wq.oldest);
    while (s->told < s->sent && soak_is_silent(soak_mix(s->out_key + s->told)))
        s->told++;
}

static inline bool soak_take(struct soak_side *side, const struct shmnd_cqe *e)
{
    struct soak_stream *s = soak_find(side, e->qp_context);
    uint64_t number, h, slot;
    if (!s)
        return soak_fail(side, s, 0, "a completion of an unknown queue pair");
    if (e->type == SHMND_SEND) {
        soak_pass_silent(s);
        if (e->status)
            return soak_fail(side, s, e->status, "a Send failed with the status in `number`");
        if (s->told++ >= s->sent)
            return soak_fail(side, s, s->told, "a Send completed twice, or a silent one did");
        return true;
    }
    number = s->received;
    slot = number % s->depth;
    h = soak_mix(s->in_key + number);
    if (e->status)
        return soak_fail(side, s, e->status, "a Receive failed with the status in `number`");
    if (e->bytes != soak_size(h, s->largest))
        return soak_fail(side, s, number, "a message of the wrong length");
    if (soak_takes_split(s, slot))
        memcpy(s->in + slot * s->stride, soak_head(s, true, slot),
               e->bytes < SOAK_HEAD ? e->bytes : SOAK_HEAD);
    if (!soak_right(s->in + slot * s->stride, h, number, e->bytes))
        return soak_fail(side, s, number, "a message with the wrong bytes");
    s->received++;
    return soak_receive(side, s, slot);
}

static inline bool soak_done(const struct soak_side *side)
{
    for (uint32_t i = 0; i < side->count; i++) {
        const struct soak_stream *s = &side->streams[i];
        if (s->told < s->out_target || s->received < s->in_target)
            return false;
    }
    return true;
}

static inline void soak_rest(uint32_t idle)
{
    struct timespec moment = {0, 50000};
    if (idle > 20000)
        nanosleep(&moment, NULL);
    else if (idle > 1000)
        sched_yield();
}

/* Makes no call for a moment, once in many turns. */
static inline void soak_compute(uint64_t h)
{
    struct timespec moment = {0, 2000000};
    if (h % 2048 == 0)
        nanosleep(&moment, NULL);
}

/* Runs until all is sent and received, or until a moment. False: see `wrong`. */
static inline bool soak_run(struct soak_side *side, uint64_t until_ns)
{
    struct shmnd_cqe out[SOAK_POLL];
    struct shmnd_todo todo;
    uint32_t idle = 0, turn = 0;
    while (turn++ % 256 || (!soak_done(side) && shmnd_now_ns() < until_ns)) {
        bool moved = false;
        for (uint32_t i = 0; i < side->count; i++) {
            struct soak_stream *s = &side->streams[i];
            /* Bursts of different lengths, up to a full queue. */
            uint64_t burst = turn % s->rate ? 0 : soak_mix(s->posted + turn) % (s->depth + 1);
            soak_pass_silent(s);
            for (; burst && s->posted < s->out_target && s->posted - s->sent < s->depth; burst--) {
                if (!soak_send(side, s))
                    return false;
                moved = true;
            }
        }
        soak_compute(soak_mix(side->streams[0].out_key ^ turn));
        for (uint32_t rounds = 0; rounds < 4; rounds++) {
            uint32_t most = 1 + (uint32_t)soak_mix(turn * 4 + rounds) % SOAK_POLL;
            uint32_t n = shmnd_cq_poll(side->cq, out, most, &todo);
            if (todo.what != SHMND_IDLE && side->serve(&todo) < 0)
                return soak_fail(side, NULL, 0, "a job of a poll failed");
            for (uint32_t i = 0; i < n; i++)
                if (!soak_take(side, &out[i]))
                    return false;
            moved |= n > 0;
        }
        idle = moved ? 0 : idle + 1;
        soak_rest(idle);
    }
    return true;
}

#endif
