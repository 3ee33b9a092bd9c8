# SPDX-License-Identifier: Apache-2.0
"""Documented statuses of version 1 that nothing a program does can provoke here, and why."""

_NO_MEMORY = (
    "a shortage of memory that the library meets is INSUFFICIENT_RESOURCES; small objects are the "
    "interpreter's, which raises MemoryError itself"
)
_NO_LIMIT = "it takes a small object of this process and nothing that is limited in number"
_AT_ONCE = "it has ended when the call returns"
_NO_FAULT = "the status of a broken device; memory shared by processes has no such fault"
_NO_OVERRUN = "a completion queue cannot overrun: results always have room"
_NO_TIMEOUT = "nothing times out because a program is late; a dead peer shows as such"
_PLAIN_ADDRESS = "an address is returned as a tuple, there is no buffer to be too small"
_CHECKED_AT_ONCE = "too much data is refused by the call with BUFFER_OVERFLOW"
_MALFORMED = "a malformed request of this kind is refused by the call itself"
_SAME_VALUE = "the same value as INVALIDATION_ERROR, which has its test"
_ONLY_OUTBOUND = (
    "after a death or fault the oldest outbound request carries the status, Receives are CANCELED"
)
_DONE_WHEN_POSTED = (
    "Reads and Writes are done when they are posted; only one behind a waiting Send can be "
    "outstanding when the peer dies, and the Send then carries the status"
)

UNPROVOKED: dict[tuple[str, str, str], str] = {
    ("provider", "open_adapter", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "cancel_overlapped_requests", "UNSUCCESSFUL"): (
        "registrations that cannot be canceled are left to finish, which counts as success"
    ),
    ("adapter", "create_completion_queue", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "register_memory", "PENDING"): _AT_ONCE,
    ("adapter", "register_memory", "CANCELED"): _AT_ONCE,
    ("adapter", "deregister_memory", "PENDING"): (
        "a copy that runs into the memory at that moment is needed, which no test can arrange; "
        "version 2's tests do so inside the library"
    ),
    ("adapter", "deregister_memory", "CANCELED"): (
        "what waits for a copy to end is left to finish, not canceled"
    ),
    ("adapter", "create_memory_window", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "create_connector", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_connector", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "listen", "INVALID_PARAMETER_MIX"): (
        "port 0 without a place for the chosen one: it is always told by assigned_port"
    ),
    ("completion_queue", "notify", "FAILURE"): _NO_FAULT,
    ("completion_queue", "notify", "BUFFER_OVERFLOW"): _NO_OVERRUN,
    ("completion_queue", "notify", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("connector", "connect", "TIMEOUT"): _NO_TIMEOUT,
    ("connector", "connect", "CONNECTION_ABORTED"): "a peer that gives up refuses",
    ("connector", "connect", "INSUFFICIENT_RESOURCES"): (
        "every port of the provider's range must be taken, which the listens' test does"
    ),
    ("connector", "complete_connect", "PENDING"): _AT_ONCE,
    ("connector", "complete_connect", "CANCELED"): _AT_ONCE,
    ("connector", "complete_connect", "CONNECTION_ABORTED"): (
        "a peer that gave up shows as CONNECTION_INVALID, the other status for it"
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
        "a handle that is no longer valid is refused by the call, with INVALID_PARAMETER_2"
    ),
    ("endpoint", "invalidate_completes", "INVALID_REQUEST"): _SAME_VALUE,
    ("endpoint", "invalidate_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "read_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "read_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "read_completes", "TIMEOUT"): _DONE_WHEN_POSTED,
    ("endpoint", "write_completes", "LOCAL_LENGTH"): _CHECKED_AT_ONCE,
    ("endpoint", "write_completes", "INVALID_REQUEST"): _MALFORMED,
    ("endpoint", "write_completes", "FAILURE"): _NO_FAULT,
    ("endpoint", "write_completes", "TIMEOUT"): _DONE_WHEN_POSTED,
}
