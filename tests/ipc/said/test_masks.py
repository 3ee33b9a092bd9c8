# SPDX-License-Identifier: Apache-2.0
"""Masked arrays, where there is no place for a mask."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


def test_a_mask_is_not_dropped_without_an_error() -> None:
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
            got = sub.receive(PATIENCE).array
            assert (got["at"] if got.dtype.names else got).tolist() == [1, 2, 3]
    with ipc.Blackboard("masked", {"at": "3f8"}) as board:
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            board["at"] = masked
        board["at"] = whole
        assert board["at"].tolist() == [1, 2, 3]
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            board["new"] = masked
        assert "new" not in board


def test_a_mask_within_a_list_or_a_record_is_not_dropped() -> None:
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    whole = [1.0, 2.0, 3.0]
    for kind in ("f8", "i8"):
        with ipc.Publisher(f"lists/{kind}", kind) as pub:
            for value in ([masked, masked], [1.0, np.ma.masked], ([whole, masked],)):
                with pytest.raises(ipc.TypeMismatch, match="masked"):
                    pub.send(value)
    with ipc.Publisher("record", ipc.Arrays(at=ipc.Array("f8", 3))) as pub, pub.loan() as loan:
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            loan.array.at = masked
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            loan.array["at"] = [1.0, np.ma.masked, 3.0]
        loan.array.at = whole
        with pytest.raises(ipc.TypeMismatch, match="masked"):
            pub.send({"at": [1.0, np.ma.masked, 3.0]})
    with ipc.Blackboard("lists", {"at": "3f8"}) as board:
        for key in ("at", "new"):
            with pytest.raises(ipc.TypeMismatch, match="masked"):
                board[key] = [1.0, np.ma.masked, 3.0]
        assert "new" not in board
    with ipc.Client("lists", "f8") as client, pytest.raises(ipc.TypeMismatch, match="masked"):
        client.send([masked])


def test_a_mask_of_one_field_is_not_dropped_either() -> None:
    dtype = np.dtype([("a", "i4"), ("b", "f8")])
    rows = [(1, 2.0), (3, 4.0)]
    masked = np.ma.array(rows, mask=[(False, True), (False, False)], dtype=dtype)
    whole = np.ma.array(rows, dtype=dtype)
    with ipc.Publisher("fields", dtype) as pub, ipc.Subscriber("fields") as sub:
        for value in (masked, masked[:1], masked[0]):
            with pytest.raises(ipc.TypeMismatch, match="masked"):
                pub.send(value)
        for value in (whole, whole[:1], whole[0]):
            pub.send(value)
            assert sub.receive(PATIENCE).array.tobytes() == np.asarray(value).tobytes()
