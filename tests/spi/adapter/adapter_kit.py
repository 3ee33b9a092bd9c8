# SPDX-License-Identifier: Apache-2.0
"""Checks that the tests of what an adapter creates share."""

from collections.abc import Callable
from typing import Any

from shmnd import AdapterInfo, Status
from spi.harness import End, nd_error
from spi.remote import Ends

CREATED = {
    "create_completion_queue": lambda adapter, **options: adapter.create_completion_queue(
        8, **options
    ),
    "create_memory_region": lambda adapter, **options: adapter.create_memory_region(**options),
    "create_shared_receive_queue": lambda adapter, **options: adapter.create_shared_receive_queue(
        8, **options
    ),
    "create_connector": lambda adapter, **options: adapter.create_connector(**options),
    "create_listener": lambda adapter, **options: adapter.create_listener(**options),
}


def bad_files(end: End, ends: Ends) -> list[Any]:
    closed = end.adapter.create_overlapped_file()
    closed.close()
    return [17, "file", object(), closed, ends.here().file]


def refuses_bad_files(end: End, ends: Ends, call: str) -> None:
    for file in bad_files(end, ends):
        with nd_error(Status.INVALID_HANDLE, match="(?i)file") as caught:
            CREATED[call](end.adapter, overlapped_file=file)
        assert isinstance(caught.value, ValueError)


def device_removed(end: End, call: Callable[[], Any]) -> None:
    end.close()
    with nd_error(Status.DEVICE_REMOVED):
        call()


# Create: queue pairs
def maxima(info: AdapterInfo) -> dict[str, int]:
    return {
        "receive_depth": info.max_receive_queue_depth,
        "initiator_depth": info.max_initiator_queue_depth,
        "max_receive_sge": info.max_receive_sge,
        "max_initiator_sge": info.max_initiator_sge,
        "inline_size": info.max_inline_data_size,
    }


def above(end: End, name: str, status: Status) -> None:
    limit = maxima(end.info)[name]
    with nd_error(status, match=str(limit + 1)) as caught:
        end.adapter.create_queue_pair(end.cq, end.cq, **{name: limit + 1})
    assert str(limit) in str(caught.value)
    assert isinstance(caught.value, ValueError)
