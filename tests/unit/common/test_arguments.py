# SPDX-License-Identifier: Apache-2.0
"""Values that no call takes, and that not even Python writes: each gets its documented error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmnd
import shmnd.nd1 as nd
from shmnd.common.arguments import shown
from shmnd.nd1.messages import EndpointCore

HUGE = 10**5000
"""Python raises ValueError for its digits."""
SIZE = rf"<int of {HUGE.bit_length()} bits>"


def test_a_value_as_messages_name_it() -> None:
    assert shown(12) == "12"
    assert shown("a") == "'a'"
    assert shown(-HUGE) == SIZE
    assert shown(("127.0.0.1", HUGE)) == "<tuple>"
    assert shown(10**4200) == "1" + "0" * 199 + "…"


CALLS: dict[str, Callable[[shmnd.Adapter, Any], object]] = {
    "depth": lambda adapter, value: adapter.create_completion_queue(value),
    "affinity": lambda adapter, value: adapter.create_completion_queue(8, affinity=value),
    "allocate": lambda adapter, value: adapter.allocate(value),
    "peers": lambda adapter, value: adapter.allocate(16, peers=value),
    "name": lambda adapter, value: adapter.allocate(16, name=value),
    "namespace": lambda _, value: shmnd.open_adapter(namespace=value),
    "bare address": lambda adapter, value: adapter.create_memory_region().register((value, 1)),
    "bare length": lambda adapter, value: adapter.create_memory_region().register((1, value)),
    "control": lambda _, value: nd.Provider().open_adapter("127.0.0.1").control(value),
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


@pytest.mark.parametrize("value", [HUGE, -HUGE, 10**4200], ids=["huge", "negative", "just written"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_number_of_more_digits_than_python_writes(
    call: Callable[[shmnd.Adapter, Any], object], value: int, adapter: shmnd.Adapter
) -> None:
    with pytest.raises(shmnd.NdError) as caught:
        call(adapter, value)
    assert len(str(caught.value)) < 500


def test_contexts_that_python_does_not_write(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(queue, queue, context=HUGE)
    pair.receive(None, HUGE)
    assert SIZE in repr(pair)
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    here, there = adapter.create_connector(), adapter.create_connector()
    offered = listener.get_connection_request(there)
    connecting = here.connect(pair, listener.get_local_address())
    offered.result(10)
    other = adapter.create_queue_pair(queue, queue)
    accepting = there.accept(other)
    connecting.result(10)
    here.complete_connect().result(10)
    accepting.result(10)
    with pytest.raises(TimeoutError, match=SIZE):
        queue.wait_one(0.0)
    pair.flush()
    (result,) = queue.get_results()
    assert repr(result).count(SIZE) == 2
    with pytest.raises(shmnd.NdError, match=SIZE):
        result.raise_if_failed()


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
    both: Any = np.zeros(2)
    no: Any = np.False_
    with pytest.raises(shmnd.NdError, match="wait is ndarray") as caught:
        queue.get_overlapped_result(pending, both)
    assert caught.value.status is shmnd.Status.INVALID_PARAMETER_2
    assert queue.get_overlapped_result(pending, no) is shmnd.Status.PENDING
    for option in ("writable", "trusted"):
        with pytest.raises(shmnd.NdError, match=f"{option} is ndarray"):
            adapter.attach("/none", **{option: both})


def test_calls_of_version_1_say_their_own_names() -> None:
    with nd.Provider().open_adapter("127.0.0.1") as adapter:
        pending = adapter.create_completion_queue(8).notify()
        both: Any = np.zeros(2)
        none: Any = None
        for made, name in ((adapter.listen(), "Listen"), (adapter.create_connector(), "Connector")):
            with pytest.raises(shmnd.NdError, match=rf"^{name}.get_overlapped_result: wait is nda"):
                made.get_overlapped_result(pending, both)
            with pytest.raises(shmnd.NdError, match=rf"^{name}.get_overlapped_result: NoneType is"):
                made.get_overlapped_result(none)


@pytest.mark.parametrize("call", ["send", "receive", "read", "write"])
def test_an_endpoint_that_no_connector_made_raises(call: str) -> None:
    window = (nd.MwDescriptor(1, 1, 1), 0) if call in ("read", "write") else ()
    endpoint = EndpointCore.__new__(EndpointCore)
    with pytest.raises(TypeError, match="result must be a Result, not NoneType"):
        getattr(endpoint, call)(None, [], *window)
    with pytest.raises(TypeError, match="an endpoint is made by its connector"):
        getattr(endpoint, call)(nd.Result(), [], *window)


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
