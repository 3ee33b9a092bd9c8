# SPDX-License-Identifier: Apache-2.0
import asyncio
import copy
import errno
import pickle

import pytest

from shmnd.status import (
    AdapterFlag,
    CqNotify,
    MrFlag,
    NdError,
    OpFlag,
    RequestType,
    Status,
    error,
    failed,
)

NUMBERS = {
    "SUCCESS": 0x00000000,
    "TIMEOUT": 0x00000102,
    "PENDING": 0x00000103,
    "BUFFER_OVERFLOW": 0x80000005,
    "DEVICE_BUSY": 0x80000011,
    "NO_MORE_ENTRIES": 0x8000001A,
    "UNSUCCESSFUL": 0xC0000001,
    "ACCESS_VIOLATION": 0xC0000005,
    "INVALID_HANDLE": 0xC0000008,
    "INVALID_PARAMETER": 0xC000000D,
    "INVALID_DEVICE_REQUEST": 0xC0000010,
    "NO_MEMORY": 0xC0000017,
    "INVALID_PARAMETER_MIX": 0xC0000030,
    "DATA_OVERRUN": 0xC000003C,
    "SHARING_VIOLATION": 0xC0000043,
    "INSUFFICIENT_RESOURCES": 0xC000009A,
    "DEVICE_NOT_READY": 0xC00000A3,
    "IO_TIMEOUT": 0xC00000B5,
    "NOT_SUPPORTED": 0xC00000BB,
    "INTERNAL_ERROR": 0xC00000E5,
    **{f"INVALID_PARAMETER_{n}": 0xC00000EE + n for n in range(1, 11)},
    "CANCELED": 0xC0000120,
    "REMOTE_ERROR": 0xC000013D,
    "INVALID_ADDRESS": 0xC0000141,
    "INVALID_DEVICE_STATE": 0xC0000184,
    "INVALID_BUFFER_SIZE": 0xC0000206,
    "TOO_MANY_ADDRESSES": 0xC0000209,
    "ADDRESS_ALREADY_EXISTS": 0xC000020A,
    "CONNECTION_REFUSED": 0xC0000236,
    "CONNECTION_INVALID": 0xC000023A,
    "CONNECTION_ACTIVE": 0xC000023B,
    "NETWORK_UNREACHABLE": 0xC000023C,
    "HOST_UNREACHABLE": 0xC000023D,
    "CONNECTION_ABORTED": 0xC0000241,
    "DEVICE_REMOVED": 0xC00002B6,
    # without an ND_ name
    "BAD_NETWORK_NAME": 0xC00000CC,
    "ADDRESS_ALREADY_ASSOCIATED": 0xC0000238,
}
ALIASES = {
    "LOCAL_LENGTH": "DATA_OVERRUN",
    "INVALIDATION_ERROR": "INVALID_DEVICE_REQUEST",
    "FAILURE": "INTERNAL_ERROR",
    "INVALID_REQUEST": "INVALID_DEVICE_REQUEST",
}
PARAMETERS = [
    "INVALID_PARAMETER",
    "INVALID_PARAMETER_MIX",
    *(f"INVALID_PARAMETER_{n}" for n in range(1, 11)),
]
BUILT_IN = {
    **dict.fromkeys(PARAMETERS, ValueError),
    "INVALID_ADDRESS": ValueError,
    "INVALID_BUFFER_SIZE": ValueError,
    "INVALID_HANDLE": ValueError,
    "BUFFER_OVERFLOW": BufferError,
    "DATA_OVERRUN": BufferError,
    "ACCESS_VIOLATION": PermissionError,
    "IO_TIMEOUT": TimeoutError,
    "TIMEOUT": TimeoutError,
    "CONNECTION_REFUSED": ConnectionRefusedError,
    "CONNECTION_ABORTED": ConnectionAbortedError,
    "CONNECTION_INVALID": ConnectionError,
    "CONNECTION_ACTIVE": ConnectionError,
    "NETWORK_UNREACHABLE": OSError,
    "HOST_UNREACHABLE": OSError,
    "BAD_NETWORK_NAME": OSError,
    "SHARING_VIOLATION": OSError,
    "TOO_MANY_ADDRESSES": OSError,
    "ADDRESS_ALREADY_EXISTS": OSError,
    "ADDRESS_ALREADY_ASSOCIATED": OSError,
    "NO_MEMORY": MemoryError,
    "INSUFFICIENT_RESOURCES": MemoryError,
    "NO_MORE_ENTRIES": BlockingIOError,
    "NOT_SUPPORTED": NotImplementedError,
}
PLAIN = sorted(set(NUMBERS) - set(BUILT_IN))


def test_every_status_has_the_number_of_the_interface() -> None:
    assert {s.name: int(s) for s in Status} == NUMBERS


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_version_1_names_are_aliases(alias: str, name: str) -> None:
    assert Status[alias] is Status[name]


@pytest.mark.parametrize(("name", "base"), BUILT_IN.items())
def test_error_is_also_the_built_in_one(name: str, base: type[Exception]) -> None:
    raised = error(Status[name], "Object.call", "value 7 above 5")
    assert isinstance(raised, NdError)
    assert isinstance(raised, base)
    assert raised.status is Status[name]
    assert raised.required is None
    assert str(raised) == f"Object.call: value 7 above 5 [{name}]"


@pytest.mark.parametrize("name", PLAIN)
def test_statuses_outside_the_families_are_plain(name: str) -> None:
    assert type(error(Status[name], "Object.call", "detail")) is NdError


def test_canceled_is_not_the_cancelled_of_asyncio() -> None:
    raised = error(Status.CANCELED, "Object.call", "detail")
    assert not isinstance(raised, (asyncio.CancelledError, OSError))


def test_the_class_itself_chooses_the_family() -> None:
    raised = NdError(int(Status.NO_MORE_ENTRIES), "full")
    assert isinstance(raised, BlockingIOError)
    assert raised.status is Status.NO_MORE_ENTRIES


def test_an_invalid_status_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a valid Status"):
        NdError(0x12345678, "no such status")


def test_socket_like_errors_carry_errno() -> None:
    refused = error(Status.CONNECTION_REFUSED, "Connector.connect", "no listener")
    assert isinstance(refused, OSError)
    assert refused.errno == errno.ECONNREFUSED
    assert refused.strerror == str(refused)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_error_survives_copy_and_pickle(status: Status, again: object) -> None:
    before = error(status, "Object.call", "detail", required=96)
    assert callable(again)
    after = again(before)
    assert type(after) is type(before)
    assert (after.status, after.required, str(after)) == (status, 96, str(before))


def test_warnings_are_failures_and_pending_is_not() -> None:
    assert failed(Status.BUFFER_OVERFLOW)
    assert failed(Status.CANCELED)
    assert not any(map(failed, (Status.SUCCESS, Status.PENDING, Status.TIMEOUT)))


def test_flags_have_the_numbers_of_the_header() -> None:
    assert {f.name: int(f) for f in MrFlag.__members__.values()} == {
        "ALLOW_LOCAL_WRITE": 1,
        "ALLOW_REMOTE_READ": 2,
        "ALLOW_REMOTE_WRITE": 5,
        "RDMA_READ_SINK": 8,
        "DO_NOT_SECURE_VM": 0x80000000,
    }
    assert {f.name: int(f) for f in OpFlag} == {
        "SILENT_SUCCESS": 1,
        "READ_FENCE": 2,
        "SEND_AND_SOLICIT_EVENT": 4,
        "ALLOW_READ": 8,
        "ALLOW_WRITE": 0x10,
        "INLINE": 0x20,
    }
    assert {f.name: int(f) for f in AdapterFlag} == {
        "IN_ORDER_DMA_SUPPORTED": 1,
        "CQ_INTERRUPT_MODERATION_SUPPORTED": 4,
        "MULTI_ENGINE_SUPPORTED": 8,
        "CQ_RESIZE_SUPPORTED": 0x100,
        "LOOPBACK_CONNECTIONS_SUPPORTED": 0x10000,
    }


def test_enumerations_have_the_numbers_of_the_header() -> None:
    assert [n.name for n in sorted(CqNotify)] == ["ERRORS", "ANY", "SOLICITED"]
    assert [r.name for r in sorted(RequestType)] == [
        "RECEIVE",
        "SEND",
        "BIND",
        "INVALIDATE",
        "READ",
        "WRITE",
    ]
    assert sorted(CqNotify) == [0, 1, 2]
    assert sorted(RequestType) == [0, 1, 2, 3, 4, 5]
