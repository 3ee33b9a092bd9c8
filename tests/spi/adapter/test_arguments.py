# SPDX-License-Identifier: Apache-2.0
"""What calls say to values that no program should give: no numbers, no memory, no open objects.

Each says which call, which value and which parameter, and the object is as it was.
"""

import math
import mmap
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import CqNotify, OpFlag, Status
from spi.harness import LOCAL, REMOTE, End, nd_error, statuses
from spi.pair import Pair
from spi.remote import Ends

NO_INTEGERS = [None, True, np.bool_(True), 1.0, 1.5, math.nan, np.float64(1), "1", b"1", [], (1, 2)]
TOO_LARGE = [1 << 32, 1 << 64, 10**30]


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_sge_refuses_a_non_integer(value: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_2, match="length"):
        shmnd.Sge(4096, value, 1)
    with nd_error(Status.INVALID_PARAMETER_3, match="token"):
        shmnd.Sge(4096, 1, value)


@pytest.mark.parametrize("value", [-1, *TOO_LARGE], ids=str)
def test_sge_refuses_values_out_of_range(value: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_2, match="length"):
        shmnd.Sge(4096, value, 1)
    with nd_error(Status.INVALID_PARAMETER_3, match="token"):
        shmnd.Sge(4096, 1, value)
    assert shmnd.Sge(4096, (1 << 32) - 1, (1 << 32) - 1).length == (1 << 32) - 1


@pytest.mark.parametrize("value", [None, True, 1.5, "text", [], object(), -1, 1 << 64], ids=repr)
def test_sge_refuses_an_invalid_address(value: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_1, match="Sge"):
        shmnd.Sge(value, 1, 1)


def test_sge_takes_a_numpy_scalar_for_an_address_and_other_memory_for_a_buffer() -> None:
    assert shmnd.Sge(np.uint64((1 << 64) - 1), 1, 1).address == (1 << 64) - 1
    memory = np.zeros(8)
    assert shmnd.Sge(memory, None, 1) == shmnd.Sge(memory.ctypes.data, 64, 1)


FLAGGED: dict[str, Callable[[Pair, Any], object]] = {
    "send": lambda pair, flags: pair.active.qp.send(None, flags=flags),
    "read": lambda pair, flags: pair.active.qp.read(None, 0, 0, flags=flags),
    "write": lambda pair, flags: pair.active.qp.write(None, 0, 0, flags=flags),
}


@pytest.mark.parametrize("call", FLAGGED)
def test_flags_may_be_a_number_of_numpy(connected: Pair, call: str) -> None:
    connected.passive.qp.receive(None)
    FLAGGED[call](connected, np.uint32(OpFlag.SILENT_SUCCESS))
    assert connected.active.cq.wait(timeout=0.05) == [], "it was silent"


@pytest.mark.parametrize("call", FLAGGED)
@pytest.mark.parametrize("flags", [None, 1.0, np.float64(1), np.bool_(True), "1", []], ids=repr)
def test_flags_must_be_a_number(connected: Pair, call: str, flags: Any) -> None:
    with pytest.raises(TypeError, match="flags"):
        FLAGGED[call](connected, flags)


def moved() -> shmnd.Sge:
    """An element of a buffer that has grown since, and so lies elsewhere."""
    buffer = bytearray(1 << 20)
    sge = shmnd.Sge(buffer, 8, 0)
    buffer.extend(bytes(1 << 24))
    return sge


def gone() -> shmnd.Sge:
    """An element of memory that was given back since."""
    memory = mmap.mmap(-1, 4096)
    sge = shmnd.Sge(memory, 8, 0)
    memory.close()
    return sge


def shrunk() -> shmnd.Sge:
    buffer = bytearray(64)
    sge = shmnd.Sge(buffer, 64, 0)
    del buffer[8:]
    return sge


def too_long() -> shmnd.Sge:
    return shmnd.Sge(bytearray(8), 64, 0)


@pytest.mark.active_end_here
@pytest.mark.parametrize("made", [moved, gone, shrunk, too_long])
@pytest.mark.parametrize("others", [0, 1, 20], ids=["alone", "with another", "with many"])
def test_send_inline_access_violation_beyond_the_buffer(
    make_pair: Callable[..., Pair], made: Callable[[], Any], others: int
) -> None:
    """Nothing behind a buffer, or where one once was, is read or sent."""
    pair = make_pair(inline=256).connect()
    qp = pair.active.qp
    pair.passive.qp.receive(pair.passive.memory(256).sge())
    rest = [shmnd.Sge(b"x", 1, 0)] * others
    for sge in ([made(), *rest], [*rest, made()]) if rest else (made(), [made()]):
        with nd_error(Status.ACCESS_VIOLATION, match="send"):
            qp.send(sge, flags=OpFlag.INLINE)
        with nd_error(Status.ACCESS_VIOLATION, match="write"):
            qp.write(sge, 0, 0, flags=OpFlag.INLINE)
    qp.send([shmnd.Sge(b"whole", 5, 0), *rest], flags=OpFlag.INLINE)
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    assert pair.reap(pair.passive)[0].bytes_transferred == 5 + others


@pytest.mark.parametrize("value", [None, True, -1, 1.0, math.nan, "1", np.int64(-1)], ids=repr)
def test_get_results_refuses_an_invalid_count(end: End, value: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_1, match="get_results"):
        end.cq.get_results(value)
    with nd_error(Status.INVALID_PARAMETER_1, match="wait"):
        end.cq.wait(value, 0)


@pytest.mark.parametrize("most", [0, 1, 2, 3, 64, np.int32(2), *TOO_LARGE], ids=repr)
def test_get_results_success_returns_at_most_max_and_at_most_all(end: End, most: Any) -> None:
    for number in range(3):
        end.qp.receive(None, number)
    end.qp.flush()
    assert len(end.cq.get_results(most)) == min(int(most), 3)
    assert len(end.cq.wait(64, 0)) == 3 - min(int(most), 3)


@pytest.mark.parametrize(
    "timeout", [math.nan, np.float32("nan"), True, "1", b"1", [], object(), -1, -0.5, -math.inf]
)
def test_no_time_to_wait_is_an_error_before_anything_is_taken(end: End, timeout: Any) -> None:
    """Not a number would wait for ever."""
    end.qp.receive(None)
    end.qp.flush()
    with nd_error(Status.INVALID_PARAMETER_2, match="timeout"):
        end.cq.wait(64, timeout)
    assert len(end.cq.get_results()) == 1
    with nd_error(Status.INVALID_PARAMETER_1, match=r"timeout.*notify|notify.*timeout"):
        end.cq.notify().result(timeout)


@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, Fraction(1, 1000), np.float32(0.001)])
def test_any_real_number_is_a_time_to_wait(end: End, timeout: Any) -> None:
    assert end.cq.wait(64, timeout) == []
    with pytest.raises(TimeoutError):
        end.cq.notify().result(timeout)


@pytest.mark.parametrize("timeout", [math.inf, 10**400, 1e300], ids=["inf", "long", "float"])
def test_a_time_without_end_is_one_to_wait_too(end: End, timeout: Any) -> None:
    end.qp.receive(None)
    notice = end.cq.notify()
    end.qp.flush()
    notice.result(timeout)
    assert len(end.cq.wait(64, timeout)) == 1


@pytest.mark.parametrize("timeout", [None, True, math.nan, "2", 0, -1, 1e6, math.inf], ids=repr)
def test_open_adapter_refuses_an_invalid_rnr_timeout(timeout: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_3, match="rnr_timeout"):
        shmnd.open_adapter(rnr_timeout=timeout)


@pytest.mark.parametrize("host", [None, 17, b"127.0.0.1", (), (None, 0), [], ["127.0.0.1", 0]])
def test_resolve_address_refuses_an_invalid_host(host: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_1, match="resolve_address"):
        shmnd.Provider().resolve_address(host)


@pytest.mark.parametrize("namespace", [1, True, b"name", 1.5, [], "", "..", "a/b", "x" * 65])
def test_open_adapter_refuses_an_invalid_namespace(namespace: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER, match="namespace"):
        shmnd.open_adapter(namespace=namespace)


@pytest.mark.parametrize("kind", [*NO_INTEGERS, -1, 3, *TOO_LARGE], ids=repr)
def test_notify_invalid_parameter_1_when_the_type_is_invalid(end: End, kind: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_1, match="notify"):
        end.cq.notify(kind)
    assert end.cq.notify(np.int8(CqNotify.ANY)).status == Status.PENDING


@pytest.mark.parametrize("buffer", [17, 1.5, "text", [1, 2], object()], ids=repr)
def test_register_access_violation_when_it_is_not_memory(end: End, buffer: Any) -> None:
    region = end.adapter.create_memory_region()
    with nd_error(Status.ACCESS_VIOLATION, match="register"):
        region.register(buffer, LOCAL)


BARE = [
    (),
    (1,),
    (1, 2, 3),
    (None, 8),
    (4096, None),
    (4096.0, 8),
    (True, 8),
    ("a", 8),
    (1 << 64, 8),
]


@pytest.mark.parametrize("buffer", [*BARE, (-1, 8), (1 << 64, 8), (4096, -1), (0, 8)], ids=repr)
def test_register_access_violation_when_a_pair_names_no_memory(end: End, buffer: Any) -> None:
    region = end.adapter.create_memory_region()
    with nd_error(Status.ACCESS_VIOLATION, match="register"):
        region.register(buffer, LOCAL)


@pytest.mark.parametrize("buffer", [17, "text", b"read-only bytes", object()], ids=repr)
def test_query_into_invalid_parameter_1_when_there_is_no_memory_to_fill(
    end: End, buffer: Any
) -> None:
    for call in (end.adapter.query_into, end.adapter.query_address_list_into):
        with nd_error(Status.INVALID_PARAMETER_1, match="into"):
            call(buffer)


# Closed objects


def test_a_closed_completion_queue_does_nothing_more(end: End) -> None:
    cq = end.cq
    end.qp.receive(None, "lost")
    end.qp.flush()
    cq.close()
    calls = (
        lambda: cq.resize(8), cq.get_notify_affinity, cq.notify, cq.get_results, cq.wait,
        lambda: cq.get_results(0), lambda: cq.wait(0, 0), cq.wait_one, lambda: cq.wait_one(0),
    )  # fmt: skip
    for call in calls:
        with nd_error(Status.INVALID_HANDLE, match="closed"):
            call()


def test_a_closed_shared_receive_queue_does_nothing_more(end: End) -> None:
    srq = end.srq
    srq.close()
    calls = (lambda: srq.modify(8), srq.get_notify_affinity, srq.notify, lambda: srq.receive(None))
    for call in calls:
        with nd_error(Status.INVALID_HANDLE, match="closed"):
            call()


def test_a_closed_region_registers_nothing_more(end: End) -> None:
    region = end.adapter.create_memory_region()
    region.close()
    with nd_error(Status.INVALID_DEVICE_STATE, match="closed"):
        region.register(bytearray(8), LOCAL)


def test_a_closed_window_is_bound_no_more(connected: Pair) -> None:
    near = connected.active
    memory, window = near.memory(64, REMOTE), near.adapter.create_memory_window()
    window.close()
    with nd_error(Status.INVALID_PARAMETER_3, match="closed"):
        near.qp.bind(memory.mr, window, memory.address, 64, flags=OpFlag.ALLOW_READ)
    with nd_error(Status.INVALID_PARAMETER_2, match="closed"):
        near.qp.invalidate(window)
    connected.passive.qp.receive(None)
    near.qp.send(None)
    assert statuses(connected.reap(near)) == [Status.SUCCESS], "the connection is as it was"


def test_a_file_delivers_operations_that_ended_with_its_adapter(ends: Ends) -> None:
    end = ends.here()
    file = end.file
    notices = [end.cq.notify(), end.srq.notify()]
    end.adapter.close()
    assert set(file.poll()) == set(notices)
    assert [notice.status for notice in notices] == [Status.CANCELED] * 2
    with nd_error(Status.DEVICE_REMOVED, match="poll"):
        file.poll()
