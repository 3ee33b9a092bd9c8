/* SPDX-License-Identifier: Apache-2.0
 *
 * Executing a Read or Write: by the initiator, through its mapping of the owner's
 * segment, under a grant that the owner may revoke (tokens.h).
 *
 * Both ends are checked before the copy, and the grant again under the hazard word. Never
 * waits. A long copy runs piece by piece from its beginning to its end. Each piece sets the
 * hazard word and checks the grant and `closing` by itself, so the owner waits for one piece
 * at most. If it revokes the grant between two pieces, the copy fails there with memory
 * partly written, as with a device; so does a death during a copy, and the hazard word of
 * the dead process no longer counts.
 */
#ifndef SHMND_SEND_READ_WRITE_H
#define SHMND_SEND_READ_WRITE_H

#include "send/retire.h"

/* Copies of up to this many bytes run within the post; longer ones are jobs. */
#define SHMND_SHORT_COPY (16u << 10)

static inline const struct shmnd_grant *shmnd_peer_grant(const struct shmnd_qp *qp, uint32_t token)
{
    uint32_t idx = shmnd_token_index(token);
    const struct shmnd_mapping *m = &qp->peer->tables[idx / SHMND_TABLE_ENTRIES];
    return m->base ? &((const struct shmnd_grant *)m->base)[idx % SHMND_TABLE_ENTRIES] : NULL;
}

/* Return the status of a request whose remote memory was refused. A side that closes withdraws its
 * memory afterwards: then the connection has ended, and the request named nothing wrong. */
static inline uint32_t shmnd_tx_refused(const struct shmnd_qp *qp)
{
    /* SYNC closing: fence, pairs with the closer's. A grant that was found revoked after it shows
     * `closing` too. */
    shmnd_loads_before();
    return shmnd_relaxed32(&qp->link.theirs->closing) ? SHMND_CANCELED : qp->target_fault;
}

/* Check both ends of a Read or Write and prepare its copy. Return a status; SHMND_PENDING: a
 * segment must be mapped first. */
static inline uint32_t shmnd_tx_resolve_rdma(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                             const struct shmnd_sge *sges, const uint8_t *inlined,
                                             struct shmnd_job *job)
{
    bool reading = w->type == SHMND_READ;
    struct shmnd_spans *local = reading ? &job->to : &job->from;
    struct shmnd_spans *remote = reading ? &job->from : &job->to;
    uint32_t rights = reading ? SHMND_MR_LOCAL_WRITE | SHMND_MR_READ_SINK : 0;
    if (reading && qp->outbound_read_limit == 0)
        return SHMND_INVALID_DEVICE_REQUEST;
    if (inlined) {
        shmnd_spans_clear(local);
        shmnd_spans_add(local, (uint64_t)(uintptr_t)inlined, w->length);
    } else if (!shmnd_local_spans(qp->registry, sges, w->sges, rights, local)) {
        return SHMND_ACCESS_VIOLATION;
    }
    job->kind = SHMND_JOB_NONE;
    if (w->length == 0)
        return SHMND_SUCCESS;
    const struct shmnd_grant *grant = shmnd_peer_grant(qp, w->remote_token);
    if (!grant)
        return SHMND_PENDING;
    struct shmnd_target target;
    uint32_t right = reading ? SHMND_ALLOW_READ : SHMND_ALLOW_WRITE;
    if (!shmnd_grant_check(grant, w->remote_token, right, w->remote_address, w->length,
                           qp->link.connection, &target))
        return shmnd_tx_refused(qp);
    shmnd_spans_clear(remote);
    int got =
        shmnd_peer_add_span(qp->peer, target.segment, target.offset, w->length, !reading, remote);
    if (got <= 0)
        return got == 0 ? SHMND_PENDING : shmnd_tx_refused(qp);
    job->kind = SHMND_JOB_RDMA;
    job->writes = !reading;
    job->request = qp->wq.next;
    job->unmapped = qp->peer->unmapped;
    SHMND_KILL_POINT("token-checked");
    job->grant = grant;
    job->token = w->remote_token;
    job->moved = 0;
    return SHMND_SUCCESS;
}

static inline uint32_t shmnd_run_rdma(struct shmnd_qp *qp, struct shmnd_job *job)
{
    if (!shmnd_hazard_enter(&qp->link.mine->hazard, job->grant, job->token))
        return shmnd_tx_refused(qp);
    /* SYNC closing: the fence in shmnd_hazard_enter() pairs with the closer's */
    if (shmnd_relaxed32(&qp->link.theirs->closing)) {
        shmnd_hazard_leave(&qp->link.mine->hazard);
        return SHMND_CANCELED;
    }
    uint32_t status = shmnd_copy_piece(qp->peer, job);
    SHMND_KILL_POINT("rdma-moved");
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return status;
}

static inline enum shmnd_progress shmnd_tx_issue_rdma(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    const uint8_t *inlined = w->flags & SHMND_OP_INLINE ? shmnd_wqe_inline(qp, qp->wq.next) : NULL;
    uint32_t status =
        shmnd_tx_resolve_rdma(qp, w, shmnd_wqe_sges(qp, qp->wq.next), inlined, &qp->tx.job);
    if (status == SHMND_PENDING)
        return SHMND_NEEDS_MAP;
    if (status == SHMND_SUCCESS && qp->tx.job.kind != SHMND_JOB_NONE) {
        qp->tx.busy = true;
        return SHMND_RUN;
    }
    if (status == SHMND_SUCCESS)
        shmnd_count_rdma(qp, w->type, 0);
    shmnd_tx_end_copy(qp, w, status);
    qp->wq.next++;
    return SHMND_IDLE;
}

#endif
