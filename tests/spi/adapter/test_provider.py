# SPDX-License-Identifier: Apache-2.0
"""IND2Provider: which addresses are served, and the adapters behind them."""

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from shmnd import Provider, Status
from spi.harness import UNSERVED, nd_error

LOOPS = ["127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "::1"]


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Adapters to close when the test is over."""
    adapters: list[Any] = []
    yield adapters
    while adapters:
        adapters.pop().close()


def unpack_address_list(buffer: bytearray) -> list[tuple[str, int]]:
    """Read SOCKET_ADDRESS_LIST as a C program would: by its pointers."""
    base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    (count,) = struct.unpack_from("<i", buffer)
    found = []
    for index in range(count):
        pointer, length = struct.unpack_from("<Qi", buffer, 8 + 16 * index)
        start = pointer - base
        assert 8 + 16 * count <= start <= len(buffer) - length, "inside the same buffer"
        data = bytes(buffer[start : start + length])
        (family,) = struct.unpack_from("=H", data)
        assert length == {socket.AF_INET: 16, socket.AF_INET6: 28}[socket.AddressFamily(family)]
        (port,) = struct.unpack_from("!H", data, 2)
        packed = data[4:8] if family == socket.AF_INET else data[8:24]
        found.append((str(ipaddress.ip_address(packed)), port))
    return found


def size_of(addresses: list[tuple[str, int]]) -> int:
    return 8 + sum(16 + (28 if ":" in host else 16) for host, _ in addresses)


def test_query_address_list_success_names_addresses_without_a_port(provider: Provider) -> None:
    addresses = provider.query_address_list()
    assert ("127.0.0.1", 0) in addresses
    assert ("127.0.0.2", 0) in addresses
    assert {port for _, port in addresses} == {0}
    assert len(set(addresses)) == len(addresses)


def test_query_address_list_success_of_addresses_that_can_all_be_opened(
    provider: Provider, opened: list[Any]
) -> None:
    for host, _ in provider.query_address_list():
        opened.append(provider.open_adapter(provider.resolve_address(host)))


def test_query_address_list_into_success_fills_the_exact_structure(provider: Provider) -> None:
    addresses = provider.query_address_list()
    needed = size_of(addresses)
    for spare in (0, 1, 100):
        buffer = bytearray(b"\xa5" * (needed + spare))
        assert provider.query_address_list_into(buffer) == needed
        assert unpack_address_list(buffer) == addresses
        assert bytes(buffer[needed:]) == b"\xa5" * spare


@pytest.mark.parametrize("missing", [1, 20])
def test_query_address_list_into_buffer_overflow_when_too_small(
    provider: Provider, missing: int
) -> None:
    needed = size_of(provider.query_address_list())
    buffer = bytearray(b"\xa5" * (needed - missing))
    with nd_error(Status.BUFFER_OVERFLOW, match=str(needed)) as caught:
        provider.query_address_list_into(buffer)
    assert caught.value.required == needed
    assert buffer == b"\xa5" * (needed - missing), "untouched"


@pytest.mark.parametrize("buffer", [None, bytearray()], ids=["null", "empty"])
def test_query_address_list_into_buffer_overflow_when_asked_for_the_size(
    provider: Provider, buffer: bytearray | None
) -> None:
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        provider.query_address_list_into(buffer)
    assert caught.value.required == size_of(provider.query_address_list())


@pytest.mark.parametrize("host", LOOPS)
def test_resolve_address_success_of_every_address_of_the_host(
    provider: Provider, host: str
) -> None:
    adapter_id = provider.resolve_address(host)
    assert isinstance(adapter_id, int)
    assert 0 <= adapter_id < 1 << 64
    assert adapter_id == provider.resolve_address(host)


@pytest.mark.parametrize("host", [UNSERVED, "2001:db8::1", "8.8.8.8", "not an address", ""])
def test_resolve_address_invalid_address_when_it_is_not_served(
    provider: Provider, host: str
) -> None:
    with nd_error(Status.INVALID_ADDRESS) as caught:
        provider.resolve_address(host)
    assert isinstance(caught.value, ValueError)
    assert host in str(caught.value)


@pytest.mark.parametrize("host", LOOPS)
def test_open_adapter_success_with_the_id_of_an_address(
    provider: Provider, opened: list[Any], host: str
) -> None:
    adapter_id = provider.resolve_address(host)
    adapter = provider.open_adapter(adapter_id)
    opened.append(adapter)
    assert adapter.query().adapter_id == adapter_id
    assert host.partition(".")[0] in {h.partition(".")[0] for h, _ in adapter.query_address_list()}


def test_open_adapter_success_twice_returns_two_adapters(
    provider: Provider, opened: list[Any]
) -> None:
    adapter_id = provider.resolve_address("127.0.0.1")
    first, second = provider.open_adapter(adapter_id), provider.open_adapter(adapter_id)
    opened += [first, second]
    assert first is not second
    first.close()
    second.create_completion_queue(1).close()


def test_open_adapter_success_of_a_provider_that_is_gone_at_once(opened: list[Any]) -> None:
    opened.append(Provider().open_adapter(Provider().resolve_address("127.0.0.1")))
    opened[0].create_connector().close()


def test_a_provider_may_be_closed_once_an_adapter_is_open() -> None:
    with Provider() as provider:
        adapter = provider.open_adapter(provider.resolve_address("127.0.0.1"))
    provider.close()
    with adapter:
        adapter.create_completion_queue(8)


@pytest.mark.parametrize("adapter_id", [0, 1, (1 << 64) - 1])
def test_open_adapter_invalid_parameter_when_the_id_is_unknown(
    provider: Provider, adapter_id: int
) -> None:
    known = {provider.resolve_address(host) for host, _ in provider.query_address_list()}
    while adapter_id in known:
        adapter_id += 7
    with nd_error(Status.INVALID_PARAMETER, match="(?i)open_?adapter") as caught:
        provider.open_adapter(adapter_id)
    assert isinstance(caught.value, ValueError)
    assert str(adapter_id) in str(caught.value) or f"{adapter_id:x}" in str(caught.value)


def test_the_shortcut_opens_the_adapter_of_an_address(opened: list[Any]) -> None:
    opened += [shmnd.open_adapter(), shmnd.open_adapter("127.0.0.2"), shmnd.open_adapter("::1")]
    assert [type(adapter) for adapter in opened] == [shmnd.Adapter] * 3


def test_the_shortcut_refuses_an_address_that_is_not_served() -> None:
    with nd_error(Status.INVALID_ADDRESS, match=UNSERVED):
        shmnd.open_adapter(UNSERVED)
