# SPDX-License-Identifier: Apache-2.0
# The interface for other compiled modules; docs/reference/native.md says what each call promises.
# Compile what cimports it with `shmnd.get_include()` among the include directories.

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "shmnd_native.h":
    struct shmnd_native_sge:
        uint64_t address
        uint32_t length
        uint32_t token
    struct shmnd_native_result:
        PyObject *request_context
        PyObject *queue_pair_context
        uint32_t status
        uint32_t bytes_transferred
        uint32_t request_type

# Posting: the status of the call, as the method of QueuePair would raise it.
cdef uint32_t send(object queue_pair, const shmnd_native_sge *sges, uint32_t count, object context,
                   uint32_t flags) except? 0xffffffff
cdef uint32_t receive(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                      object context) except? 0xffffffff
cdef uint32_t read(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                   uint64_t remote_address, uint32_t remote_token, object context,
                   uint32_t flags) except? 0xffffffff
cdef uint32_t write(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                    uint64_t remote_address, uint32_t remote_token, object context,
                    uint32_t flags) except? 0xffffffff

# Completions: how many were taken, whose contexts are to be released.
cdef int take(object completion_queue, shmnd_native_result *out, uint32_t most) except -1
cdef void release(shmnd_native_result *results, uint32_t count) noexcept
# Make progress on all requests, and take nothing; how many completions can be taken.
cdef int drain(object completion_queue) except -1

# A peer's memory of `allocate(peers="read")`, mapped; valid while `holder[0]` is referenced.
cdef const void *view(object queue_pair, uint64_t remote_address, uint32_t remote_token,
                      uint64_t nbytes, PyObject **holder) except NULL
