/* SPDX-License-Identifier: Apache-2.0
 *
 * The contexts of requests that the engine holds: where each of them is.
 *
 * A posted request owns one reference to its context. The reference passes from place to
 * place until a completion carries it out of the engine, and is in exactly one of these:
 *
 *   a request       `context` of an entry from `wq.released` to `wq.end`, unless it is NULL:
 *                   its completion took the reference (shmnd_tx_complete)
 *   a posted Receive    `context` of an entry from `matched` to `posted`, of a queue pair or of
 *                   a shared queue
 *   an open message     `rx.rqe.context` while `rx.open`: its Receive is matched, not complete
 *   a window        `context` of its region, until the peer invalidates it (NULL from then on)
 *   an invalidated window    `rx.extra.context` while `rx.unbinding` or `rx.extra_ready`
 *   a completion    the ring of its completion queue, from `read_pos` to `write_pos`
 *
 * A context may refer to its own queue pair. The garbage collector frees such a cycle only if
 * the compiled types show it these references (tp_traverse), each exactly once: a reference
 * that is not shown keeps its cycle for ever, and one shown twice frees an object in use. The
 * collector runs under the interpreter's lock, as everything that changes these places does
 * (objects.h: a copy without the lock changes none of them), and no function of the engine
 * calls the interpreter half-way. So it sees each reference in one place. The measuring loops
 * run without the lock; they refuse other contexts than None, which the collector ignores.
 *
 * The functions below step through the places. Storing another context in one transfers its
 * reference; the state of the request is untouched, and it can complete with the new context.
 */
#ifndef SHMND_ENGINE_CONTEXTS_H
#define SHMND_ENGINE_CONTEXTS_H

#include "engine/objects.h"

/* How far a walk has come. Begin with zeros, and change nothing else until it ends. */
struct shmnd_contexts_walk {
    uint64_t requests, receives, windows, found;
    bool open, extra;
};

/* Return the address of the next context of a posted Receive; NULL: there are no more. */
static inline void **shmnd_receives_next_context(struct shmnd_receives *r,
                                                 struct shmnd_contexts_walk *at)
{
    while (at->receives != r->posted - r->matched) {
        struct shmnd_rqe *e = &r->entries[(r->matched + at->receives++) & r->mask];
        if (e->context)
            return &e->context;
    }
    return NULL;
}

/* Return the address of the next context that a queue pair owns; NULL: there are no more. Its
 * Receives are those of its own queue; a shared queue owns its own. */
static inline void **shmnd_qp_next_context(struct shmnd_qp *qp, struct shmnd_contexts_walk *at)
{
    while (at->requests != qp->wq.end - qp->wq.released) {
        struct shmnd_wqe *w = &qp->wq.entries[(qp->wq.released + at->requests++) & qp->wq.mask];
        if (w->context)
            return &w->context;
    }
    if (!at->open) {
        at->open = true;
        if (qp->rx.open && qp->rx.rqe.context)
            return &qp->rx.rqe.context;
    }
    if (!at->extra) {
        at->extra = true;
        if ((qp->rx.unbinding || qp->rx.extra_ready) && qp->rx.extra.context)
            return &qp->rx.extra.context;
    }
    return shmnd_receives_next_context(&qp->own, at);
}

/* Return the address of the next context of a window; NULL: there are no more. Few windows have a
 * context, so the walk ends with the last of them. */
static inline void **shmnd_registry_next_context(struct shmnd_registry *r,
                                                 struct shmnd_contexts_walk *at)
{
    while (at->found != r->window_contexts && at->windows != r->count) {
        struct shmnd_region *region = &r->regions[at->windows++];
        if (region->context) {
            at->found++;
            return &region->context;
        }
    }
    return NULL;
}

/* ---- windows -------------------------------------------------------------------------- */

static inline void shmnd_window_set_context(struct shmnd_registry *r, struct shmnd_region *window,
                                            void *context)
{
    r->window_contexts += (context != NULL) - (window->context != NULL);
    window->context = context;
}

/* Take the context of a window and return it, or NULL. The caller owns its reference from now
 * on. */
static inline void *shmnd_window_take_context(struct shmnd_registry *r, struct shmnd_region *window)
{
    void *context = window->context;
    shmnd_window_set_context(r, window, NULL);
    return context;
}

#endif
