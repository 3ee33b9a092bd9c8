/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests and receives that a lane (lanes.h) posts, of random kinds and lengths.
 */
#ifndef SHMND_TEST_LANE_POSTS_H
#define SHMND_TEST_LANE_POSTS_H

#include "lanes.h"

static inline uint32_t pick_length(struct lane *l, uint32_t *flags)
{
    uint32_t room = l->side->plan.room;
    uint64_t least = sizeof(struct head), kind = any(l, room == LONG_ROOM ? 5 : 4);
    *flags = any(l, 4) == 0 ? SHMND_OP_SOLICIT : 0;
    if (any(l, 4) == 0)
        *flags |= SHMND_OP_SILENT_SUCCESS;
    if (kind == 0) {
        *flags |= SHMND_OP_INLINE;
        return (uint32_t)(least + any(l, 128 - least));
    }
    if (kind < 3)
        return (uint32_t)(least + any(l, SHMND_PLACE_MIN - least));
    if (kind == 3)
        return (uint32_t)(SHMND_PLACE_MIN + any(l, SHORT_ROOM - SHMND_PLACE_MIN));
    return (uint32_t)(SHMND_SHARE_MIN + any(l, LONG_ROOM - SHMND_SHARE_MIN));
}

/* One range, or two. */
static inline uint32_t stretches(struct lane *l, const struct request *r, uint32_t length,
                                 struct shmnd_sge sges[2])
{
    uint32_t first = any(l, 3) == 0 ? length / 3 : length;
    sges[0] = sge(r->at, first, r->token);
    sges[1] = sge(r->at + first, length - first, r->token);
    return first == length ? 1 : 2;
}

static inline bool post_message(struct lane *l, uint32_t i, uint64_t number, bool give_back)
{
    struct request *r = &l->out[i];
    struct shmnd_sge sges[2];
    bool kept = true;
    uint32_t flags, length = pick_length(l, &flags), status;
    struct head head = {.number = number,
                        .board = l->board_ready ? l->board_put : 0,
                        .board_seen = l->board_got,
                        .window = l->window,
                        .pane = l->pane_put};
    memcpy(r->at, &head, sizeof head);
    fill(r->at + sizeof head, length - sizeof head, salt_of(l, number));
    uint32_t n = stretches(l, r, length, sges);
    r->number = number;
    r->asked = give_back ? GIVEN_BACK : SENT;
    r->length = length;
    if (give_back)
        status = shmnd_post_send_invalidate(&l->e->q, context_of(l, ASKED, i), sges, n,
                                            l->far_window, flags);
    else
        status = shmnd_post_send(&l->e->q, context_of(l, ASKED, i), sges, n, flags, &kept);
    if (status != SHMND_SUCCESS) {
        EQUAL(status, SHMND_NO_MORE_ENTRIES);
        r->asked = NOTHING;
        return false;
    }
    if (give_back) {
        l->given = l->far_window;
        l->far_window = 0;
    }
    if (!kept)
        ended(l, r, SHMND_SUCCESS);
    return true;
}

static inline bool post_copy(struct lane *l, uint32_t i, enum asked asked)
{
    struct request *r = &l->out[i];
    struct shmnd_sge s = sge(r->at, PAGE, r->token);
    bool kept;
    const void *at = asked == READ      ? l->far->shelf
                     : asked == WRITTEN ? l->far->board
                                        : l->far->pane;
    uint32_t token = asked == READ      ? l->far->shelf_token
                     : asked == WRITTEN ? l->far->board_token
                                        : l->far_window;
    r->number = asked == WRITTEN ? l->board_put + 1 : token;
    r->asked = asked;
    r->length = PAGE;
    if (asked != READ)
        fill(r->at, PAGE, salt_of(l, r->number));
    uint32_t status =
        shmnd_post_rdma(&l->e->q, context_of(l, ASKED, i), asked == READ ? SHMND_READ : SHMND_WRITE,
                        &s, 1, (uint64_t)(uintptr_t)at, token, 0, &kept);
    if (status != SHMND_SUCCESS) {
        EQUAL(status, SHMND_NO_MORE_ENTRIES);
        r->asked = NOTHING;
        return false;
    }
    l->board_free = l->board_free && asked != WRITTEN;
    return true;
}

static inline bool outstanding(const struct lane *l)
{
    bool some = false;
    for (uint32_t i = 0; i < REQUESTS; i++)
        some = some || l->out[i].asked != NOTHING;
    return some;
}

/* Posts one request, of a random kind among those that may be posted now. */
static inline bool post_one(struct lane *l, uint32_t i)
{
    bool posted;
    if (l->sent == l->side->plan.messages)
        return !l->last_told && !outstanding(l) && post_message(l, i, LAST, false);
    switch (any(l, 8)) {
    case 0: return post_copy(l, i, READ);
    case 1:
        if (l->board_free)
            return post_copy(l, i, WRITTEN);
        break;
    case 2:
        if (l->far_window)
            return post_copy(l, i, SHOWN);
        break;
    case 3:
        if (l->far_window) {
            posted = post_message(l, i, l->sent + 1, true);
            l->sent += posted;
            return posted;
        }
        break;
    default: break;
    }
    posted = post_message(l, i, l->sent + 1, false);
    l->sent += posted;
    return posted;
}

static inline bool post_requests(struct lane *l)
{
    bool some = false;
    l->e->q.batch = any(l, 8) == 0;
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (l->out[i].asked == NOTHING && l->e->q.state == SHMND_QP_CONNECTED && post_one(l, i)) {
            some = true;
            if (l->out[i].asked != NOTHING)
                runner_advance(l->side->runner, l->e);
        }
    if (l->e->q.batch)
        shmnd_batch_submit(&l->e->q);
    return some;
}

/* Posts all free receives, or sometimes none. */
static inline bool post_receives(struct lane *l)
{
    struct shmnd_sge sges[2];
    bool some = false;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        if (l->in[i].posted)
            continue;
        some = true;
        if (any(l, 2))
            break;
        uint32_t n = stretches(l, &l->in[i], l->side->plan.room, sges);
        uint32_t status =
            post_receive(l->e, (uint64_t)(uintptr_t)context_of(l, RECEIVED, i), sges, n);
        l->in[i].posted = status == SHMND_SUCCESS;
        CHECK(status == SHMND_SUCCESS || status == SHMND_NO_MORE_ENTRIES);
    }
    return some;
}

#endif
