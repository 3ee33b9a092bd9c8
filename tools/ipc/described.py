# SPDX-License-Identifier: Apache-2.0
"""The descriptions of topics in a recording, and the samples that agree with them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from shmnd import ipc
from shmnd.ipc.common.limits import attributes_of, checked_name, number
from shmnd.ipc.topic.seats import MOST_BUFFER

from ..sample_kinds import ARRAYS, BYTES, OBJECT

__all__ = ["KIND_BITS", "Recorded", "change_of", "history_of", "is_of", "type_of"]

KIND_BITS: Final = 8
"""Behind those of its kind, an item has the number of its type."""
_TOPIC_KEYS: Final = {"name", "type", "attributes"}


class Recorded:
    """One sample of a file."""

    def __init__(self, at: int, entry: Any, header: bytes, array: Any) -> None:
        self.at = at
        self.kind = int(entry["kind"]) & (1 << KIND_BITS) - 1
        self.layout = int(entry["kind"]) >> KIND_BITS
        self.topic = int(entry["topic"])
        self.sequence = int(entry["sequence"])
        self.timestamp_ns = int(entry["when_ns"])
        self.header = header or None
        self.array: Any = array

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Its entry in the index."""
        return self.at, self.topic, self.kind | self.layout << KIND_BITS, self.timestamp_ns


def type_of(description: Any) -> ipc.TopicType:
    """Return the type of a topic; ValueError or TypeError where its description makes no sense."""
    if not isinstance(description, dict) or not description.keys() >= _TOPIC_KEYS:
        raise ValueError(f"it has no {', '.join(sorted(_TOPIC_KEYS))}")
    checked_name(description["name"], "topic")
    attributes_of(description["attributes"], "topic")
    history_of(description)
    return ipc.TopicType.from_description(description["type"])


def change_of(before: dict[str, Any], description: Any) -> dict[str, Any]:
    """Return the later description of a topic; ValueError where it is one of another topic."""
    if type_of(description) != type_of(before) or description["name"] != before["name"]:
        raise ValueError("it is one of another topic")
    return dict(description)


def history_of(description: Any) -> int:
    """Return how many samples publishers of a topic kept; older recordings do not say it."""
    return number("topic", "history", description.get("history", 0), 0, MOST_BUFFER)


def is_of(type_: ipc.TopicType, sample: Recorded) -> bool:
    """Return whether a sample is of the type of its topic."""
    array = sample.array
    word = type_.description
    if sample.kind in (BYTES, OBJECT):
        plain = array.dtype == np.uint8 and array.ndim == 1
        if not plain or word not in ("bytes" if sample.kind == BYTES else "object", "any"):
            return False
        return sample.kind == BYTES or _is_packed(array)
    if sample.kind not in ARRAYS or word in ("bytes", "object"):
        return False
    typed = type_.dtype is None or type_.dtype == array.dtype
    return typed and type_.shape in (None, array.shape)


def _is_packed(array: Any) -> bool:
    try:
        ipc.PackedObject(array)
    except ValueError:
        return False
    return True
