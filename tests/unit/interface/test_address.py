# SPDX-License-Identifier: Apache-2.0
import array
import ctypes
import ipaddress
import socket
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmnd import address
from shmnd.status import NdError, Status

HOSTS = st.ip_addresses().map(lambda ip: address.parse_host(str(ip), "call", 1))
ADDRESSES = st.tuples(HOSTS, st.integers(0, 65535))


def status_of(call: Any, *args: Any, **options: Any) -> Status:
    with pytest.raises(NdError) as caught:
        call(*args, **options)
    return caught.value.status


# -- reading what a user gives --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_host", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.255.3.4", "127.255.3.4"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1%eth0", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("", "0.0.0.0"),
        ("::", "::"),
        (ipaddress.ip_address("10.1.2.3"), "10.1.2.3"),
    ],
)
def test_hosts_get_one_spelling(given_host: object, host: str) -> None:
    assert address.parse_host(given_host, "call", 1) == host


@pytest.mark.parametrize("host", [None, 5, b"127.0.0.1", ("127.0.0.1",)])
def test_a_host_of_another_type_is_a_bad_parameter(host: object) -> None:
    assert status_of(address.parse_host, host, "call", 2) is Status.INVALID_PARAMETER_2


@pytest.mark.parametrize("host", ["somewhere", "127.0.0.256", "1.2.3", "::g", "127.0.0.1%lo", "%"])
def test_a_host_that_is_not_an_address_is_an_invalid_address(host: str) -> None:
    assert status_of(address.parse_host, host, "call", 1) is Status.INVALID_ADDRESS


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (("127.0.0.1", 0), ("127.0.0.1", 0)),
        (["127.0.0.1", 65535], ("127.0.0.1", 65535)),
        (("::1", 80, 7, 3), ("::1", 80)),
        (("127.0.0.1", np.uint16(80)), ("127.0.0.1", 80)),
    ],
)
def test_addresses_are_normalised(value: object, parsed: address.Address) -> None:
    assert address.parse(value, "call", 1) == parsed


@pytest.mark.parametrize(
    "value",
    [
        None,
        "127.0.0.1:80",
        (),
        ("127.0.0.1",),
        ("127.0.0.1", 1, 2),
        (None, 1),
        ("127.0.0.1", "80"),
        ("127.0.0.1", 1.0),
        ("127.0.0.1", True),
        ("127.0.0.1", -1),
        ("127.0.0.1", 65536),
        {"127.0.0.1": 1, "port": 2},
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_the_error_of_an_invalid_address_names_its_parameter(value: object, number: int) -> None:
    expected = Status[f"INVALID_PARAMETER_{number}"]
    assert status_of(address.parse, value, "call", number) is expected


def test_the_message_names_call_value_and_limit() -> None:
    with pytest.raises(ValueError, match=r"^Listener\.bind: port 65536 is outside 0\.\.65535 \["):
        address.parse(("127.0.0.1", 65536), "Listener.bind", 1)


def test_any_and_family() -> None:
    assert [address.is_any(h) for h in ("0.0.0.0", "::", "127.0.0.1")] == [True, True, False]
    assert address.family("127.0.0.1") == socket.AF_INET
    assert address.family("::1") == socket.AF_INET6


# -- addresses of this host -----------------------------------------------------------------------


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with one card that has addresses of every kind, and a loop."""
    entries = {
        "lo": [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")],
        "eth0": [
            (socket.AF_INET, "192.0.2.7"),
            (socket.AF_INET6, "2001:db8::7"),
            (socket.AF_INET6, "fe80::7%eth0"),
            (socket.AF_PACKET, "02:00:00:00:00:01"),
        ],
    }
    made = {
        name: [SimpleNamespace(family=family, address=host) for family, host in each]
        for name, each in entries.items()
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: made)


@pytest.mark.usefixtures("interfaces")
def test_the_list_has_each_usable_address_once() -> None:
    listed = ["127.0.0.1", "127.0.0.2", "192.0.2.7", "2001:db8::7", "::1"]
    assert address.host_addresses() == listed


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.8.7", "::1", "192.0.2.7", "2001:db8::7", "fe80::7"]
)
def test_addresses_of_this_host_are_local(host: str) -> None:
    assert address.is_local(host)
    address.require_local(host, "call")


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize("host", ["192.0.2.8", "::2", "128.0.0.1", "0.0.0.0", "::"])
def test_other_addresses_are_not_local(host: str) -> None:
    assert not address.is_local(host)
    with pytest.raises(ValueError, match=r"127\.0\.0\.2, 192\.0\.2\.7") as caught:
        address.require_local(host, "Connector.bind")
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.INVALID_ADDRESS


def test_every_listed_address_of_the_real_host_is_local() -> None:
    listed = address.host_addresses()
    assert listed[:2] == ["127.0.0.1", "127.0.0.2"]
    assert listed[-1] == "::1"
    assert len(set(listed)) == len(listed)
    assert all(map(address.is_local, listed))


# -- exact bytes ----------------------------------------------------------------------------------


def test_sockaddr_in_has_the_bytes_of_the_system() -> None:
    packed = address.pack_sockaddr(("1.2.3.4", 0x1234))
    assert packed == struct.pack("=H", socket.AF_INET) + bytes.fromhex("1234 01020304") + bytes(8)


def test_sockaddr_in6_has_the_bytes_of_the_system() -> None:
    packed = address.pack_sockaddr(("2001:db8::5", 0x1234))
    head = struct.pack("=H", socket.AF_INET6) + bytes.fromhex("1234 00000000")
    assert packed == head + socket.inet_pton(socket.AF_INET6, "2001:db8::5") + bytes(4)
    assert len(packed) == 28


@given(ADDRESSES)
def test_sockaddr_is_read_back(value: address.Address) -> None:
    packed = address.pack_sockaddr(value)
    assert address.unpack_sockaddr(packed) == value
    assert address.unpack_sockaddr(memoryview(packed + b"more")) == value


@pytest.mark.parametrize("size", [0, 1, 15])
def test_a_short_sockaddr_is_a_bad_parameter(size: int) -> None:
    packed = address.pack_sockaddr(("1.2.3.4", 1))[:size]
    assert status_of(address.unpack_sockaddr, packed, "call", 2) is Status.INVALID_PARAMETER_2


def test_a_short_sockaddr_in6_is_a_bad_parameter() -> None:
    packed = address.pack_sockaddr(("::1", 1))[:27]
    assert status_of(address.unpack_sockaddr, packed, "call", 2) is Status.INVALID_PARAMETER_2


def test_a_sockaddr_of_another_family_is_an_invalid_address() -> None:
    packed = struct.pack("=H", socket.AF_UNIX) + bytes(26)
    assert status_of(address.unpack_sockaddr, packed) is Status.INVALID_ADDRESS


def test_the_list_has_the_layout_of_the_interface() -> None:
    base = 0x7000_0000_1000
    packed = address.pack_address_list([("127.0.0.1", 0), ("::1", 0)], base)
    assert len(packed) == 8 + 2 * 16 + 16 + 28
    assert struct.unpack_from("<i", packed) == (2,)
    assert struct.unpack_from("<Qi", packed, 8) == (base + 40, 16)
    assert struct.unpack_from("<Qi", packed, 24) == (base + 56, 28)
    assert packed[40:56] == address.pack_sockaddr(("127.0.0.1", 0))
    assert packed[56:] == address.pack_sockaddr(("::1", 0))


def test_an_empty_list_is_its_head_alone() -> None:
    assert address.pack_address_list([], 0) == bytes(8)
    assert address.unpack_address_list(bytes(8), 0) == []


@given(st.lists(ADDRESSES, max_size=8), st.integers(0, 1 << 47))
def test_the_list_is_read_back(values: list[address.Address], base: int) -> None:
    packed = address.pack_address_list(values, base)
    assert len(packed) == address.address_list_size(values)
    assert address.unpack_address_list(packed, base) == values


@pytest.mark.parametrize("size", [0, 7, 8, 23])
def test_a_list_shorter_than_its_count_is_refused(size: int) -> None:
    packed = address.pack_address_list([("127.0.0.1", 0)], 0)[:size]
    assert status_of(address.unpack_address_list, packed, 0) is Status.INVALID_BUFFER_SIZE


@pytest.mark.parametrize("base", [1, 4096])
def test_an_entry_outside_the_buffer_is_refused(base: int) -> None:
    packed = address.pack_address_list([("127.0.0.1", 0)], base)
    assert status_of(address.unpack_address_list, packed, 0) is Status.INVALID_ADDRESS


def test_the_pointers_point_into_the_caller_s_buffer() -> None:
    values = [("127.0.0.1", 0), ("127.0.0.2", 0), ("::1", 0)]
    buffer = bytearray(b"\xee" * 200)
    used = address.address_list_into("call", buffer, values)
    assert used == address.address_list_size(values)
    assert buffer[used:] == b"\xee" * (200 - used)
    count = ctypes.c_int32.from_buffer(buffer).value
    read = []
    for index in range(count):
        pointer, size = struct.unpack_from("<Qi", buffer, 8 + 16 * index)
        read.append(address.unpack_sockaddr(ctypes.string_at(pointer, size)))
    assert read == values


def test_the_list_follows_the_size_query_rules() -> None:
    values = [("127.0.0.1", 0)]
    for buffer in (None, b"", bytearray(39)):
        with pytest.raises(BufferError) as caught:
            address.address_list_into("call", buffer, values)
        assert caught.value.required == 40  # type: ignore[attr-defined]
        assert not any(buffer or b"")
    assert address.address_list_into("call", bytearray(40), values) == 40


# -- a caller's buffer ----------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", [None, b"", bytearray(), bytearray(4)])
@pytest.mark.parametrize("partial", [False, True])
def test_a_short_buffer_reports_the_size(buffer: bytearray | None, partial: bool) -> None:
    with pytest.raises(BufferError, match=r"^Some\.call: buffer has \d bytes, 5 are") as caught:
        address.into("Some.call", buffer, b"12345", partial)
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.BUFFER_OVERFLOW
    assert caught.value.required == 5
    if buffer:
        assert buffer == (b"1234" if partial else bytes(4))


@pytest.mark.parametrize("partial", [False, True])
def test_a_large_enough_buffer_is_filled_and_its_size_returned(partial: bool) -> None:
    buffer = bytearray(b"\xee" * 7)
    assert address.into("call", buffer, b"12345", partial) == 5
    assert buffer == b"12345\xee\xee"


@pytest.mark.parametrize("buffer", [None, b"", bytearray(3)])
def test_an_empty_result_needs_no_buffer(buffer: bytearray | None) -> None:
    assert address.into("call", buffer, b"") == 0


@pytest.mark.parametrize(
    "buffer",
    [array.array("I", [0, 0]), np.zeros((2, 2), np.uint16), memoryview(bytearray(9))[1:]],
)
def test_buffers_of_any_kind_are_filled(buffer: Any) -> None:
    assert address.into("call", buffer, b"12345678") == 8
    assert bytes(buffer) == b"12345678"


@pytest.mark.parametrize("buffer", [5, "text", bytes(9), np.zeros((9, 2), np.uint8)[:, 0]])
@pytest.mark.parametrize("number", [1, 2])
def test_an_unwritable_buffer_is_a_bad_parameter(buffer: Any, number: int) -> None:
    expected = Status[f"INVALID_PARAMETER_{number}"]
    assert status_of(address.into, "call", buffer, b"1", parameter=number) is expected


def test_the_buffer_is_not_held() -> None:
    buffer = bytearray(64)
    address.into("call", buffer, b"12345")
    address.address_list_into("call", buffer, [("127.0.0.1", 0)])
    buffer.clear()  # BufferError if a view of it were left
