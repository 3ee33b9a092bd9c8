# SPDX-License-Identifier: Apache-2.0
"""What calls of version 1 say to values that are not numbers, no memory, or too large."""

import copy
import math
import pickle
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import shmnd
import shmnd.nd1 as nd
from nd1.ends import End, Pair
from shmnd import OpFlag, Status
from spi.harness import nd_error

NO_INTEGERS = [True, np.bool_(True), 1.0, 1.5, math.nan, np.float64(1), "1", b"1", [], (1, 2)]
BOTH = int(OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE)


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_sge_refuses_a_non_integer(value: Any) -> None:
    """An empty list is not a handle, and so is nothing that only looks like 0 inline data."""
    with nd_error(Status.INVALID_PARAMETER_2, match="length"):
        nd.Sge(4096, value, 1)
    with nd_error(Status.INVALID_PARAMETER_3, match="memory_handle"):
        nd.Sge(4096, 1, value)


@pytest.mark.parametrize("handle", [None, 0])
def test_sge_without_a_handle_is_inline(handle: int | None) -> None:
    assert nd.Sge(b"data", None, handle).memory_handle is None


@pytest.mark.parametrize("value", [-1, 1 << 64, 10**30], ids=str)
def test_sge_length_has_64_bits(value: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_2, match="length"):
        nd.Sge(4096, value, 1)
    assert nd.Sge(4096, (1 << 64) - 1, 1).length == (1 << 64) - 1


def test_an_element_leaves_comparisons_with_other_kinds_to_them() -> None:
    assert nd.Sge(1, 2, 3) == mock.ANY
    assert nd.Sge(1, 2, 3) != (1, 2, 3)
    assert nd.Sge(1, 2, 3) != shmnd.Sge(1, 2, 3)


@pytest.mark.parametrize("value", [None, 1.0, 1.5, math.nan, "1", b"1", [], -1, 1 << 64], ids=repr)
def test_a_descriptor_holds_numbers_that_fit(value: Any) -> None:
    for base, length, token in ((value, 1, 1), (1, value, 1), (1, 1, value)):
        with nd_error(Status.INVALID_PARAMETER, match="MwDescriptor"):
            nd.MwDescriptor(base, length, token)
    assert nd.MwDescriptor(np.uint64(3), np.int32(2), np.uint32(1)) == nd.MwDescriptor(3, 2, 1)


@pytest.mark.parametrize("version", [None, 0, 2, True, 1.0, "1", np.array([1])], ids=repr)
def test_query_not_supported_when_the_version_is_not_the_number_1(end: End, version: Any) -> None:
    with nd_error(Status.NOT_SUPPORTED, match="query"):
        end.adapter.query(version)
    with nd_error(Status.NOT_SUPPORTED, match="query_into"):
        end.adapter.query_into(version, bytearray(128))
    assert end.adapter.query(np.int8(1)) == end.adapter.query()


@pytest.mark.parametrize("offset", [None, 1.0, 1.5, math.nan, np.bool_(True), "1", []], ids=repr)
def test_an_offset_is_an_integer(connected: Pair, offset: Any) -> None:
    memory = connected.passive.memory(64)
    _, descriptor = connected.window(connected.passive, memory, BOTH)
    near, endpoint = connected.active.memory(8), connected.active.endpoint
    for call in (endpoint.read, endpoint.write):
        with pytest.raises(TypeError):
            call(nd.Result(), near.sge(0, 1), descriptor, offset)
    written = nd.Result()
    near.put(b"x")
    endpoint.write(written, near.sge(0, 1), descriptor, np.uint8(7))
    assert connected.active.reap() == [written]
    assert written.status is Status.SUCCESS
    assert memory.get(1, 7) == b"x"


@pytest.mark.parametrize("flags", [None, 8.0, "8", [], np.bool_(True)], ids=repr)
def test_flags_are_a_number(connected: Pair, flags: Any) -> None:
    near, endpoint = connected.active, connected.active.endpoint
    memory, window = near.memory(8), near.adapter.create_memory_window()
    place = memory.handle, window, memory.address, 8
    with pytest.raises(TypeError, match="flags"):
        endpoint.bind(nd.Result(), *place, flags)
    with pytest.raises(TypeError, match="flags"):
        endpoint.invalidate(nd.Result(), window, flags)
    for call in (endpoint.send, endpoint.send_and_invalidate):
        what = (None,) if call == endpoint.send else (None, nd.MwDescriptor(0, 0, 0))
        with pytest.raises(TypeError, match="flags"):
            call(nd.Result(), *what, flags)
    endpoint.bind(nd.Result(), *place, np.int64(BOTH))
    endpoint.invalidate(nd.Result(), window, np.int64(0))
    assert [result.status for result in near.reap(2)] == [Status.SUCCESS] * 2


@pytest.mark.parametrize("buffer", [17, "text", [1, 2], object(), (1, 2, 3), (None, 8)], ids=repr)
def test_register_memory_access_violation_when_it_is_not_memory(end: End, buffer: Any) -> None:
    with nd_error(Status.ACCESS_VIOLATION, match="register_memory"):
        end.adapter.register_memory(buffer)


def test_a_closed_window_is_bound_no_more(connected: Pair) -> None:
    near, endpoint = connected.active, connected.active.endpoint
    memory, window = near.memory(8), near.adapter.create_memory_window()
    window.close()
    with nd_error(Status.INVALID_PARAMETER_3, match="closed"):
        endpoint.bind(nd.Result(), memory.handle, window, memory.address, 8, BOTH)
    with nd_error(Status.INVALID_PARAMETER_2, match="closed"):
        endpoint.invalidate(nd.Result(), window)


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with registered memory"])
def test_inline_data_ends_where_its_buffer_ends(connected: Pair, others: int) -> None:
    """Nothing behind a buffer, or where one once was, is read or sent."""
    near, endpoint = connected.active, connected.active.endpoint
    rest = [near.memory(8).sge()] * others
    memory, moving = connected.passive.memory(256), bytearray(1 << 20)
    moved = nd.Sge(moving, 8, None)
    moving.extend(bytes(1 << 24))
    connected.passive.endpoint.receive(nd.Result(), memory.sge())
    for sge in (nd.Sge(bytearray(8), 64, None), moved):
        with nd_error(Status.ACCESS_VIOLATION, match="Endpoint.send"):
            endpoint.send(nd.Result(), [sge, *rest])
        with nd_error(Status.ACCESS_VIOLATION, match="Endpoint.write"):
            endpoint.write(nd.Result(), [*rest, sge], nd.MwDescriptor(0, 0, 0), 0)
    endpoint.send(nd.Result(), [nd.Sge(b"whole", 5, None), *rest])
    assert [result.status for result in connected.both_reap(near)] == [Status.SUCCESS]
    assert [result.bytes_transferred for result in connected.passive.reap()] == [5 + 8 * others]


@pytest.mark.parametrize("host", [None, 17, (), (None, 0), "nowhere"], ids=repr)
def test_open_adapter_invalid_address_when_it_is_none(host: Any) -> None:
    with nd_error(Status.INVALID_ADDRESS, match="open_adapter"):
        nd.Provider().open_adapter(host)


def test_a_refused_call_takes_nothing_from_outstanding_requests(
    make_pair: Callable[..., Pair],
) -> None:
    """Inline data next to registered data is copied aside until its request is over."""
    pair = make_pair(outbound_entries=4, rnr_timeout=120.0).connect()
    near, far = pair.active, pair.passive
    source, sink, nowhere = near.memory(80_000), far.memory(240_300), nd.MwDescriptor(0, 0, 0)

    def mixed(data: bytes) -> list[nd.Sge]:
        return [source.sge(), nd.Sge(data, len(data), None)]

    for data in (b"first", b"other", b"third"):
        near.endpoint.send(nd.Result(), mixed(data))
    for offset in (None, math.nan, "1") * 4:
        with pytest.raises(TypeError):
            near.endpoint.write(nd.Result(), mixed(b"wrong"), nowhere, offset)  # type: ignore[arg-type]
    for flags in (0x40, 0x80) * 4:
        with nd_error(Status.INVALID_PARAMETER_6):
            near.endpoint.write(nd.Result(), mixed(b"wrong"), nowhere, 0, flags)
    for number in range(3):
        far.endpoint.receive(nd.Result(), sink.sge(80_100 * number, 80_100))
    assert [result.status for result in pair.both_reap(near, 3)] == [Status.SUCCESS] * 3
    assert [sink.get(5, 80_100 * n + 80_000) for n in range(3)] == [b"first", b"other", b"third"]


# -- elements of the two versions --


def test_a_list_refuses_an_element_of_version_2(connected: Pair) -> None:
    endpoint, far = connected.active.endpoint, nd.MwDescriptor(4096, 8, 7)
    made = connected.active.memory(64).sge(0, 8)
    other = shmnd.Sge(made.address, 8, made.token)
    for sges in (other, [other], (made, other)):
        for post in (
            lambda sges=sges: endpoint.receive(nd.Result(), sges),
            lambda sges=sges: endpoint.send(nd.Result(), sges),
            lambda sges=sges: endpoint.send_and_invalidate(nd.Result(), sges, far),
            lambda sges=sges: endpoint.write(nd.Result(), sges, far, 0),
            lambda sges=sges: endpoint.read(nd.Result(), sges, far, 0),
        ):
            with pytest.raises(TypeError, match=r"Sge of shmnd\.nd1 .*, not one of version 2"):
                post()
    endpoint.flush()
    assert connected.active.cq.get_results() == []


def test_equal_elements_have_the_same_length_and_handle() -> None:
    long = nd.Sge(4096, 1 << 33, 5)
    assert long == nd.Sge(4096, 1 << 33, 5)
    assert hash(long) == hash(nd.Sge(4096, 1 << 33, 5))
    assert long != nd.Sge(4096, 1 << 34, 5)
    assert long != nd.Sge(4096, 1 << 33, 6)


@pytest.mark.parametrize("element", [nd.Sge(4096, 1 << 33, 5), nd.Sge(4096, 8, None)], ids=repr)
def test_a_pickled_element_is_one_of_version_1(element: nd.Sge) -> None:
    again = pickle.loads(pickle.dumps(element))
    assert (type(again), repr(again)) == (nd.Sge, repr(element))
    assert again == element


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_a_descriptor_is_a_value_that_can_be_copied_and_pickled(
    way: Callable[[nd.MwDescriptor], nd.MwDescriptor],
) -> None:
    """A program may pass it to the peer through a pipe, as it may pass an element."""
    descriptor = nd.MwDescriptor((1 << 64) - 1, 1 << 33, 0xFFFFFFFF)
    again = way(descriptor)
    assert type(again) is nd.MwDescriptor
    assert (again, hash(again), again.pack()) == (descriptor, hash(descriptor), descriptor.pack())
    assert again != nd.MwDescriptor((1 << 64) - 1, 1 << 33, 0xFFFFFFFE)
    assert again == mock.ANY  # an unknown type decides itself


class Named(nd.MwDescriptor):
    """A descriptor of a program, which pickles more than the window."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.length, self.token), {"name": "window"}


def test_a_descriptor_of_a_class_of_the_program_equals_one_of_the_same_window() -> None:
    plain, named = nd.MwDescriptor(4096, 8, 7), Named(4096, 8, 7)
    assert named == plain == named
    assert hash(named) == hash(plain)


def test_errors_of_elements_use_the_words_of_version_1(connected: Pair) -> None:
    endpoint: Any = connected.active.endpoint
    for call in (
        lambda: endpoint.send(nd.Result(), b"no list"),
        lambda: endpoint.receive(nd.Result(), [5]),
        lambda: nd.Sge(4096, 8, 1 << 40),
        lambda: nd.Sge("text", None, 1),
        lambda: connected.active.cq.resize(0),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert not re.search("MemoryRegion|OpFlag|token|depth", str(caught.value))
