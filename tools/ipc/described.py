# SPDX-License-Identifier: Apache-2.0
"""The descriptions of topics in a recording, and the samples that agree with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd import ipc
from shmnd.ipc.common.limits import attributes_of, checked_name

from ..sample_kinds import ARRAYS, BYTES, OBJECT

if TYPE_CHECKING:
    from .recording import Recorded

__all__ = ["is_of", "type_of"]

_TOPIC_KEYS: Final = {"name", "type", "attributes"}


def type_of(description: Any) -> ipc.TopicType:
    """Return the type of a topic; ValueError or TypeError where its description makes no sense."""
    if not isinstance(description, dict) or not description.keys() >= _TOPIC_KEYS:
        raise ValueError(f"it has no {', '.join(sorted(_TOPIC_KEYS))}")
    checked_name(description["name"], "topic")
    attributes_of(description["attributes"], "topic")
    return ipc.TopicType.from_description(description["type"])


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
