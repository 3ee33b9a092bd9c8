# SPDX-License-Identifier: Apache-2.0
# Names of the C headers that the compiled classes use. Only what they touch is declared.
# Their structs are in c_shared and c_objects, and what waits use in c_waiting; these count as names
# of this file too.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.types cimport pid_t

from shmnd.ring.c_objects cimport *
from shmnd.ring.c_shared cimport *
from shmnd.ring.c_waiting cimport *


cdef extern from "send/post.h" nogil:
    uint64_t shmnd_now_ns()
    struct shmnd_pace:
        uint32_t left
        uint64_t seen_ns
    cbool shmnd_pace_due(shmnd_pace *pace)
    uint64_t shmnd_coarse_ns()
    uint64_t SHMND_COARSE_STEP_NS
    uint64_t shmnd_relaxed64(const word64 *w)
    uint64_t shmnd_acquire64(const word64 *w)
    void shmnd_release64(word64 *w, uint64_t v)
    uint32_t shmnd_relaxed32(const word32 *w)
    void shmnd_put32(word32 *w, uint32_t v)
    void shmnd_put64(word64 *w, uint64_t v)
    void shmnd_release32(word32 *w, uint32_t v)
    uint32_t shmnd_acquire32(const word32 *w)
    void shmnd_pause()
    uint8_t shmnd_byte_at(const void *at)
    shmnd_slot *shmnd_reader_slot(const shmnd_slots_reader *r, uint64_t pos)

    void shmnd_counters_add(word64 *w, uint64_t n)
    void shmnd_counters_clear(shmnd_counters *t)
    void shmnd_counters_close(shmnd_counters *t)
    void shmnd_counters_open(shmnd_counters *t, uint64_t name)
    bint shmnd_counters_read(const shmnd_counters *t, uint64_t *out)
    void shmnd_qp_set_state(shmnd_qp *qp, uint32_t state)
    void shmnd_count_posted(shmnd_qp *qp)

    void shmnd_bell_arm(shmnd_arming *a, uint32_t mode)
    void shmnd_bell_disarm(shmnd_arming *a)
    uint32_t shmnd_bell_arm_at_word(shmnd_arming *a)
    void shmnd_wake_at_word(shmnd_marks *marks)
    cbool shmnd_marks_poll_requested(const shmnd_marks *marks)
    void shmnd_marks_accept_request(shmnd_marks *marks)

    uint64_t shmnd_cq_count(const shmnd_cq *cq)
    uint32_t shmnd_cq_pop(shmnd_cq *cq, shmnd_cqe *out, uint32_t max)
    cbool shmnd_peer_is_crowded(const shmnd_peer *peer)
    void shmnd_peer_add_segment(shmnd_peer *peer, const shmnd_mapping *m)
    shmnd_mapping *shmnd_peer_move_segments(shmnd_peer *peer, shmnd_mapping *table, uint32_t places)
    void shmnd_peer_remove_segment(shmnd_peer *peer, uint32_t segment)
    cbool shmnd_cq_put_back(shmnd_cq *cq, const shmnd_cqe *e, uint32_t n)
    uint32_t shmnd_cq_poll(shmnd_cq *cq, shmnd_cqe *out, uint32_t max, shmnd_todo *todo)
    void shmnd_cq_drain_links(shmnd_cq *cq, shmnd_todo *todo)
    bint shmnd_cq_may_find(const shmnd_cq *cq)
    bint shmnd_cq_has_unfinished_copy(const shmnd_cq *cq)
    uint64_t shmnd_cq_next_poll_ns(const shmnd_cq *cq, uint64_t soon_ns)
    bint shmnd_cq_trigger(shmnd_cq *cq, uint32_t mode)
    void shmnd_bounce_release(shmnd_qp *qp)
    void shmnd_cq_add_qp(shmnd_cq *cq, shmnd_qp *qp)
    void shmnd_cq_remove_qp(shmnd_cq *cq, shmnd_qp *qp)
    void shmnd_qp_activate(shmnd_qp *qp)

    uint32_t shmnd_tx_advance(shmnd_qp *qp)
    void *shmnd_pop_unreleased_context(shmnd_registry *registry)
    struct shmnd_contexts_walk:
        pass
    void **shmnd_qp_next_context(shmnd_qp *qp, shmnd_contexts_walk *at)
    void **shmnd_receives_next_context(shmnd_receives *r, shmnd_contexts_walk *at)
    void **shmnd_registry_next_context(shmnd_registry *r, shmnd_contexts_walk *at)
    void shmnd_window_set_context(shmnd_registry *r, shmnd_region *window, void *context)
    void *shmnd_window_take_context(shmnd_registry *r, shmnd_region *window)
    void shmnd_tx_run(shmnd_qp *qp)
    void shmnd_tx_run_done(shmnd_qp *qp)
    void shmnd_rx_resolve_again(shmnd_qp *qp)
    uint64_t SHMND_STALL_TIMEOUT_NS
    void shmnd_rx_run(shmnd_qp *qp)
    void shmnd_rx_run_done(shmnd_qp *qp)
    bint shmnd_qp_needs_progress(const shmnd_qp *qp)
    bint shmnd_qp_has_released(shmnd_qp *qp, uint32_t token, uint64_t *since_p, uint64_t now_ns)
    void shmnd_rx_advertise(shmnd_qp *qp, uint64_t pos)
    uint32_t shmnd_receives_outstanding(const shmnd_receives *r)

    uint32_t shmnd_peer_state(const shmnd_qp *qp)
    void shmnd_publish_state(shmnd_qp *qp, uint32_t state)
    void shmnd_qp_disconnect(shmnd_qp *qp)
    void shmnd_batch_submit(shmnd_qp *qp)
    void shmnd_qp_flush(shmnd_qp *qp)
    void shmnd_qp_check_peer(shmnd_qp *qp)
    void shmnd_qp_progress_todo(shmnd_qp *qp, uint64_t now_ns, shmnd_todo *todo)
    void shmnd_abort_attempt(shmnd_qp *qp, uint32_t state)
    bint shmnd_peer_is_quiescent(const shmnd_qp *qp)
    void shmnd_rx_unpin_all(shmnd_qp *qp)
    void shmnd_fail_unmapped(shmnd_qp *qp, bint receiving)
    word64 *shmnd_read_pos_of(shmnd_side *side)

    uint32_t shmnd_post_send(shmnd_qp *qp, void *context, const shmnd_sge *sges, uint32_t n,
                             uint32_t flags, cbool *kept_p)
    uint32_t shmnd_post_send_invalidate(shmnd_qp *qp, void *context, const shmnd_sge *sges,
                                        uint32_t n, uint32_t token, uint32_t flags)
    uint32_t shmnd_post_rdma(shmnd_qp *qp, void *context, uint8_t type, const shmnd_sge *sges,
                             uint32_t n, uint64_t address, uint32_t token, uint32_t flags,
                             cbool *kept_p)
    uint32_t shmnd_check_connected(shmnd_qp *qp)
    uint32_t shmnd_hold_entry(shmnd_qp *qp)
    void shmnd_release_entry(shmnd_qp *qp)
    uint64_t shmnd_requests_taken(const shmnd_qp *qp)
    const shmnd_grant *shmnd_peer_grant(const shmnd_qp *qp, uint32_t token)
    uint32_t shmnd_check_data(const shmnd_qp *qp, uint32_t n, uint32_t most, uint64_t total,
                              uint32_t flags)
    uint64_t shmnd_sges_length(const shmnd_sge *sges, uint32_t n)
    uint32_t shmnd_post_window(shmnd_qp *qp, void *context, uint8_t type, uint32_t token,
                               uint32_t outcome, uint32_t flags)
    uint32_t shmnd_check_receive(const shmnd_qp *qp, const shmnd_receives *r,
                                 const shmnd_sge *sges, uint32_t n)
    void shmnd_receives_add(shmnd_receives *r, void *context, const shmnd_sge *sges, uint32_t n)
    uint32_t shmnd_post_receive(shmnd_qp *qp, void *context, const shmnd_sge *sges, uint32_t n)

cdef extern from "sys/prctl.h" nogil:
    int PR_SET_PTRACER
    unsigned long PR_SET_PTRACER_ANY
    int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)

cdef extern from "sys/mman.h" nogil:
    int mincore(void *at, size_t nbytes, unsigned char *pages)

cdef extern from "sys/wait.h" nogil:
    pid_t waitpid(pid_t pid, int *status, int options)

cdef extern from "unistd.h" nogil:
    pid_t fork()
    pid_t getpid()
    void _exit(int status)

cdef extern from "errno.h" nogil:
    int errno
    int EINTR
