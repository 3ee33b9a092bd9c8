# SPDX-License-Identifier: Apache-2.0
"""Every method of the interface with the statuses that its documents list for it.

`CALLS` holds what the call itself gives, at once or through its Overlapped; `COMPLETIONS` what a
completion queue reports later. A test shows that each has a test of its own, found by its name:
`test_<method>_<status>_<when>` for calls, `test_<method>_completes_<status>_<when>` for
completions, in the file of the interface. Statuses that nothing can provoke here stand with their
reason in `unprovoked.py`.
"""

CALLS: dict[str, dict[str, str]] = {
    "provider": {
        "query_address_list": "SUCCESS",
        "query_address_list_into": "SUCCESS BUFFER_OVERFLOW",
        "resolve_address": "SUCCESS NO_MEMORY INVALID_ADDRESS",
        "open_adapter": "SUCCESS NO_MEMORY INVALID_PARAMETER",
    },
    "overlapped": {
        "cancel_overlapped_requests": "SUCCESS UNSUCCESSFUL",
        "get_overlapped_result": "SUCCESS PENDING CANCELED DEVICE_REMOVED",
    },
    "adapter": {
        "create_overlapped_file": "SUCCESS NO_MEMORY DEVICE_REMOVED",
        "query": "SUCCESS",
        "query_into": "SUCCESS BUFFER_OVERFLOW INVALID_PARAMETER_1",
        "query_address_list": "SUCCESS",
        "query_address_list_into": "SUCCESS BUFFER_OVERFLOW",
        "create_completion_queue": (
            "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_PARAMETER_3 INVALID_HANDLE "
            "DEVICE_REMOVED"
        ),
        "create_memory_region": (
            "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_HANDLE DEVICE_REMOVED"
        ),
        "create_memory_window": "SUCCESS INSUFFICIENT_RESOURCES DEVICE_REMOVED",
        "create_shared_receive_queue": (
            "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_PARAMETER_3 INVALID_PARAMETER_4 "
            "INVALID_HANDLE NOT_SUPPORTED DEVICE_REMOVED"
        ),
        "create_queue_pair": (
            "SUCCESS INVALID_PARAMETER_2 INVALID_PARAMETER_3 INVALID_PARAMETER_5 "
            "INVALID_PARAMETER_6 INVALID_PARAMETER_7 INVALID_PARAMETER_8 INVALID_PARAMETER_9 "
            "INSUFFICIENT_RESOURCES DEVICE_REMOVED"
        ),
        "create_queue_pair_with_srq": (
            "SUCCESS NOT_SUPPORTED INVALID_PARAMETER_2 INVALID_PARAMETER_3 INVALID_PARAMETER_4 "
            "INVALID_PARAMETER_6 INVALID_PARAMETER_7 INVALID_PARAMETER_8 INSUFFICIENT_RESOURCES "
            "DEVICE_REMOVED"
        ),
        "create_connector": (
            "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_HANDLE DEVICE_REMOVED"
        ),
        "create_listener": "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_HANDLE DEVICE_REMOVED",
        "allocate": "SUCCESS INSUFFICIENT_RESOURCES DEVICE_REMOVED",
    },
    "completion_queue": {
        "get_notify_affinity": (
            "SUCCESS INSUFFICIENT_RESOURCES INVALID_PARAMETER DEVICE_REMOVED NOT_SUPPORTED"
        ),
        "resize": (
            "SUCCESS INSUFFICIENT_RESOURCES INVALID_PARAMETER NOT_SUPPORTED BUFFER_OVERFLOW "
            "DEVICE_REMOVED"
        ),
        "notify": (
            "SUCCESS PENDING INTERNAL_ERROR BUFFER_OVERFLOW CANCELED INSUFFICIENT_RESOURCES "
            "DEVICE_REMOVED INVALID_PARAMETER_1"
        ),
        "get_results": "SUCCESS",
    },
    "shared_receive_queue": {
        "get_notify_affinity": (
            "SUCCESS INSUFFICIENT_RESOURCES INVALID_PARAMETER DEVICE_REMOVED NOT_SUPPORTED"
        ),
        "modify": "SUCCESS INSUFFICIENT_RESOURCES INVALID_PARAMETER BUFFER_OVERFLOW DEVICE_REMOVED",
        "notify": "SUCCESS PENDING INTERNAL_ERROR CANCELED INSUFFICIENT_RESOURCES DEVICE_REMOVED",
        "receive": "SUCCESS BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN",
    },
    "memory_region": {
        "register": (
            "SUCCESS PENDING INSUFFICIENT_RESOURCES ACCESS_VIOLATION DEVICE_REMOVED "
            "INVALID_PARAMETER INVALID_PARAMETER_3 INVALID_BUFFER_SIZE INVALID_DEVICE_STATE"
        ),
        "deregister": "SUCCESS PENDING DEVICE_BUSY INVALID_DEVICE_STATE",
        "local_token": "SUCCESS",
        "remote_token": "SUCCESS",
    },
    "memory_window": {
        "remote_token": "SUCCESS",
    },
    "queue_pair": {
        "flush": "SUCCESS",
        "send": (
            "SUCCESS CONNECTION_INVALID BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN "
            "INVALID_PARAMETER_4"
        ),
        "receive": "SUCCESS BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN INVALID_DEVICE_REQUEST",
        "bind": ("SUCCESS CONNECTION_INVALID NO_MORE_ENTRIES ACCESS_VIOLATION INVALID_PARAMETER_6"),
        "invalidate": "SUCCESS CONNECTION_INVALID NO_MORE_ENTRIES INVALID_PARAMETER_3",
        "read": (
            "SUCCESS CONNECTION_INVALID BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN "
            "INVALID_PARAMETER_6 REMOTE_ERROR"
        ),
        "write": (
            "SUCCESS CONNECTION_INVALID BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN "
            "INVALID_PARAMETER_6"
        ),
    },
    "connector": {
        "bind": (
            "SUCCESS CANCELED DEVICE_REMOVED INVALID_ADDRESS SHARING_VIOLATION "
            "TOO_MANY_ADDRESSES ADDRESS_ALREADY_EXISTS ADDRESS_ALREADY_ASSOCIATED"
        ),
        "connect": (
            "SUCCESS PENDING INVALID_BUFFER_SIZE CANCELED DEVICE_REMOVED CONNECTION_ACTIVE "
            "NETWORK_UNREACHABLE HOST_UNREACHABLE CONNECTION_REFUSED IO_TIMEOUT "
            "ACCESS_VIOLATION BAD_NETWORK_NAME"
        ),
        "complete_connect": "SUCCESS PENDING CONNECTION_INVALID DEVICE_REMOVED IO_TIMEOUT",
        "accept": (
            "SUCCESS PENDING CANCELED DEVICE_REMOVED CONNECTION_ACTIVE CONNECTION_ABORTED "
            "CONNECTION_REFUSED ACCESS_VIOLATION INVALID_BUFFER_SIZE IO_TIMEOUT"
        ),
        "reject": (
            "SUCCESS PENDING DEVICE_REMOVED CONNECTION_ABORTED ACCESS_VIOLATION INVALID_BUFFER_SIZE"
        ),
        "get_read_limits": "SUCCESS CONNECTION_INVALID UNSUCCESSFUL",
        "get_private_data": "SUCCESS CONNECTION_INVALID UNSUCCESSFUL",
        "get_private_data_into": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID UNSUCCESSFUL",
        "get_local_address": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "get_peer_address": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "notify_disconnect": "SUCCESS PENDING CANCELED CONNECTION_INVALID",
        "disconnect": "SUCCESS PENDING CANCELED DEVICE_REMOVED CONNECTION_INVALID",
    },
    "listener": {
        "bind": (
            "SUCCESS SHARING_VIOLATION INSUFFICIENT_RESOURCES TOO_MANY_ADDRESSES "
            "ADDRESS_ALREADY_ASSOCIATED INVALID_ADDRESS"
        ),
        "listen": "SUCCESS INSUFFICIENT_RESOURCES INVALID_DEVICE_STATE",
        "get_local_address": "SUCCESS BUFFER_OVERFLOW INVALID_DEVICE_STATE",
        "get_connection_request": (
            "SUCCESS PENDING CANCELED DEVICE_REMOVED INVALID_PARAMETER_1 INVALID_DEVICE_STATE"
        ),
    },
}

_TRANSFER = (
    "SUCCESS DATA_OVERRUN ACCESS_VIOLATION CANCELED INVALID_DEVICE_REQUEST INTERNAL_ERROR "
    "IO_TIMEOUT REMOTE_ERROR"
)
_WINDOW = "SUCCESS CANCELED INVALID_DEVICE_REQUEST INTERNAL_ERROR"

COMPLETIONS: dict[str, dict[str, str]] = {
    "queue_pair": {
        "send": _TRANSFER,
        "receive": (
            "SUCCESS BUFFER_OVERFLOW ACCESS_VIOLATION CANCELED INVALID_DEVICE_REQUEST "
            "INTERNAL_ERROR IO_TIMEOUT REMOTE_ERROR"
        ),
        "bind": _WINDOW,
        "invalidate": _WINDOW,
        "read": _TRANSFER,
        "write": _TRANSFER,
    },
    "shared_receive_queue": {
        "receive": "SUCCESS BUFFER_OVERFLOW ACCESS_VIOLATION",
    },
}
