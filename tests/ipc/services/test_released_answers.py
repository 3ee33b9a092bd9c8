# SPDX-License-Identifier: Apache-2.0
"""An answer that was released says so, as a sample of a topic does."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

READINGS: dict[str, Callable[[Any], object]] = {
    "value": lambda sample: sample.value,
    "array": lambda sample: sample.array,
    "header": lambda sample: sample.header,
    "__array__": np.asarray,
    "__dlpack__": np.from_dlpack,
}
VALUES = [np.arange(4.0), b"bytes", {"a": 1}, None]


def answer_to(value: Any) -> ipc.Sample:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send("any")
        next(iter(server)).respond(value)
        return pending.result(60)


def sample_of(value: Any) -> ipc.Sample:
    with ipc.Publisher("t") as publisher, ipc.Subscriber("t") as subscriber:
        publisher.send(value)
        return subscriber.receive(60)


@pytest.fixture(params=[answer_to, sample_of])
def received(request: pytest.FixtureRequest) -> Any:
    """Receive a value in one of two ways."""
    return request.param


@pytest.mark.parametrize("what", READINGS)
def test_a_released_one_has_no_value(received: Callable[[Any], ipc.Sample], what: str) -> None:
    sample = received(np.arange(4.0))
    assert np.array_equal(sample.array, np.arange(4.0))
    sample.release()
    sample.release()
    with pytest.raises(ipc.Closed, match="it was released"):
        READINGS[what](sample)
    with pytest.raises(BufferError, match="it was released"):
        memoryview(sample)
    assert "released" in repr(sample)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_with_block_releases_an_answer(value: Any) -> None:
    with answer_to(value) as answer:
        kept = answer.value
        assert answer.header is None
    assert np.array_equal(kept, value)
    with pytest.raises(ipc.Closed):
        _ = answer.value
    with pytest.raises(ipc.Closed):
        pickle.dumps(answer)
