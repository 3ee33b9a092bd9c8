# SPDX-License-Identifier: Apache-2.0
# Names of the C headers that the compiled classes use. Only what they touch is declared.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from posix.types cimport pid_t


cdef extern from "send/post.h" nogil:
    ctypedef uint32_t word32 "shmnd_word32"
    ctypedef uint64_t word64 "shmnd_word64"
    ctypedef bint cbool "bool"

    uint64_t SHMND_LINK_MAGIC, SHMND_COUNTERS_MAGIC, SHMND_COUNTERS_SHARED
    uint32_t SHMND_LAYOUT_VERSION, SHMND_READY_BITS, SHMND_PRIVATE_MEMORY, SHMND_MAX_SGE
    uint32_t SHMND_FIRST_MARKS_SEGMENT, SHMND_FIRST_TABLE_SEGMENT, SHMND_FIRST_BELL_SEGMENT
    uint32_t SHMND_FIRST_COUNTER_SEGMENT
    uint32_t SHMND_COUNTERS_ACTIVE, SHMND_COUNTERS_PASSIVE
    uint32_t SHMND_TOKEN_INDEX_BITS, SHMND_TOKEN_INDEX_MASK
    uint32_t SHMND_TABLE_ENTRIES, SHMND_TABLE_SEGMENTS
    uint32_t SHMND_MR_LOCAL_WRITE, SHMND_MR_REMOTE_READ, SHMND_MR_REMOTE_WRITE, SHMND_MR_SEALED
    uint32_t SHMND_MR_FRAGILE
    uint32_t SHMND_ALLOW_READ, SHMND_ALLOW_WRITE
    uint32_t SHMND_ARMED_NOT, SHMND_ARMED_ANY, SHMND_ARMED_ASKED, SHMND_OP_INLINE, SHMND_JOB_NONE
    uint32_t SHMND_SEND_FLAGS, SHMND_READ_FLAGS, SHMND_WRITE_FLAGS
    uint32_t SHMND_BIND_FLAGS, SHMND_INVALIDATE_FLAGS
    uint32_t SHMND_RECEIVE, SHMND_BIND, SHMND_INVALIDATE, SHMND_READ, SHMND_WRITE
    uint32_t SHMND_LINK_OPEN, SHMND_LINK_REJECTED, SHMND_LINK_CLOSED
    uint32_t SHMND_LINK_FAULT, SHMND_LINK_DEAD
    uint32_t SHMND_QP_IDLE, SHMND_QP_CONNECTING, SHMND_QP_ATTACHED, SHMND_QP_CONNECTED
    uint32_t SHMND_QP_DOWN, SHMND_QP_CLOSED
    uint32_t SHMND_IDLE, SHMND_NEEDS_MAP
    uint32_t SHMND_ACTIVE, SHMND_PASSIVE
    uint32_t SHMND_DIRECT_LINKS, SHMND_RING_USUAL

    struct shmnd_counters:
        word64 state
        word64 role
        word64 connection
        word64 since_ns
        word64 receive_depth
        word64 initiator_depth
        word64 peer_pid
        word64 local[3]
        word64 remote[3]

    struct shmnd_counters_head:
        uint64_t magic
        uint64_t uid[2]
        uint64_t pid
        uint64_t since_ns
        uint64_t entries
        uint64_t number
        uint64_t place
        word32 version
        word64 regions
        word64 region_bytes
        word64 sleepers
        word64 sleeping_ns
        word64 notifies

    struct shmnd_slot:
        word64 ready_pos

    struct shmnd_side:
        word32 state
        word32 opened
        word32 reaches

    struct shmnd_link_shape:
        uint32_t receives[2]
        uint32_t extents[2]
        uint32_t requests[2]
        uint32_t elements[2]
        uint32_t slots[2]

    struct shmnd_link_header:
        uint64_t magic
        uint64_t bytes
        shmnd_link_shape shape
        uint64_t connection
        word32 version

    struct shmnd_link_map_t "shmnd_link_map":
        uint64_t side_off[2]
        uint64_t ring_off[2]
        uint32_t ring_mask[2]
        uint64_t posted_off[2]
        uint32_t posted_mask[2]
        uint32_t posted_stride[2]
        uint64_t listed_off[2]
        uint32_t listed_mask[2]
        uint32_t listed_stride[2]
        uint64_t bounce_off[2]
        uint64_t committed
        uint64_t bytes

    void shmnd_link_rings(shmnd_link_shape *shape)
    shmnd_link_map_t shmnd_link_map(const shmnd_link_shape *shape)
    uint32_t shmnd_pow2_at_least(uint32_t n)

    struct shmnd_bell:
        word64 armed

    struct shmnd_marks:
        word64 *ready

    struct shmnd_grant:
        word32 token

    struct shmnd_region:
        uint64_t base
        uint64_t length
        uint64_t offset
        uint32_t segment
        uint32_t token
        uint32_t rights
        uint32_t posted
        uint64_t serial
        void *context

    struct shmnd_registry:
        shmnd_region *regions
        uint32_t count
        shmnd_grant *tables[64]
        void *unreleased

    struct shmnd_sge:
        uint64_t address
        uint32_t length
        uint32_t token

    shmnd_region *shmnd_region_lookup(const shmnd_registry *r, uint32_t token)
    shmnd_region *shmnd_sge_region(const shmnd_registry *r, const shmnd_sge *s, uint32_t rights)
    shmnd_grant *shmnd_grant_entry(const shmnd_registry *r, uint32_t token)
    void shmnd_grant_publish(shmnd_grant *g, const shmnd_region *region, uint32_t rights,
                             uint64_t connection)
    void shmnd_grant_revoke(shmnd_grant *g)

    struct shmnd_target:
        uint64_t offset
        uint32_t segment

    bint shmnd_grant_check(const shmnd_grant *g, uint32_t token, uint32_t right, uint64_t address,
                           uint64_t length, uint64_t connection, shmnd_target *target)
    bint shmnd_range_within(uint64_t address, uint64_t length, uint64_t base, uint64_t size)

    struct shmnd_spans:
        uint32_t count
        uint32_t remote
        uint64_t total

    void shmnd_spans_clear(shmnd_spans *s)
    void shmnd_spans_add(shmnd_spans *s, uint64_t at, uint64_t length)
    void shmnd_ring_doorbell(int fd)
    int shmnd_vm_copy_here(void *to, const void *from_, uint64_t length)
    void shmnd_spans_add_remote(shmnd_spans *s, uint64_t at, uint64_t length)
    struct shmnd_process:
        pid_t pid
        int pidfd

    shmnd_process shmnd_this_process()
    int shmnd_vm_copy(shmnd_process *process, const shmnd_spans *to, const shmnd_spans *from_)
    void shmnd_ring_eventfd(int fd)

    struct shmnd_cqe:
        void *context
        void *qp_context
        uint32_t status
        uint32_t bytes
        uint32_t type
        uint32_t flags

    struct shmnd_arming:
        shmnd_bell *bell
        shmnd_marks *marks
        uint64_t number
        uint32_t mode

    struct shmnd_cq:
        shmnd_cqe *ring
        uint64_t mask
        uint64_t write_pos
        uint64_t read_pos
        uint64_t limit
        uint64_t bound
        shmnd_arming arming
        shmnd_qp **links
        uint32_t link_count
        shmnd_qp **active
        uint32_t unsettled
        shmnd_qp **by_bit

    struct shmnd_mapping:
        uint8_t *base
        uint64_t bytes
        cbool read_only

    struct shmnd_peer:
        shmnd_mapping *data
        uint32_t data_count
        shmnd_mapping tables[64]
        int doorbell
        shmnd_process process
        cbool vm
        cbool dead
        uint32_t unmapped

    struct shmnd_link_end:
        shmnd_side *mine
        shmnd_side *theirs
        uint8_t *my_posted
        uint32_t my_posted_mask
        uint32_t my_posted_stride
        uint32_t my_extents
        const uint8_t *their_posted
        uint32_t their_posted_mask
        uint32_t their_posted_stride
        uint32_t their_extents
        uint8_t *my_listed
        uint32_t my_listed_mask
        uint32_t my_listed_stride
        uint8_t *their_listed
        uint32_t their_listed_mask
        uint32_t their_listed_stride
        uint32_t their_elements
        uint8_t *my_bounce
        const uint8_t *their_bounce
        const shmnd_bell *receive_bell
        const shmnd_bell *initiator_bell
        shmnd_marks *receive_marks
        shmnd_marks *initiator_marks
        uint32_t receive_bit
        uint32_t initiator_bit
        uint64_t receive_rung
        uint64_t initiator_rung
        uint64_t connection
        cbool their_srq

    struct shmnd_wqe:
        void *context
        uint64_t length

    struct shmnd_rqe:
        void *context

    struct shmnd_receives:
        shmnd_rqe *entries
        shmnd_sge *sges
        uint32_t mask
        uint32_t depth
        uint32_t stride
        uint64_t posted
        uint64_t matched
        bint starved

    struct shmnd_chunks:
        uint64_t length

    uint64_t SHMND_PIECE

    struct shmnd_job:
        uint32_t kind
        uint64_t moved, piece
        shmnd_spans to
        shmnd_spans from_ "from"
        shmnd_chunks chunks
        uint32_t result

    struct shmnd_slots_writer:
        uint8_t *ring
        const word64 *read_pos
        uint64_t mask
        uint64_t write_pos
        uint64_t room_pos

    struct shmnd_slots_reader:
        uint8_t *ring
        word64 *read_pos_shared
        uint64_t mask
        uint64_t read_pos
        uint64_t returned_pos

    struct shmnd_qp:
        void *owner
        void *context
        shmnd_registry *registry
        shmnd_cq *receive_cq
        shmnd_cq *initiator_cq
        shmnd_peer *peer
        shmnd_counters *counters
        shmnd_link_end link
        uint64_t serial
        uint32_t state
        uint32_t receive_bit
        uint32_t initiator_bit
        uint32_t max_transfer
        uint32_t inline_size
        uint32_t max_read_sge
        uint32_t outbound_read_limit
        uint32_t target_fault
        uint64_t rnr_ns
        shmnd_slots_writer out
        uint64_t messages
        uint64_t credit
        uint64_t below
        uint64_t recalled
        uint64_t viewed
        uint64_t seen_revision
        uint64_t seen_cancelled
        shmnd_wqe *wqes
        shmnd_sge *wqe_sges
        uint8_t *wqe_inline
        uint32_t wq_mask
        uint32_t wq_depth
        uint32_t wq_stride
        uint64_t wq_head
        uint64_t wq_next
        uint64_t wq_tail
        uint64_t wq_released
        shmnd_job tx_job
        cbool tx_busy
        cbool tx_started
        cbool batch
        cbool deferred
        cbool deferred_receives
        shmnd_slots_reader in_ "in"
        uint64_t taken
        shmnd_receives own
        shmnd_receives *receives
        cbool shared
        shmnd_job rx_job
        cbool rx_busy
        cbool rx_stalled
        cbool rx_fault
        cbool rx_lists
        uint64_t posted_base
        cbool going_down
        uint64_t cancelled
        uint64_t revision

    struct shmnd_todo:
        shmnd_qp *qp
        uint32_t what
        cbool receiving

    uint64_t shmnd_now_ns()
    struct shmnd_pace:
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
    cbool shmnd_marks_poll_requested(const shmnd_marks *marks)
    void shmnd_marks_accept_request(shmnd_marks *marks)

    uint64_t shmnd_cq_count(const shmnd_cq *cq)
    uint32_t shmnd_cq_pop(shmnd_cq *cq, shmnd_cqe *out, uint32_t max)
    uint32_t shmnd_cq_poll(shmnd_cq *cq, shmnd_cqe *out, uint32_t max, shmnd_todo *todo)
    void shmnd_cq_drain_links(shmnd_cq *cq, shmnd_todo *todo)
    bint shmnd_cq_has_unfinished_copy(const shmnd_cq *cq)
    uint64_t shmnd_cq_next_poll_ns(const shmnd_cq *cq, uint64_t soon_ns)
    bint shmnd_cq_trigger(shmnd_cq *cq, uint32_t mode)
    void shmnd_bounce_release(shmnd_qp *qp)
    void shmnd_cq_add_qp(shmnd_cq *cq, shmnd_qp *qp)
    void shmnd_cq_remove_qp(shmnd_cq *cq, shmnd_qp *qp)
    void shmnd_qp_activate(shmnd_qp *qp)

    uint32_t shmnd_tx_advance(shmnd_qp *qp)
    void *shmnd_pop_unreleased_context(shmnd_registry *registry)
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
