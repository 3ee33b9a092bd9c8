# SPDX-License-Identifier: Apache-2.0
"""Arrays that a producer may not write: their consumer gets memory of its own, and may."""

from typing import Any

import numpy as np
import pytest

from shmnd import ipc

ARRAYS = {
    "small": np.arange(10),
    "large": np.arange(1 << 16),
    "empty": np.empty((0, 3)),
    "fortran": np.asfortranarray(np.arange(90_000.0).reshape(300, 300)),
    "strided": np.arange(1 << 16)[::2],
    "record": np.array([(1, 2.5)] * 5000, dtype=[("a", "i4"), ("b", "f8")]),
    "objects": np.array([{"k": 1}, None], dtype=object),
    "dates": np.array(["2026-01-01"] * 5000, dtype="M8[D]"),
    "scalar": np.array(7.5),
}


def _through(queue: ipc.Queue, value: Any) -> Any:
    queue.put(value)
    return queue.get(timeout=30)


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_read_only_array_within_an_object_comes_back_writable(array: Any) -> None:
    array = array.view()
    array.flags.writeable = False
    with ipc.Queue() as queue:
        got = _through(queue, {"number": 1, "array": array})["array"]
        assert type(got) is np.ndarray
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert (got == array).all()
        assert got.flags.writeable
        assert not array.flags.writeable
        before = array.copy()
        got[...] = np.zeros((), got.dtype)
        assert (array == before).all(), "the producer's own stays"


def test_a_sample_that_is_passed_on_can_be_written() -> None:
    """As a collector does that gives the work on frames to others."""
    with ipc.Publisher("frames", "u1") as pub, ipc.Subscriber("frames") as sub:
        pub.send(np.full((300, 300), 7, "u1"))
        frame = sub.receive(timeout=30).array
        with ipc.Queue() as queue:
            number, got = _through(queue, (5, frame))
            got += 1
            assert number == 5
            assert (got == 8).all()
            assert (frame == 7).all()
            again = _through(queue, [frame[::2], frame, frame])
            assert again[1] is again[2]
            assert all(each.flags.writeable and (each == 7).all() for each in again)
