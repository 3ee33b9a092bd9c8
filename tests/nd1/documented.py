# SPDX-License-Identifier: Apache-2.0
"""Every method of version 1 with the statuses that its documents list for it.

As for version 2: each has a test of its own, found by its name, in the file of the interface, or a
reason in `unprovoked.py`.
"""

_DATA = "SUCCESS CONNECTION_INVALID BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN"

CALLS: dict[str, dict[str, str]] = {
    "provider": {
        "query_address_list": "SUCCESS",
        "query_address_list_into": "SUCCESS BUFFER_OVERFLOW",
        "open_adapter": "SUCCESS NO_MEMORY INVALID_ADDRESS",
    },
    "adapter": {
        "cancel_overlapped_requests": "SUCCESS UNSUCCESSFUL",
        "get_overlapped_result": "SUCCESS PENDING CANCELED DEVICE_REMOVED",
        "get_file_handle": "SUCCESS",
        "query": "SUCCESS NOT_SUPPORTED",
        "query_into": "SUCCESS BUFFER_OVERFLOW NOT_SUPPORTED",
        "query_address_list": "SUCCESS",
        "control": "NOT_SUPPORTED",
        "create_completion_queue": (
            "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES INVALID_PARAMETER DEVICE_REMOVED"
        ),
        "register_memory": (
            "SUCCESS PENDING INSUFFICIENT_RESOURCES ACCESS_VIOLATION INVALID_PARAMETER "
            "CANCELED DEVICE_REMOVED"
        ),
        "deregister_memory": ("SUCCESS PENDING INVALID_HANDLE DEVICE_BUSY CANCELED DEVICE_REMOVED"),
        "create_memory_window": "SUCCESS INSUFFICIENT_RESOURCES DEVICE_REMOVED",
        "create_connector": "SUCCESS NO_MEMORY INSUFFICIENT_RESOURCES DEVICE_REMOVED",
        "listen": (
            "SUCCESS INVALID_PARAMETER_2 ADDRESS_ALREADY_EXISTS INVALID_PARAMETER_MIX "
            "INSUFFICIENT_RESOURCES DEVICE_REMOVED"
        ),
        "allocate": "SUCCESS INSUFFICIENT_RESOURCES DEVICE_REMOVED",
    },
    "completion_queue": {
        "resize": (
            "SUCCESS INSUFFICIENT_RESOURCES INVALID_PARAMETER BUFFER_OVERFLOW DEVICE_REMOVED"
        ),
        "notify": (
            "SUCCESS PENDING FAILURE BUFFER_OVERFLOW CANCELED INSUFFICIENT_RESOURCES "
            "DEVICE_REMOVED INVALID_PARAMETER_1"
        ),
        "get_results": "SUCCESS",
    },
    "connector": {
        "create_endpoint": (
            "SUCCESS INVALID_PARAMETER_1 INVALID_PARAMETER_2 INVALID_PARAMETER_3 "
            "INVALID_PARAMETER_4 INVALID_PARAMETER_5 INVALID_PARAMETER_6 INVALID_PARAMETER_7 "
            "INVALID_PARAMETER_8 INSUFFICIENT_RESOURCES DEVICE_REMOVED NOT_SUPPORTED"
        ),
        "connect": (
            "SUCCESS PENDING INVALID_PARAMETER_1 INVALID_ADDRESS INVALID_PARAMETER_4 "
            "BUFFER_OVERFLOW ACCESS_VIOLATION CONNECTION_ACTIVE ADDRESS_ALREADY_EXISTS "
            "INSUFFICIENT_RESOURCES DEVICE_REMOVED CONNECTION_REFUSED TIMEOUT HOST_UNREACHABLE "
            "CANCELED CONNECTION_ABORTED"
        ),
        "complete_connect": (
            "SUCCESS PENDING CONNECTION_INVALID CONNECTION_ABORTED CANCELED DEVICE_REMOVED"
        ),
        "accept": (
            "SUCCESS PENDING CANCELED DEVICE_REMOVED CONNECTION_ACTIVE CONNECTION_ABORTED "
            "ACCESS_VIOLATION BUFFER_OVERFLOW INVALID_PARAMETER_1 CONNECTION_INVALID TIMEOUT"
        ),
        "reject": (
            "SUCCESS BUFFER_OVERFLOW ACCESS_VIOLATION CONNECTION_ABORTED CONNECTION_INVALID "
            "DEVICE_REMOVED"
        ),
        "get_connection_data": "SUCCESS CONNECTION_INVALID CONNECTION_ABORTED",
        "get_connection_data_into": (
            "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID CONNECTION_ABORTED"
        ),
        "get_local_address": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "get_local_address_into": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "get_peer_address": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "get_peer_address_into": "SUCCESS BUFFER_OVERFLOW CONNECTION_INVALID",
        "notify_disconnect": "SUCCESS PENDING CANCELED CONNECTION_INVALID",
        "disconnect": "SUCCESS PENDING CANCELED DEVICE_REMOVED CONNECTION_INVALID",
    },
    "listen": {
        "get_connection_request": "SUCCESS PENDING CANCELED DEVICE_REMOVED INVALID_PARAMETER_1",
    },
    "endpoint": {
        "flush": "SUCCESS",
        "start_request_batch": "SUCCESS",
        "submit_request_batch": "SUCCESS",
        "send": f"{_DATA} INVALID_PARAMETER_4",
        "send_and_invalidate": f"{_DATA} INVALID_PARAMETER_5",
        "receive": "SUCCESS BUFFER_OVERFLOW NO_MORE_ENTRIES DATA_OVERRUN",
        "bind": (
            "SUCCESS CONNECTION_INVALID NO_MORE_ENTRIES INVALID_PARAMETER_2 INVALID_PARAMETER_3 "
            "INVALID_PARAMETER_4 INVALID_PARAMETER_5 INVALID_PARAMETER_6"
        ),
        "invalidate": (
            "SUCCESS CONNECTION_INVALID NO_MORE_ENTRIES INVALID_PARAMETER_2 INVALID_PARAMETER_3"
        ),
        "read": f"{_DATA} INVALID_PARAMETER_6",
        "write": f"{_DATA} INVALID_PARAMETER_6",
    },
}

_TRANSFER = (
    "SUCCESS LOCAL_LENGTH ACCESS_VIOLATION CANCELED INVALID_REQUEST FAILURE TIMEOUT REMOTE_ERROR"
)

COMPLETIONS: dict[str, dict[str, str]] = {
    "endpoint": {
        "send": _TRANSFER,
        "send_and_invalidate": f"{_TRANSFER} INVALIDATION_ERROR",
        "receive": (
            "SUCCESS BUFFER_OVERFLOW ACCESS_VIOLATION CANCELED INVALID_REQUEST FAILURE TIMEOUT "
            "REMOTE_ERROR INVALIDATION_ERROR"
        ),
        "bind": "SUCCESS CANCELED INVALID_REQUEST FAILURE ACCESS_VIOLATION",
        "invalidate": "SUCCESS CANCELED INVALID_REQUEST FAILURE INVALIDATION_ERROR",
        "read": _TRANSFER,
        "write": _TRANSFER,
    },
}
