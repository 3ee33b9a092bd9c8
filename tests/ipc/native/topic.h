/* SPDX-License-Identifier: Apache-2.0
 *
 * A topic for the native tests: a publisher's board with slots, and subscribers of every policy.
 * What would be shared is shared with children, too. Each word of a sample says where it stands in
 * which sample, so a byte of another one is found.
 */
#ifndef SHMND_TEST_TOPIC_H
#define SHMND_TEST_TOPIC_H

#include "check.h"
#include "guests.h"
#include "receive.h"

#define TOPIC_WORDS 16u
#define TOPIC_SLOTS 256u
#define TOPIC_SEATS 80u
#define TOPIC_LOG 6u
#define TOPIC_HELD 8u
#define TOPIC_INLINE 5u /* each so many samples are small */

struct topic {
    struct shmnd_board b;
    shmnd_word64 *memory;
    uint32_t slots;
};

struct reader {
    struct shmnd_reading r;
    struct shmnd_kept *kept;
    uint64_t ident, got, next, first;
};

static inline void *topic_shared(size_t nbytes)
{
    void *at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static inline void topic_open(struct topic *t, uint64_t history, uint32_t slots)
{
    memset(t, 0, sizeof *t);
    t->slots = slots;
    t->memory = topic_shared(slots * TOPIC_WORDS * 8);
    t->b.head = topic_shared(shmnd_head_bytes(TOPIC_SEATS));
    t->b.head->seats = TOPIC_SEATS;
    t->b.head->history = history;
    t->b.lines = topic_shared(64 << TOPIC_LOG);
    t->b.line_mask = (1 << TOPIC_LOG) - 1;
    t->b.line_slots = malloc(4 << TOPIC_LOG);
    memset(t->b.line_slots, 0xff, 4 << TOPIC_LOG);
    t->b.sleepers = topic_shared(64);
    t->b.guests = calloc(TOPIC_SEATS, sizeof *t->b.guests);
    t->b.history = history;
    t->b.slots.pending = SHMND_NO_SLOT;
    memset(t->b.slots.free, 0xff, sizeof t->b.slots.free);
    t->b.slots.all = calloc(slots, sizeof *t->b.slots.all);
    t->b.slots.count = slots;
    for (uint32_t i = 0; i < slots; i++) {
        t->b.slots.all[i].base = (unsigned char *)&t->memory[i * TOPIC_WORDS];
        t->b.slots.all[i].group = i / 4;
        shmnd_slots_free(&t->b.slots, i);
    }
    shmnd_put64(&t->b.head->where, TOPIC_LOG);
}

static inline void topic_close(struct topic *t)
{
    for (uint32_t i = 0; i < TOPIC_SEATS; i++)
        free(t->b.guests[i].kept_slots);
    free(t->b.line_slots);
    free(t->b.guests);
    free(t->b.slots.all);
    munmap(t->memory, t->slots * TOPIC_WORDS * 8);
    munmap(t->b.head, shmnd_head_bytes(TOPIC_SEATS));
    munmap(t->b.sleepers, 64);
}

static inline uint64_t topic_word(uint64_t position, uint32_t at)
{
    return position * 1000003 + at;
}

/* Publishes the next sample; false without a free slot or without room. */
static inline bool topic_publish(struct topic *t)
{
    uint64_t position = t->b.next;
    struct shmnd_sample sample = {.when_ns = position, .info = 1 | SHMND_INFO_INLINE | 40 << 16};
    uint32_t slot = SHMND_NO_SLOT;
    if (!shmnd_board_has_room(&t->b))
        return false;
    for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
        sample.body[i] = topic_word(position, i);
    if (position % TOPIC_INLINE) {
        slot = shmnd_board_take(&t->b, 0);
        if (slot == SHMND_NO_SLOT)
            return false;
        /* plain stores: the sanitizer finds a slot that is written while a subscriber reads it */
        uint64_t *words = (uint64_t *)(void *)t->b.slots.all[slot].base;
        for (uint32_t i = 0; i < TOPIC_WORDS; i++)
            words[i] = topic_word(position, i);
        sample = (struct shmnd_sample){.when_ns = position, .info = 1, .body = {slot}};
    }
    EQUAL(shmnd_board_publish(&t->b, &sample, slot), position);
    return true;
}

/* The subscriber's side of coming: before its publisher knows of it. */
static inline void reader_open(struct reader *s, struct topic *t, enum shmnd_policy policy,
                               uint64_t buffer)
{
    static uint64_t idents = 1;
    memset(s, 0, sizeof *s);
    s->ident = idents++;
    s->r.head = t->b.head;
    s->r.page = topic_shared(shmnd_page_bytes(TOPIC_HELD));
    s->r.sleepers = t->b.sleepers;
    s->r.most_held = s->r.free_count = TOPIC_HELD;
    s->r.policy = policy;
    s->r.buffer = buffer;
    s->r.uncounted = SHMND_INFO_INLINE;
    s->r.free_holds = malloc(TOPIC_HELD * 4);
    for (uint32_t i = 0; i < TOPIC_HELD; i++)
        s->r.free_holds[i] = TOPIC_HELD - 1 - i;
    s->r.lines = t->b.lines;
    s->r.line_mask = t->b.line_mask;
    s->r.where = shmnd_relaxed64(&t->b.head->where);
    uint64_t written = shmnd_relaxed64(&t->b.head->written);
    s->first = written - (t->b.history < written ? t->b.history : written);
    s->r.joined = written;
    s->r.early = s->r.start = s->first;
    shmnd_put64(&s->r.page->early, s->first);
    s->next = s->first;
    if (policy != SHMND_DROP_NEWEST)
        shmnd_reading_advance(&s->r, s->first);
    s->kept = policy == SHMND_DROP_NEWEST ? topic_shared(128 * 64) : NULL;
}

static inline void reader_close(struct reader *s)
{
    free(s->r.free_holds);
    munmap(s->r.page, shmnd_page_bytes(TOPIC_HELD));
    if (s->kept)
        munmap(s->kept, 128 * 64);
}

/* The publisher's side. */
static inline void topic_seat(struct topic *t, struct reader *s, uint32_t seat)
{
    struct shmnd_guest guest = {.page = s->r.page,
                                .most_held = TOPIC_HELD,
                                .policy = s->r.policy,
                                .buffer = s->r.buffer,
                                .kept = s->kept,
                                .kept_mask = 63};
    if (s->kept)
        guest.kept_slots = malloc(64 * 4);
    free(t->b.guests[seat].kept_slots);
    shmnd_board_seat(&t->b, seat, &guest, s->first);
    shmnd_board_admit(&t->b, seat, s->ident, 0);
}

/* The subscriber finds its seat. */
static inline void reader_sit(struct reader *s)
{
    CHECK(shmnd_reading_find_seat(&s->r, s->ident, TOPIC_SEATS));
    shmnd_reading_begin(&s->r);
    s->r.kept = s->kept;
    s->r.kept_mask = 63;
}

static inline void reader_check(struct reader *s, const struct topic *t,
                                const struct shmnd_found *found)
{
    uint64_t position = found->position;
    CHECK(position >= s->next);
    s->next = position + 1;
    s->got++;
    EQUAL(found->when_ns, position);
    if (found->info & SHMND_INFO_INLINE) {
        for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
            EQUAL(found->body[i], topic_word(position, i));
        return;
    }
    const uint64_t *words = (const uint64_t *)&t->memory[found->body[0] * TOPIC_WORDS];
    for (uint32_t i = 0; i < TOPIC_WORDS; i++)
        EQUAL(words[i], topic_word(position, i));
}

/* Receives one sample, checks it, and gives it back; false when there is none. */
static inline bool reader_take(struct reader *s, const struct topic *t)
{
    struct shmnd_found found;
    if (shmnd_reading_next(&s->r, &found) != SHMND_OUTCOME_FOUND)
        return false;
    reader_check(s, t, &found);
    if (found.hold != SHMND_NO_SLOT)
        shmnd_reading_let_go(&s->r, found.hold);
    return true;
}

/* The slots that are neither free nor on the board. */
static inline uint32_t topic_missing(struct topic *t)
{
    uint32_t there = 0;
    shmnd_board_reclaim(&t->b);
    for (uint32_t i = 0; i < t->slots; i++)
        there += t->b.slots.all[i].state == SHMND_STORE_FREE ||
                 t->b.slots.all[i].state == SHMND_STORE_SHOWN;
    return t->slots - there;
}

#endif
