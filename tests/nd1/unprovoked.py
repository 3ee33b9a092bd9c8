# SPDX-License-Identifier: Apache-2.0
"""Documented statuses of version 1 that no program can provoke here, and why."""

_NO_MEMORY = (
    "the library reports a shortage of memory as INSUFFICIENT_RESOURCES; for small objects the "
    "interpreter raises MemoryError itself"
)
_NO_LIMIT = "the call uses a small object of this process and no limited resource"
_AT_ONCE = "the operation has completed when the call returns"
_NO_FAULT = "it is the status of a broken device, and shared memory has no such fault"
_NO_OVERRUN = "a completion queue cannot overrun: it always has room for each result"
_NO_TIMEOUT = "no operation times out because a program is late; a dead peer has its own status"
_PLAIN_ADDRESS = "an address is returned as a tuple, so no buffer can be too small"
_CHECKED_AT_ONCE = "the call rejects too much data with BUFFER_OVERFLOW"
_MALFORMED = "the call itself rejects a malformed request of this kind"
_SAME_VALUE = "it is the same value as INVALIDATION_ERROR, which has its test"
_ONLY_OUTBOUND = (
    "after a death or fault the oldest outbound request has the status, and Receives are CANCELED"
)
_LONG_COPIES_ALONE = (
    "only a copy in several pieces can be the oldest request when the peer dies; the tests "
    "of version 2 kill the peer's process, with IO_TIMEOUT as the status"
)

UNPROVOKED: dict[tuple[str, str, str], str] = {
    ("provider", "open_adapter", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "cancel_overlapped_requests", "UNSUCCESSFUL"): (
        "registrations that cannot be canceled complete normally, which counts as success"
    ),
    ("adapter", "create_completion_queue", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "register_memory", "PENDING"): _AT_ONCE,
    ("adapter", "register_memory", "CANCELED"): _AT_ONCE,
    ("adapter", "deregister_memory", "PENDING"): (
        "it needs a concurrent copy into the memory, which no test can arrange; the tests of "
        "version 2 do so inside the library"
    ),
    ("adapter", "deregister_memory", "CANCELED"): (
        "an operation that waits for a copy completes and is not canceled"
    ),
    ("adapter", "create_memory_window", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "create_connector", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_connector", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "listen", "INVALID_PARAMETER_MIX"): (
        "port 0 without a place for the chosen port: assigned_port always returns it"
    ),
    ("completion_queue", "notify", "FAILURE"): _NO_FAULT,
    ("completion_queue", "notify", "BUFFER_OVERFLOW"): _NO_OVERRUN,
    ("completion_queue", "notify", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("connector", "connect", "TIMEOUT"): _NO_TIMEOUT,
    ("connector", "connect", "CONNECTION_ABORTED"): "a peer that abandons the attempt refuses it",
    ("connector", "connect", "INSUFFICIENT_RESOURCES"): (
        "every port of the range must be in use, which the test of listen covers"
    ),
    ("connector", "complete_connect", "PENDING"): _AT_ONCE,
    ("connector", "complete_connect", "CANCELED"): _AT_ONCE,
    ("connector", "complete_connect", "CONNECTION_ABORTED"): (
        "a peer that abandoned the attempt is reported as CONNECTION_INVALID"
    ),
    ("connector", "accept", "TIMEOUT"): _NO_TIMEOUT,
    ("connector", "get_local_address", "BUFFER_OVERFLOW"): _PLAIN_ADDRESS,
    ("connector", "get_peer_address", "BUFFER_OVERFLOW"): _PLAIN_ADDRESS,
    ("connector", "disconnect", "PENDING"): _AT_ONCE,
    ("connector", "disconnect", "CANCELED"): _AT_ONCE,
    ("endpoint", "send_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "send_completes", "INVALID_REQUEST"): _MALFORMED,
    ("endpoint", "send_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "send_and_invalidate_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "send_and_invalidate_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "send_and_invalidate_completes", "INVALID_REQUEST"): _SAME_VALUE,
    ("endpoint", "receive_completes", "INVALID_REQUEST"): _SAME_VALUE,
    ("endpoint", "receive_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "receive_completes", "TIMEOUT"): _ONLY_OUTBOUND,
    ("endpoint", "receive_completes", "REMOTE_ERROR"): _ONLY_OUTBOUND,
    ("endpoint", "bind_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "bind_completes", "ACCESS_VIOLATION"): (
        "the call rejects a handle that is no longer valid with INVALID_PARAMETER_2"
    ),
    ("endpoint", "invalidate_completes", "INVALID_REQUEST"): _SAME_VALUE,
    ("endpoint", "invalidate_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "read_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "read_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "read_completes", "TIMEOUT"): _LONG_COPIES_ALONE,
    ("endpoint", "write_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "write_completes", "INVALID_REQUEST"): _MALFORMED,
    ("endpoint", "write_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "write_completes", "TIMEOUT"): _LONG_COPIES_ALONE,
}
