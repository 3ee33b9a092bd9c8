# SPDX-License-Identifier: Apache-2.0
"""The public interface of version 2: names, parameters in their order, defaults, error families.

Programs outside the project are written against these. More may be added; none of these changes.
"""

import copy
import dataclasses
import enum
import inspect
import pickle
from typing import Any

import pytest

import shmnd
from shmnd import CqNotify, NdError, Status
from shmnd.status import error

_QUEUE = "*, overlapped_file=None, group=0, affinity=0"
_OVERLAPPED = {
    "cancel_overlapped_requests": "",
    "get_overlapped_result": "overlapped, wait=False",
    "close": "",
}

METHODS: dict[str, dict[str, str]] = {
    "Provider": {
        "query_address_list": "",
        "query_address_list_into": "buffer",
        "resolve_address": "host",
        "open_adapter": "adapter_id",
        "close": "",
    },
    "Adapter": {
        "create_overlapped_file": "",
        "query": "",
        "query_into": "buffer",
        "query_address_list": "",
        "query_address_list_into": "buffer",
        "create_completion_queue": f"depth, {_QUEUE}",
        "create_memory_region": "*, overlapped_file=None",
        "create_memory_window": "",
        "create_shared_receive_queue": f"depth, max_request_sge=1, notify_threshold=0, {_QUEUE}",
        "create_queue_pair": (
            "receive_cq, initiator_cq, *, context=None, receive_depth=…, initiator_depth=…, "
            "max_receive_sge=1, max_initiator_sge=1, inline_size=0"
        ),
        "create_queue_pair_with_srq": (
            "receive_cq, initiator_cq, srq, *, context=None, initiator_depth=…, "
            "max_initiator_sge=1, inline_size=0"
        ),
        "create_connector": "*, overlapped_file=None",
        "create_listener": "*, overlapped_file=None",
        "allocate": "nbytes, *, peers='write', name=None",
        "attach": "segment, *, writable=True, trusted=False",
        "close": "",
    },
    "MemoryRegion": _OVERLAPPED
    | {"register": "buffer, flags=0", "deregister": "", "sge": "offset=0, length=None"},
    "MemoryWindow": {"close": ""},
    "QueuePair": {
        "send": "sge, context=None, *, flags=0",
        "receive": "sge, context=None",
        "read": "sge, remote_address, remote_token, context=None, *, flags=0",
        "write": "sge, remote_address, remote_token, context=None, *, flags=0",
        "bind": "memory_region, memory_window, address, length, context=None, *, flags=0",
        "invalidate": "memory_window, context=None, *, flags=0",
        "flush": "",
        "close": "",
    },
    "CompletionQueue": _OVERLAPPED
    | {
        "get_results": "max=64",
        "wait": "max=64, timeout=None",
        "wait_one": "timeout=None",
        "notify": "type=1",
        "resize": "depth",
        "get_notify_affinity": "",
        "fileno": "",
    },
    "SharedReceiveQueue": _OVERLAPPED
    | {
        "receive": "sge, context=None",
        "modify": "depth=0, notify_threshold=0",
        "notify": "",
        "get_notify_affinity": "",
    },
    "Connector": _OVERLAPPED
    | {
        "bind": "address",
        "connect": ("qp, address, inbound_read_limit=0, outbound_read_limit=0, private_data=b''"),
        "complete_connect": "",
        "accept": "qp, inbound_read_limit=0, outbound_read_limit=0, private_data=b''",
        "reject": "private_data=b''",
        "get_read_limits": "",
        "get_private_data": "",
        "get_private_data_into": "buffer",
        "get_local_address": "",
        "get_peer_address": "",
        "notify_disconnect": "",
        "disconnect": "",
    },
    "Listener": _OVERLAPPED
    | {
        "bind": "address",
        "listen": "backlog=0",
        "get_local_address": "",
        "get_connection_request": "connector",
    },
    "Result": {"raise_if_failed": ""},
    "Connection": {
        "send_bytes": "data, timeout=None",
        "recv_bytes": "timeout=None, *, maxlength=None",
        "recv_into": "buffer, timeout=None",
        "poll": "timeout=0",
        "asend_bytes": "data, timeout=None",
        "arecv_bytes": "timeout=None, *, maxlength=None",
        "close": "",
        "fileno": "",
    },
    "Server": {"accept": "timeout=None", "aaccept": "timeout=None", "fileno": "", "close": ""},
    "Overlapped": {"done": "", "result": "timeout=None"},
    "OverlappedFile": {"fileno": "", "poll": "max=None", "close": ""},
    "AdapterInfo": {"pack": "", "unpack": "data"},
}

ATTRIBUTES = {
    "MemoryRegion": ["local_token", "remote_token", "address", "length"],
    "MemoryWindow": ["remote_token", "address", "length"],
    "QueuePair": ["context"],
    "Sge": ["address", "length", "token"],
    "Result": [
        "status",
        "bytes_transferred",
        "queue_pair_context",
        "request_context",
        "request_type",
        "detail",
    ],
    "Connection": ["closed", "connected"],
    "Server": ["adapter", "closed"],
    "Overlapped": ["status"],
}

FIELDS = (
    "info_version vendor_id device_id adapter_id max_registration_size max_window_size "
    "max_initiator_sge max_receive_sge max_read_sge max_transfer_length max_inline_data_size "
    "max_inbound_read_limit max_outbound_read_limit max_receive_queue_depth "
    "max_initiator_queue_depth max_shared_receive_queue_depth max_completion_queue_depth "
    "inline_request_threshold large_request_threshold max_caller_data max_callee_data adapter_flags"
)

FAMILIES: dict[type[Exception], str] = {
    ValueError: (
        "INVALID_PARAMETER INVALID_PARAMETER_1 INVALID_PARAMETER_2 INVALID_PARAMETER_3 "
        "INVALID_PARAMETER_4 INVALID_PARAMETER_5 INVALID_PARAMETER_6 INVALID_PARAMETER_7 "
        "INVALID_PARAMETER_8 INVALID_PARAMETER_9 INVALID_PARAMETER_10 INVALID_PARAMETER_MIX "
        "INVALID_ADDRESS INVALID_BUFFER_SIZE INVALID_HANDLE"
    ),
    BufferError: "BUFFER_OVERFLOW DATA_OVERRUN",
    PermissionError: "ACCESS_VIOLATION",
    TimeoutError: "IO_TIMEOUT TIMEOUT",
    ConnectionRefusedError: "CONNECTION_REFUSED",
    ConnectionAbortedError: "CONNECTION_ABORTED",
    ConnectionError: "CONNECTION_ABORTED CONNECTION_INVALID CONNECTION_ACTIVE",
    OSError: (
        "NETWORK_UNREACHABLE HOST_UNREACHABLE SHARING_VIOLATION TOO_MANY_ADDRESSES "
        "ADDRESS_ALREADY_EXISTS"
    ),
    MemoryError: "NO_MEMORY INSUFFICIENT_RESOURCES",
    BlockingIOError: "NO_MORE_ENTRIES",
    NotImplementedError: "NOT_SUPPORTED",
}

CONNECTING = {"Adapter", "Connector", "Listener"}
"""Classes that still show names of the inside."""

CELLS = [(cls, method) for cls, methods in METHODS.items() for method in methods]


def shown(signature: inspect.Signature, wanted: str) -> str:
    """The parameters as they are written above; a default that is `…` there is anything here."""
    free = {part.split("=")[0].strip() for part in wanted.split(",") if part.endswith("…")}
    parts = []
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default: Any = parameter.default
        if isinstance(default, enum.IntEnum):
            default = int(default)
        if default is parameter.empty:
            parts.append(name)
        else:
            parts.append(f"{name}=…" if name in free else f"{name}={default!r}")
    return ", ".join(parts)


@pytest.mark.parametrize(("cls", "method"), CELLS, ids=[f"{c}.{m}" for c, m in CELLS])
def test_a_method_takes_these_parameters_in_this_order(cls: str, method: str) -> None:
    wanted = METHODS[cls][method]
    assert shown(inspect.signature(getattr(getattr(shmnd, cls), method)), wanted) == wanted


@pytest.mark.parametrize("cls", sorted({*METHODS, "Sge", "Result"}))
def test_every_name_has_a_docstring(cls: str) -> None:
    made = getattr(shmnd, cls)
    assert made.__doc__
    for name in METHODS.get(cls, {}):
        assert inspect.getdoc(inspect.getattr_static(made, name)), name


@pytest.mark.parametrize("cls", sorted(ATTRIBUTES))
def test_an_object_has_these_attributes(cls: str) -> None:
    for name in ATTRIBUTES[cls]:
        assert hasattr(getattr(shmnd, cls), name), name


def test_the_shortcut_and_the_element_take_these_parameters() -> None:
    wanted = "host='127.0.0.1', *, namespace=None, rnr_timeout=2.0"
    given = shown(inspect.signature(shmnd.open_adapter), wanted)
    assert given == wanted or given.startswith(f"{wanted}, "), "more may be added at the end"
    assert shown(inspect.signature(shmnd.Sge), "") == "buffer_or_address, length, token"
    shmnd.Provider()  # takes nothing that must be given


def test_an_element_can_be_copied_and_sent_elsewhere() -> None:
    element = shmnd.Sge(bytearray(8), 8, 7)
    assert copy.copy(element) is element  # with the buffer that it holds
    assert copy.deepcopy([element])[0] is element
    assert pickle.loads(pickle.dumps(element)) == element


def test_adapter_info_has_one_attribute_for_each_field() -> None:
    assert [field.name for field in dataclasses.fields(shmnd.AdapterInfo)] == FIELDS.split()


def test_overlapped_operations_can_be_awaited_and_files_closed_by_with() -> None:
    assert callable(shmnd.Overlapped.__await__)
    for name in METHODS.keys() - {"Overlapped", "AdapterInfo", "Result"}:
        assert callable(getattr(shmnd, name).__enter__), name
        assert callable(getattr(shmnd, name).__exit__), name


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.__name__))
def test_statuses_of_a_family_are_caught_by_its_class(family: type[Exception]) -> None:
    for name in FAMILIES[family].split():
        raised = error(Status[name], "Some.call", "a reason")
        assert isinstance(raised, NdError)
        assert isinstance(raised, family), name
        assert raised.status is Status[name]
        assert "Some.call" in str(raised)
        assert "a reason" in str(raised)


def test_canceled_is_a_plain_error() -> None:
    raised = error(Status.CANCELED, "Some.call", "a reason")
    assert not isinstance(raised, (OSError, ValueError, TimeoutError, BufferError, MemoryError))


def test_statuses_without_a_name_of_their_own_and_aliases() -> None:
    assert Status.ADDRESS_ALREADY_ASSOCIATED == 0xC0000238
    assert Status.BAD_NETWORK_NAME == 0xC00000CC
    assert Status["LOCAL_LENGTH"] is Status.DATA_OVERRUN
    assert Status["INVALIDATION_ERROR"] is Status.INVALID_DEVICE_REQUEST
    assert {"FAILURE", "INVALID_REQUEST"} <= set(Status.__members__)
    assert all(0 <= status < 1 << 32 for status in Status)
    assert [kind.value for kind in CqNotify] == [0, 1, 2]


EXTENSIONS = {
    "CompletionQueue": {"spin", "wait_one"},
    "OverlappedFile": {"closed"},
    "Overlapped": {"call"},
    "QueuePair": {"view"},
    "Result": {"detail", "raise_if_failed"},
}
"""Names beyond the interface, that are there or may come."""


@pytest.mark.parametrize("cls", sorted({*METHODS, *ATTRIBUTES} - CONNECTING - {"AdapterInfo"}))
def test_an_object_shows_the_interface_and_nothing_else(cls: str) -> None:
    wanted = {*METHODS.get(cls, {}), *ATTRIBUTES.get(cls, ()), *EXTENSIONS.get(cls, ())}
    shown = {name for name in dir(getattr(shmnd, cls)) if not name.startswith("_")}
    assert shown <= wanted | {"close"}


MADE_BY_OTHERS = [
    *(shmnd.Adapter, shmnd.nd1.Adapter),
    *(shmnd.CompletionQueue, shmnd.SharedReceiveQueue, shmnd.MemoryRegion, shmnd.MemoryWindow),
    *(shmnd.Connector, shmnd.Listener, shmnd.OverlappedFile, shmnd.Connection, shmnd.Server),
    *(shmnd.nd1.CompletionQueue, shmnd.nd1.Connector, shmnd.nd1.Listen),
    *(shmnd.nd1.Endpoint, shmnd.nd1.MemoryWindow),
]


@pytest.mark.parametrize("cls", MADE_BY_OTHERS, ids=lambda cls: f"{cls.__module__}")
def test_an_object_is_made_by_its_maker_alone(cls: type) -> None:
    for make in (cls, lambda: cls.__new__(cls)):
        with pytest.raises(TypeError, match=rf"cannot create '{cls.__name__}' objects; [\w.]+ ret"):
            make()


@pytest.mark.parametrize("cls", [shmnd.Provider, shmnd.nd1.Provider], ids=["2", "1"])
def test_a_provider_needs_no_initialisation(cls: type) -> None:
    with cls.__new__(cls) as provider:
        assert repr(provider) == repr(cls())
        assert provider.query_address_list() == cls().query_address_list()


def test_an_operation_that_no_call_has_begun_is_over() -> None:
    never = shmnd.Overlapped.__new__(shmnd.Overlapped)
    assert never.done()
    assert never.status is Status.DEVICE_REMOVED
    with pytest.raises(NdError, match="DEVICE_REMOVED"):
        never.result()
    assert "DEVICE_REMOVED" in repr(never)


def test_modules_show_the_interface_and_nothing_else() -> None:
    assert {name for name in dir(shmnd) if not name.startswith("_")} <= {*shmnd.__all__, "nd1"}
    nd1 = shmnd.nd1
    assert {name for name in dir(nd1) if not name.startswith("_")} == {*nd1.__all__}


def test_the_secret_of_an_adapter_is_not_a_public_attribute() -> None:
    with shmnd.open_adapter() as adapter:
        shown = [getattr(adapter, name) for name in dir(adapter) if not name.startswith("_")]
        assert adapter._key not in shown
