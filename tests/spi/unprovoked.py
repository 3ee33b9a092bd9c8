# SPDX-License-Identifier: Apache-2.0
"""Documented statuses that no program can provoke on this provider, and why."""

_NO_MEMORY = (
    "the library reports a shortage of memory as INSUFFICIENT_RESOURCES; for small objects the "
    "interpreter raises MemoryError itself"
)
_NO_LIMIT = "the call uses a small object of this process and no limited resource"
_NO_POINTER = "an out-parameter cannot be a bad pointer: results are return values"
_AFFINITY = "the actual affinity is always reported, as the documents prefer"
_NO_OVERRUN = "a completion queue cannot overrun: it always has room for each result"
_NO_FAULT = "it is the status of a broken device, and shared memory has no such fault"
_CHECKED_AT_ONCE = "the call rejects too much data with BUFFER_OVERFLOW ([reading 23](readings.md))"
_REMOTE_FAULT = "a fault at the target is reported as ACCESS_VIOLATION ([reading 12](readings.md))"
_MALFORMED = "the call itself rejects a malformed request of this kind"
_ONLY_INITIATOR = (
    "after a death or fault the oldest initiator request has the status, and Receives are CANCELED"
)
_NO_TIMEOUT = "no operation times out because a program is late ([reading 27](readings.md))"
_PLAIN_ADDRESS = "an address is returned as a tuple, so no buffer can be too small"
_SYNCHRONOUS = "Disconnect has completed when it returns, so no release can happen in between"

UNPROVOKED: dict[tuple[str, str, str], str] = {
    ("provider", "resolve_address", "NO_MEMORY"): _NO_MEMORY,
    ("provider", "open_adapter", "NO_MEMORY"): _NO_MEMORY,
    ("overlapped", "cancel_overlapped_requests", "UNSUCCESSFUL"): (
        "every pending operation of this provider can be canceled"
    ),
    ("adapter", "create_overlapped_file", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_completion_queue", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_memory_region", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_memory_region", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "create_memory_window", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "create_shared_receive_queue", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_shared_receive_queue", "NOT_SUPPORTED"): (
        "shared receive queues are always supported"
    ),
    ("adapter", "create_queue_pair_with_srq", "NOT_SUPPORTED"): (
        "shared receive queues are always supported"
    ),
    ("adapter", "create_connector", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_connector", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("adapter", "create_listener", "NO_MEMORY"): _NO_MEMORY,
    ("adapter", "create_listener", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("completion_queue", "get_notify_affinity", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("completion_queue", "get_notify_affinity", "INVALID_PARAMETER"): _NO_POINTER,
    ("completion_queue", "get_notify_affinity", "NOT_SUPPORTED"): _AFFINITY,
    ("completion_queue", "resize", "NOT_SUPPORTED"): "the adapter has CQ_RESIZE_SUPPORTED",
    ("completion_queue", "notify", "INTERNAL_ERROR"): _NO_FAULT,
    ("completion_queue", "notify", "BUFFER_OVERFLOW"): _NO_OVERRUN,
    ("completion_queue", "notify", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("shared_receive_queue", "get_notify_affinity", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("shared_receive_queue", "get_notify_affinity", "INVALID_PARAMETER"): _NO_POINTER,
    ("shared_receive_queue", "get_notify_affinity", "NOT_SUPPORTED"): _AFFINITY,
    ("shared_receive_queue", "notify", "INTERNAL_ERROR"): _NO_FAULT,
    ("shared_receive_queue", "notify", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("queue_pair", "read", "REMOTE_ERROR"): _REMOTE_FAULT,
    ("queue_pair", "send_completes", "DATA_OVERRUN"): _CHECKED_AT_ONCE,
    ("queue_pair", "send_completes", "INVALID_DEVICE_REQUEST"): _MALFORMED,
    ("queue_pair", "send_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "receive_completes", "INVALID_DEVICE_REQUEST"): _MALFORMED,
    ("queue_pair", "receive_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "receive_completes", "IO_TIMEOUT"): _ONLY_INITIATOR,
    ("queue_pair", "receive_completes", "REMOTE_ERROR"): _ONLY_INITIATOR,
    ("queue_pair", "bind_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "invalidate_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "read_completes", "DATA_OVERRUN"): _CHECKED_AT_ONCE,
    ("queue_pair", "read_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "read_completes", "REMOTE_ERROR"): _REMOTE_FAULT,
    ("queue_pair", "write_completes", "DATA_OVERRUN"): _CHECKED_AT_ONCE,
    ("queue_pair", "write_completes", "INVALID_DEVICE_REQUEST"): _MALFORMED,
    ("queue_pair", "write_completes", "INTERNAL_ERROR"): _NO_FAULT,
    ("queue_pair", "write_completes", "REMOTE_ERROR"): _REMOTE_FAULT,
    ("connector", "bind", "CANCELED"): "Bind names no queue pair and completes within the call",
    ("connector", "bind", "ADDRESS_ALREADY_EXISTS"): (
        "a 4-tuple needs both addresses, and while one end of a connection holds its port, "
        "binding to it is SHARING_VIOLATION"
    ),
    ("connector", "connect", "IO_TIMEOUT"): _NO_TIMEOUT,
    ("connector", "complete_connect", "IO_TIMEOUT"): _NO_TIMEOUT,
    ("connector", "accept", "IO_TIMEOUT"): _NO_TIMEOUT,
    ("connector", "reject", "PENDING"): "Reject is synchronous ([reading 24](readings.md))",
    ("connector", "get_read_limits", "UNSUCCESSFUL"): _NO_FAULT,
    ("connector", "get_private_data", "UNSUCCESSFUL"): _NO_FAULT,
    ("connector", "get_private_data_into", "UNSUCCESSFUL"): _NO_FAULT,
    ("connector", "get_local_address", "BUFFER_OVERFLOW"): _PLAIN_ADDRESS,
    ("connector", "get_peer_address", "BUFFER_OVERFLOW"): _PLAIN_ADDRESS,
    ("connector", "disconnect", "CANCELED"): _SYNCHRONOUS,
    ("listener", "bind", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("listener", "listen", "INSUFFICIENT_RESOURCES"): _NO_LIMIT,
    ("listener", "get_local_address", "BUFFER_OVERFLOW"): _PLAIN_ADDRESS,
}
