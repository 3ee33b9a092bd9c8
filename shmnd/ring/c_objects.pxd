# SPDX-License-Identifier: Apache-2.0
# Names of the C headers: the objects of a process. `c` includes them.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from shmnd.ring.c_shared cimport *


cdef extern from "send/post.h" nogil:
    struct shmnd_cqe:
        void *context
        void *qp_context
        uint32_t status
        uint32_t bytes
        uint32_t type
        uint32_t flags

    uint32_t SHMND_CQE_SOLICITED
    uint32_t SHMND_CQE_CAUSE_SHIFT
    uint32_t SHMND_CAUSE_FLUSH
    uint32_t SHMND_CAUSE_PEER
    uint32_t SHMND_CAUSE_DEATH
    uint32_t SHMND_CAUSE_STALL
    uint32_t SHMND_CAUSE_NO_RECEIVE

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
        uint32_t receiving_count
        shmnd_qp **active
        uint32_t unsettled
        shmnd_qp **by_bit

    struct shmnd_mapping:
        uint8_t *base
        uint64_t bytes
        uint32_t segment
        cbool read_only

    struct shmnd_peer:
        shmnd_mapping *data
        uint32_t data_mask
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

    struct shmnd_seen_receives:
        uint64_t credit
        uint64_t below
        uint64_t entries
        uint64_t revision
        uint64_t cancelled

    struct shmnd_requests:
        shmnd_wqe *entries
        shmnd_sge *sges
        uint8_t *inlined
        uint32_t mask
        uint32_t depth
        uint32_t stride
        uint64_t oldest
        uint64_t next
        uint64_t end
        uint64_t released

    struct shmnd_sending:
        shmnd_job job
        cbool busy
        cbool started

    struct shmnd_receiving:
        shmnd_job job
        cbool busy
        cbool stalled
        cbool fault
        cbool lists

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
        uint64_t recalled
        shmnd_seen_receives seen
        shmnd_requests wq
        shmnd_sending tx
        cbool batch
        cbool deferred
        cbool deferred_receives
        shmnd_slots_reader in_ "in"
        uint64_t taken
        shmnd_receives own
        shmnd_receives *receives
        cbool shared
        uint64_t posted_base
        uint64_t cancelled
        uint64_t revision
        shmnd_receiving rx
        cbool going_down

    struct shmnd_todo:
        shmnd_qp *qp
        uint32_t what
        cbool receiving
