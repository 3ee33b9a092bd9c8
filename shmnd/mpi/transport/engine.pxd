# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "stdbool.h":
    ctypedef unsigned char flag "bool"

cdef extern from "sys/prctl.h" nogil:
    int PR_SET_PTRACER
    int prctl(int option, unsigned long arg, unsigned long, unsigned long, unsigned long)

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "wire/map_sparse.h" nogil:
    void *shmnd_map_sparse(size_t nbytes, int protection, int fd)

cdef extern from "transport/collectives/schedule.h":
    # Called with the interpreter's lock held, as every function of the transport that reduces.
    ctypedef int (*shmpi_reduce)(
        void *arg, const void *left, const void *right, void *to, uint64_t items
    ) noexcept

cdef extern from "transport/collectives/shapes.h" nogil:
    enum:
        SHMPI_ANY
        SHMPI_OTHERS_END
        SHMPI_POLLS
        SHMPI_SCHEDULE
        SHMPI_OK
        SHMPI_TRUNCATED
        SHMPI_NO_MEMORY
        SHMPI_FAILED_PEER
        SHMPI_BROKEN
        SHMPI_CALLBACK
        SHMPI_REVOKED
        SHMPI_SPOILED

    struct shmpi_job:
        uint32_t size

    struct shmpi_sched
    struct shmpi_awaited:
        uint32_t asleep

    struct shmpi_arena:
        char *base
        uint64_t bytes

    struct shmpi_req:
        flag receives, done, posted, cancelled, sync, detached, owns_buffer, grows
        flag borrows, borrowed
        int fault, peer, tag, source, source_tag
        uint32_t context
        char *buffer
        uint64_t bytes, got, refused
        shmpi_req *next
        void *holder

    struct shmpi_call:
        uint32_t context
        int root
        uint64_t number

    struct shmpi_came:
        int tag
        uint64_t bytes

    struct shmpi_message:
        int source, tag
        uint64_t bytes
        uint32_t context

    struct shmpi_engine:
        shmpi_job *job
        int rank, size
        uint64_t eager, completions
        shmpi_req *ended, *copying, *pushing
        uint32_t active_sends, unsent_peers, awake_polls, yields, failures, revocations
        uint32_t disputes
        flag crowded
        shmpi_arena arena

    flag shmpi_receive_now(shmpi_engine *e, int source, uint32_t context, int tag, char *buffer,
                           uint64_t n, shmpi_came *came)

    struct shmpi_group:
        int size, rank
        const int *ranks

    struct shmpi_unequal:
        int peer
        flag in_all
        uint64_t came, expected

    struct shmpi_sched:
        uint32_t context, count
        uint64_t whole
        shmpi_unequal unequal
        int tag, fault
        flag started, done, no_memory, stopped, copied, pairwise
        shmpi_reduce reduce
        bint to_any_place
        void *arg

    shmpi_sched *shmpi_sched_new()
    void shmpi_sched_free(shmpi_sched *s)
    char *shmpi_sched_block(shmpi_sched *s, uint64_t bytes)
    void shmpi_sched_send(shmpi_sched *s, int peer, const void *source, uint64_t n)
    void shmpi_sched_receive(shmpi_sched *s, int peer, void *target, uint64_t n)
    void shmpi_sched_copy(shmpi_sched *s, const void *source, void *target, uint64_t n)
    void shmpi_sched_round(shmpi_sched *s)
    void shmpi_build_barrier(shmpi_sched *s, const shmpi_group *g)
    void shmpi_build_bcast(shmpi_sched *s, const shmpi_group *g, int root, char *data, uint64_t n)
    void shmpi_build_reduce(shmpi_sched *s, const shmpi_group *g, int root, const char *source,
                            char *target, uint64_t items, uint64_t n)
    void shmpi_build_allreduce(shmpi_sched *s, const shmpi_group *g, const char *source,
                               char *target, uint64_t items, uint64_t n)
    void shmpi_build_reduce_slices(shmpi_sched *s, const shmpi_group *g, const char *source,
                                   char *target, const uint64_t *first, uint64_t extent)
    void shmpi_build_scan(shmpi_sched *s, const shmpi_group *g, const char *source, char *target,
                          uint64_t items, uint64_t n, flag exclusive)


# What touches the engine is one module's code: others call it through these.
cdef shmpi_engine *E
# Why calls that communicate are refused: this process was forked from a rank of a job of several
# processes, and is not one of them; or MPI is finalized. 0: they are not.
cdef enum:
    FORKED = 1
    FINALIZED = 2
cdef int shut

cdef int refuse(str call) except -1
cdef void close() noexcept

cdef void *arena() noexcept
cdef shmpi_req *req_new() except NULL
cdef void req_free(shmpi_req *r) noexcept
cdef int return_borrowed(shmpi_req *r) except -1
cdef int start_send(shmpi_req *r) except -1
cdef bint send_now(int peer, uint32_t context, int tag, const void *data, uint64_t n) noexcept
cdef int start_receive(shmpi_req *r) except -1
cdef void cancel(shmpi_req *r) noexcept
cdef void let_go(shmpi_req *r) noexcept
cdef void hold(shmpi_req *r, object holder) noexcept
cpdef int notify_holders() except -1
cdef shmpi_message *probe(uint32_t context, int source, int tag) noexcept
cdef void claim(shmpi_message *m) noexcept
cdef void deliver(shmpi_message *m, shmpi_req *r) noexcept
cdef void sched_start(shmpi_sched *s) noexcept
cdef int turn(unsigned int *idle) except -1
cdef int turn_for(unsigned int *idle, const shmpi_awaited *a) except -1
cpdef uint32_t progress() noexcept

# A wait of the program, which publishes what for when its polls were in vain for a while.
cdef struct Wait:
    unsigned int idle  # turns in vain in a row
    bint noted

cdef bint wait_turn(Wait *wait) except -1
cdef bint wait_turn_for(Wait *wait, const shmpi_awaited *a) except -1
cdef void wait_end(Wait *wait) noexcept
cdef int poll() except -1
cdef bint spin(shmpi_req *r) noexcept
cdef uint32_t new_contexts(uint32_t count) noexcept
cdef uint32_t death_of(int rank) noexcept
cdef bint is_revoked(uint32_t context) noexcept
cdef int revoke(uint32_t context, tuple ranks) except -1
cdef void stop_sched(shmpi_sched *s, int fault) noexcept
cdef void stop_req(shmpi_req *r, int fault) noexcept
cdef int note(
    uint32_t count, int peer, int tag, str call, str comm, int64_t context=*) except -1
cdef int sched_peer(shmpi_sched *s) noexcept
cdef void note_end() noexcept
cdef void see_failures() noexcept
