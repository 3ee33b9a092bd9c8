# SPDX-License-Identifier: Apache-2.0
# Names of the C headers: shared memory, and the memory that it refers to. `c` includes them.

from libc.stdint cimport uint32_t, uint64_t
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
    uint32_t SHMND_ARMED_NOT, SHMND_ARMED_ANY, SHMND_ARMED_SOLICITED, SHMND_ARMED_ASKED
    uint32_t SHMND_OP_INLINE, SHMND_JOB_NONE
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
        word32 rings

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
        uint32_t window_contexts
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
    void shmnd_copy_bytes(void *to, const void *from_, size_t n)
    int shmnd_vm_copy_here(void *to, const void *from_, uint64_t length)
    void shmnd_spans_add_remote(shmnd_spans *s, uint64_t at, uint64_t length)
    struct shmnd_process:
        pid_t pid
        int pidfd

    shmnd_process shmnd_this_process()
    int shmnd_vm_copy(shmnd_process *process, const shmnd_spans *to, const shmnd_spans *from_)
    void shmnd_ring_eventfd(int fd)
