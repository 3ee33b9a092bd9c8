/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a request may access, here and at the peer, and the copies between.
 *
 * The functions here check each range against the registry and the mappings; the copies
 * trust the ranges that they are given. Each element of a list is accessed in its own way:
 * memory in a segment through its mapping, private memory by a system call. Only a copy of
 * private or fragile memory can fail, and it returns the reason as a status.
 * Serves invariant 1.
 */
#ifndef SHMND_ENGINE_ACCESS_H
#define SHMND_ENGINE_ACCESS_H

#include "engine/segments.h"

/* ---- local memory -------------------------------------------------------------------- */

static inline struct shmnd_sge *shmnd_wqe_sges(struct shmnd_qp *qp, uint64_t pos)
{
    return &qp->wq.sges[(pos & qp->wq.mask) * qp->wq.stride];
}

static inline uint8_t *shmnd_wqe_inline(struct shmnd_qp *qp, uint64_t pos)
{
    return qp->wq.inlined + (pos & qp->wq.mask) * (uint64_t)qp->inline_size;
}

/* Store the ranges of a list of which some elements may be in fragile memory. Return false if an
 * element is in no registered memory with one of `rights`. */
static __attribute__((noinline, cold, unused)) bool
shmnd_local_spans_fragile(struct shmnd_registry *registry, const struct shmnd_sge *sges, uint32_t n,
                          uint32_t rights, struct shmnd_spans *out)
{
    shmnd_spans_clear(out);
    for (uint32_t i = 0; i < n; i++) {
        if (shmnd_sge_region(registry, &sges[i], rights))
            shmnd_spans_add(out, sges[i].address, sges[i].length);
        else if (shmnd_fragile_region(registry, &sges[i], rights))
            shmnd_spans_add_fragile(out, sges[i].address, sges[i].length);
        else
            return false;
    }
    return true;
}

/* Store the ranges of `sges` in `out`. Return false if an element is not in registered memory with
 * one of `rights`. Every message calls it, so it is inlined; the rare case is a function of its
 * own. */
static inline __attribute__((always_inline)) bool shmnd_local_spans(struct shmnd_registry *registry,
                                                                    const struct shmnd_sge *sges,
                                                                    uint32_t n, uint32_t rights,
                                                                    struct shmnd_spans *out)
{
    shmnd_spans_clear(out);
    for (uint32_t i = 0; i < n; i++) {
        if (!shmnd_sge_region(registry, &sges[i], rights))
            return shmnd_local_spans_fragile(registry, sges, n, rights, out);
        shmnd_spans_add(out, sges[i].address, sges[i].length);
    }
    return true;
}

/* ---- the peer's memory --------------------------------------------------------------- */

/* Add the local address of the peer's `offset` in `segment` to `out`. Return 1; 0: the segment is
 * not mapped here yet; -1: the range exceeds the segment, or is in private memory that this process
 * cannot access, or this process is to `store` there and may not.
 *
 * The peer names the segment in a posted receive or a grant, which proves nothing, and a store to
 * memory that is mapped read-only here would end this process. Private memory is written by a
 * system call that returns an error. */
static inline int shmnd_peer_add_span(const struct shmnd_peer *peer, uint32_t segment,
                                      uint64_t offset, uint64_t length, bool store,
                                      struct shmnd_spans *out)
{
    if (segment == SHMND_PRIVATE_MEMORY) {
        if (!peer->vm)
            return -1;
        shmnd_spans_add_remote(out, offset, length);
        return 1;
    }
    if (segment >= SHMND_FIRST_MARKS_SEGMENT)
        return -1;
    const struct shmnd_mapping *m = shmnd_peer_segment(peer, segment);
    if (!m)
        return 0;
    if ((store && m->read_only) || !shmnd_range_within(offset, length, 0, m->bytes))
        return -1;
    shmnd_spans_add(out, (uint64_t)(uintptr_t)m->base + offset, length);
    return 1;
}

/* ---- copying ------------------------------------------------------------------------- */

static inline uint32_t shmnd_copy_status(int error)
{
    return error == 0        ? SHMND_SUCCESS
           : error == ESRCH  ? SHMND_IO_TIMEOUT
           : error == EFAULT ? SHMND_ACCESS_VIOLATION
                             : SHMND_INTERNAL_ERROR;
}

static inline uint32_t shmnd_copy_spans(struct shmnd_peer *peer, const struct shmnd_spans *to,
                                        const struct shmnd_spans *from)
{
    if (to->remote || from->remote)
        return shmnd_copy_status(shmnd_vm_copy(&peer->process, to, from));
    shmnd_spans_copy_mapped(to, from);
    return SHMND_SUCCESS;
}

/* Copy to one range so that its last byte becomes visible last, from a list or by the kernel.
 * Return a status.
 *
 * The kernel copies the part of a range in one page by one instruction, whose stores may become
 * visible in any order, so in private memory the last byte is a range of its own, in the same call.
 * Assumed of the kernel: between two ranges it unpins the pages of the first by a fully ordered
 * operation. A target in a segment is written here. */
static __attribute__((noinline, unused)) uint32_t shmnd_copy_write_gathered(
    struct shmnd_peer *peer, const struct shmnd_spans *to, const struct shmnd_spans *from)
{
    uint64_t n = to->v[0].length, last_at = to->v[0].at + n - 1;
    struct shmnd_spans split, rest, end, byte;
    uint8_t last;
    shmnd_spans_slice(to, 0, n - 1, &split);
    if (to->remote) {
        split.remote |= to->remote << split.count;
        shmnd_spans_add(&split, last_at, 1);
        return shmnd_copy_spans(peer, &split, from);
    }
    shmnd_spans_slice(from, 0, n - 1, &rest);
    shmnd_spans_slice(from, n - 1, 1, &end);
    shmnd_spans_clear(&byte);
    shmnd_spans_add(&byte, (uint64_t)(uintptr_t)&last, 1);
    uint32_t status = shmnd_copy_spans(peer, &byte, &end); /* before, in case the two overlap */
    if (status == SHMND_SUCCESS && n > 1)
        status = shmnd_copy_spans(peer, &split, &rest);
    if (status != SHMND_SUCCESS)
        return status;
    SHMND_KILL_POINT("write-before-last-byte");
    /* SYNC watched: release, pairs with acquire in shmnd_byte_at() */
    shmnd_release_byte((uint8_t *)(uintptr_t)last_at, last);
    return SHMND_SUCCESS;
}

/* Copy a Read, a Write or a placed message and return a status. If a thread may be polling the
 * target (`watched`), the last byte of one range becomes visible last. An aligned word from one
 * range is stored whole, for a thread that polls all of it. */
static inline uint32_t shmnd_copy_write(struct shmnd_peer *peer, const struct shmnd_spans *to,
                                        const struct shmnd_spans *from, bool watched)
{
    bool by_kernel = to->remote || from->remote;
    if (by_kernel || from->count != 1 || to->count != 1) {
        bool word = from->count == 1 && to->total == 8 && !(to->v[0].at & 7);
        return watched && to->count == 1 && !word ? shmnd_copy_write_gathered(peer, to, from)
                                                  : shmnd_copy_spans(peer, to, from);
    }
    uint8_t *dst = (uint8_t *)(uintptr_t)to->v[0].at;
    const uint8_t *src = (const uint8_t *)(uintptr_t)from->v[0].at;
    uint64_t n = to->v[0].length;
    if (n == 8 && !(to->v[0].at & 7)) {
        uint64_t word;
        memcpy(&word, src, 8);
        /* SYNC watched: release, pairs with acquire in shmnd_byte_at() */
        shmnd_release64((shmnd_word64 *)(void *)dst, word);
        return SHMND_SUCCESS;
    }
    uint8_t last = src[n - 1]; /* before, in case the two overlap */
    shmnd_copy_bytes(dst, src, n - 1);
    SHMND_KILL_POINT("write-before-last-byte");
    /* SYNC watched: release, pairs with acquire in shmnd_byte_at() */
    shmnd_release_byte(dst + n - 1, last);
    return SHMND_SUCCESS;
}

/* Copy `scattered` local ranges, of which some are fragile, to `plain` memory, or from it if `out`.
 * Return a status. */
static inline uint32_t shmnd_copy_staged(struct shmnd_peer *peer,
                                         const struct shmnd_spans *scattered, void *plain, bool out)
{
    struct shmnd_spans whole;
    shmnd_spans_clear(&whole);
    shmnd_spans_add(&whole, (uint64_t)(uintptr_t)plain, scattered->total);
    return out ? shmnd_copy_spans(peer, scattered, &whole)
               : shmnd_copy_spans(peer, &whole, scattered);
}

/* Return the status of a reader's copy that ended with `status`: SHMND_REMOTE_ERROR if the source,
 * the sender's memory, cannot be accessed, otherwise `status`. The source can, for instance, lie in
 * a file that was truncated. */
static __attribute__((noinline, cold, unused)) uint32_t
shmnd_reader_status(struct shmnd_peer *peer, const struct shmnd_spans *from, uint32_t status)
{
    uint8_t page[SHMND_COPY_PAGE];
    struct shmnd_spans part;
    if (status != SHMND_ACCESS_VIOLATION)
        return status;
    for (uint64_t off = 0; off < from->total; off += part.total) {
        uint64_t left = from->total - off;
        shmnd_spans_slice(from, off, left < sizeof page ? left : sizeof page, &part);
        if (shmnd_copy_staged(peer, &part, page, false) != SHMND_SUCCESS)
            return SHMND_REMOTE_ERROR;
    }
    return status;
}

/* ---- piece by piece ------------------------------------------------------------------- */

/* A system call costs as much as copying 20 to 50 KiB, so one call copies several chunks. The
 * last one of a piece may exceed it by one call. */
#define SHMND_CALL_BYTES (1u << 20)

/* Copy the next piece of a copy that runs from its beginning to its end. Return a status. */
static inline uint32_t shmnd_copy_piece(struct shmnd_peer *peer, struct shmnd_job *job)
{
    uint64_t total = job->to.total;
    bool watched = job->kind == SHMND_JOB_RDMA && job->writes;
    uint32_t status;
    if (total <= SHMND_PIECE) {
        job->moved = job->piece = total;
        return shmnd_copy_write(peer, &job->to, &job->from, watched);
    }
    struct shmnd_spans to, from;
    uint64_t left = total - job->moved, n = left < SHMND_PIECE ? left : SHMND_PIECE;
    shmnd_spans_slice(&job->to, job->moved, n, &to);
    shmnd_spans_slice(&job->from, job->moved, n, &from);
    status = shmnd_copy_write(peer, &to, &from, watched);
    job->moved += n;
    job->piece = n;
    return status;
}

/* Return whether this side has chunks of the message to claim. */
static inline bool shmnd_job_has_chunks(const struct shmnd_job *job, bool reading)
{
    uint64_t word = shmnd_relaxed64(&job->share->claim);
    return job->takes_over ? shmnd_chunks_unclaimed(word, &job->chunks)
                           : shmnd_chunks_due(word, &job->chunks, reading);
}

/* Return whether a piece of the job is left after a run. */
static inline bool shmnd_job_is_unfinished(const struct shmnd_job *job, bool reading)
{
    if (job->result != SHMND_SUCCESS || job->kind == SHMND_JOB_NONE)
        return false;
    if (job->kind == SHMND_JOB_CHUNKS)
        return shmnd_job_has_chunks(job, reading);
    return job->moved < job->to.total;
}

/* Return whether the other side leaves its unclaimed chunks to this one, after waiting for its
 * claim. If it left them the last time, do not wait. */
static inline bool shmnd_job_is_left_alone(struct shmnd_job *job)
{
    uint64_t patience_ns = job->left_alone ? 0 : SHMND_PATIENCE_NS;
    job->left_alone = !shmnd_chunks_await_claim(job->share, &job->chunks, patience_ns);
    return job->left_alone;
}

/* Claim and copy chunks until none is left to this side or a piece has been copied. Return a
 * status. */
static inline uint32_t shmnd_run_chunks(struct shmnd_peer *peer, struct shmnd_job *job,
                                        bool reading)
{
    const struct shmnd_chunks *c = &job->chunks;
    bool by_kernel = job->to.remote || job->from.remote;
    uint32_t most = by_kernel && c->size < SHMND_CALL_BYTES ? SHMND_CALL_BYTES / c->size : 1;
    for (job->piece = 0; job->piece < SHMND_PIECE && shmnd_job_has_chunks(job, reading);) {
        struct shmnd_claim claim = shmnd_chunks_claim_up_to(job->share, c, reading, most);
        if (!claim.count)
            break;
        SHMND_KILL_POINT(reading ? "back-claimed" : "front-claimed");
        struct shmnd_spans to, from;
        uint64_t off = claim.first * c->size, n = shmnd_claim_bytes(c, claim);
        shmnd_spans_slice(&job->to, off, n, &to);
        shmnd_spans_slice(&job->from, off, n, &from);
        uint32_t status = shmnd_copy_spans(peer, &to, &from);
        if (status != SHMND_SUCCESS)
            /* The chunks stay claimed and uncounted; the connection ends. */
            return reading ? shmnd_reader_status(peer, &from, status) : status;
        job->piece += n;
        SHMND_KILL_POINT(reading ? "back-copied" : "front-copied");
        shmnd_chunks_complete(job->share, claim.count);
        SHMND_KILL_POINT(reading ? "back-counted" : "front-counted");
    }
    return SHMND_SUCCESS;
}

#endif
