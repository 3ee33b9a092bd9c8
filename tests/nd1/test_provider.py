# SPDX-License-Identifier: Apache-2.0
"""INDProvider."""

import pytest

import shmnd.nd1 as nd
from shmnd import Status
from shmnd.address import unpack_address_list
from spi.harness import UNSERVED, nd_error


def test_query_address_list_success_holds_the_loopback_address() -> None:
    addresses = nd.Provider().query_address_list()
    assert ("127.0.0.1", 0) in addresses
    assert all(port == 0 for _, port in addresses)


def test_query_address_list_into_success_fills_the_buffer() -> None:
    import ctypes

    provider = nd.Provider()
    buffer = bytearray(65536)
    used = provider.query_address_list_into(buffer)
    base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    assert unpack_address_list(bytes(buffer[:used]), base) == provider.query_address_list()


def test_query_address_list_into_buffer_overflow_reports_the_size() -> None:
    provider = nd.Provider()
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        provider.query_address_list_into(None)
    short = bytearray(b"\xee" * (caught.value.required - 1))
    with nd_error(Status.BUFFER_OVERFLOW) as again:
        provider.query_address_list_into(short)
    assert again.value.required == caught.value.required
    assert short == b"\xee" * len(short), "untouched"


def test_open_adapter_success_ignores_the_port() -> None:
    with nd.Provider().open_adapter(("127.0.0.1", 77)) as adapter:
        assert adapter.query().max_cq_entries > 0


@pytest.mark.parametrize("host", [UNSERVED, "no address", "0.0.0.0", None, 7])
def test_open_adapter_invalid_address_when_it_is_none_of_this_host(host: object) -> None:
    with nd_error(Status.INVALID_ADDRESS, match="open_adapter"):
        nd.Provider().open_adapter(host)  # type: ignore[arg-type]


def test_the_provider_may_be_closed_once_an_adapter_is_open() -> None:
    with nd.Provider() as provider:
        adapter = provider.open_adapter("127.0.0.1")
    with adapter:
        adapter.create_completion_queue(8)


def test_the_provider_may_be_dropped_once_an_adapter_is_open() -> None:
    provider = nd.Provider()
    adapter = provider.open_adapter("127.0.0.1")
    del provider
    with adapter:
        adapter.create_completion_queue(8).close()
