# SPDX-License-Identifier: Apache-2.0
"""Masked arrays, where there is no place for a mask."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


def test_a_mask_is_not_dropped_without_a_word() -> None:
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    whole = np.ma.masked_array([1.0, 2.0, 3.0])
    kinds: dict[Any, Callable[[Any], Any]] = {
        "f8": lambda value: value,
        "f4": lambda value: value,
        ipc.Array("f8", 3): lambda value: value,
        ipc.Arrays(at=ipc.Array("f8", 3)): lambda value: {"at": value},
    }
    for number, (kind, make) in enumerate(kinds.items()):
        topic = f"masked{number}"
        with ipc.Publisher(topic, kind) as pub, ipc.Subscriber(topic) as sub:
            with pytest.raises(ipc.TypeMismatch, match=r"masked.*value\.filled"):
                pub.send(make(masked))
            pub.send(make(whole))
            assert sub.receive(PATIENCE).array.tobytes()
    with ipc.Blackboard("masked", {"at": "3f8"}) as board:
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            board["at"] = masked
        board["at"] = whole
        assert board["at"].tolist() == [1, 2, 3]
