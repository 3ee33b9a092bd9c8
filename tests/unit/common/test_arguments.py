# SPDX-License-Identifier: Apache-2.0
"""Values that no call takes, and that not even Python writes: each gets its documented error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmnd
import shmnd.nd1 as nd
from shmnd.common.arguments import shown
from shmnd.neighbours import Neighbour

HUGE = 10**5000
"""Python raises ValueError for its digits."""
SIZE = rf"<int of {HUGE.bit_length()} bits>"


def test_a_value_as_messages_name_it() -> None:
    assert shown(12) == "12"
    assert shown("a") == "'a'"
    assert shown(-HUGE) == SIZE
    assert shown(("127.0.0.1", HUGE)) == "<tuple>"


CALLS: dict[str, Callable[[shmnd.Adapter, Any], object]] = {
    "depth": lambda adapter, value: adapter.create_completion_queue(value),
    "affinity": lambda adapter, value: adapter.create_completion_queue(8, affinity=value),
    "allocate": lambda adapter, value: adapter.allocate(value),
    "attach": lambda adapter, value: adapter.attach(value),
    "length": lambda _, value: shmnd.Sge(1, value, 1),
    "address": lambda _, value: shmnd.Sge(value, 1, 1),
    "token": lambda _, value: shmnd.Sge(1, 1, value),
    "port": lambda adapter, value: adapter.create_listener().bind(("127.0.0.1", value)),
    "host": lambda adapter, value: adapter.create_listener().bind((value, 0)),
    "pair": lambda adapter, value: adapter.create_listener().bind((value,)),
    "id": lambda _, value: shmnd.Provider().open_adapter(value),
    "group": lambda _, value: shmnd.open_adapter(group=value),
    "seconds": lambda _, value: shmnd.open_adapter(rnr_timeout=value),
    "memory handle": lambda _, value: (
        nd.Provider().open_adapter("127.0.0.1").deregister_memory(value)
    ),
    "version": lambda _, value: nd.Provider().open_adapter("127.0.0.1").query(value),
    "base": lambda _, value: nd.MwDescriptor(value, 1, 1),
}


@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "negative"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_number_of_more_digits_than_python_writes(
    call: Callable[[shmnd.Adapter, Any], object], value: int, adapter: shmnd.Adapter
) -> None:
    with pytest.raises(shmnd.NdError) as caught:
        call(adapter, value)
    assert len(str(caught.value)) < 500


def test_a_group_of_too_many_digits_is_unknown() -> None:
    with pytest.raises(shmnd.NdError, match="does not exist"):
        shmnd.open_adapter(group="9" * 5000)


def test_a_range_of_a_region_beyond_all_digits(adapter: shmnd.Adapter) -> None:
    region = adapter.create_memory_region()
    region.register(adapter.allocate(16)).result()
    for offset, length in ((HUGE, 1), (HUGE, None), (0, HUGE), (0, -HUGE)):
        with pytest.raises(shmnd.NdError, match=SIZE):
            region.sge(offset, length)


@pytest.mark.parametrize("place", range(3))
def test_a_bool_is_no_part_of_a_descriptor(place: int) -> None:
    given = [1, 1, 1]
    given[place] = True
    with pytest.raises(shmnd.NdError, match="pass an int, not bool"):
        nd.MwDescriptor(*given)


def test_an_array_is_no_answer_to_yes_or_no(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    pending = queue.notify()
    both = np.zeros(2)
    with pytest.raises(shmnd.NdError, match="wait is ndarray") as caught:
        queue.get_overlapped_result(pending, both)  # type: ignore[arg-type]
    assert caught.value.status is shmnd.Status.INVALID_PARAMETER_2
    assert queue.get_overlapped_result(pending, np.False_) is shmnd.Status.PENDING  # type: ignore[arg-type]
    for option in ("writable", "trusted"):
        with pytest.raises(shmnd.NdError, match=f"{option} is ndarray"):
            adapter.attach("/none", **{option: both})
    assert "writable" in Neighbour.view.__annotations__


def test_a_time_of_polling_below_zero_says_what_to_pass(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    with pytest.raises(shmnd.NdError, match="spin -1 is negative; with 0 a wait sleeps at once"):
        queue.spin = -1
    assert queue.spin > 0


def test_calls_of_an_endpoint_name_what_they_want() -> None:
    adapter = nd.Provider().open_adapter("127.0.0.1")
    queue = adapter.create_completion_queue(8)
    endpoint = adapter.create_connector().create_endpoint(queue, queue, 4, 4, 1, 1)
    window = nd.MwDescriptor(1, 1, 1)
    none: Any = None
    for call, arguments in (
        ("send", (none,)), ("receive", (none,)), ("send_and_invalidate", (none, window)),
        ("read", (none, window, 0)), ("write", (none, window, 0)),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"^Endpoint.{call}: result must be a Result, not Non"):
            getattr(endpoint, call)(none, *arguments)
        if window in arguments:
            without = [each if each is not window else none for each in arguments]
            with pytest.raises(TypeError, match=rf"^Endpoint.{call}: descriptor must be an MwDes"):
                getattr(endpoint, call)(nd.Result(), *without)
    adapter.close()
