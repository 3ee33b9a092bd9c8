# SPDX-License-Identifier: Apache-2.0
"""Keys of blackboards that are records: of a dataclass, or of several arrays."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


@dataclass
class Joint:
    angle: float
    on: bool


@dataclass
class Arm:
    step: int
    size: int
    joint: Joint
    pose: Annotated[np.ndarray, ipc.Array("f4", 6)]


ARRAYS = ipc.Arrays(at=ipc.Array("f8", (2, 3)), count=ipc.Array("u1", 4))


def test_a_key_of_a_dataclass_has_its_fields() -> None:
    with ipc.Blackboard("b", {"arm": Arm}) as board, ipc.BlackboardReader("b") as reader:
        board["arm"] = Arm(7, 9, Joint(0.5, True), np.arange(6, dtype="f4"))
        value = reader.wait("arm", timeout=PATIENCE)
        assert value.step == value["step"] == 7
        assert value.joint.angle == value["joint"]["angle"] == 0.5
        assert value.joint.on
        assert value.size == value["size"] == 9
        assert value.pose.tolist() == value["pose"].tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(TypeError, match=r"unknown.*steps"):
            board["arm"] = {"steps": 1}
        board.add("arm", Arm)  # it is there
        with pytest.raises(ValueError, match="take another key"):
            board.add("arm", ARRAYS)
        assert reader["arm"].step == 7


def test_a_key_of_several_arrays_has_their_fields() -> None:
    with ipc.Blackboard("b", {"both": ARRAYS}) as board, ipc.BlackboardReader("b") as reader:
        board["both"] = {"at": np.ones((2, 3)), "count": [1, 2, 3, 4]}
        value = reader.wait("both", timeout=PATIENCE)
        assert value.at.sum() == value["at"].sum() == 6
        assert value.count.tolist() == [1, 2, 3, 4]
        assert reader.version("both") == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Joint, Joint(0.5, True)), (ARRAYS, {"at": np.ones((2, 3)), "count": [1] * 4})],
)
def test_the_writer_reads_a_record_as_readers_do(kind: object, value: object) -> None:
    with ipc.Blackboard("b", {"k": kind}) as board, ipc.BlackboardReader("b") as reader:
        board["k"] = value
        assert board["k"] == reader.wait("k", timeout=PATIENCE)
        assert len(board["k"].items()) == 2


def test_keys_of_record_arrays_of_numpy_are_arrays() -> None:
    """`np.record` is a class of the program's, and no mark of records of a dataclass."""
    plain = np.dtype((np.record, [("a", "f8")]))
    keys = {"one": plain, "three": ipc.Array(plain, (3,)), "tuple": (plain, (3,))}
    with ipc.Blackboard("b", keys) as board, ipc.BlackboardReader("b") as reader:
        for key in ("three", "tuple"):
            board[key] = np.ones(3, plain)
            for value in (reader.wait(key, timeout=PATIENCE), board[key]):
                assert value.shape == (3,)
                assert value["a"].sum() == 3
        board["one"] = np.ones((), plain)
        assert reader.wait("one", timeout=PATIENCE)["a"] == 1


def test_a_key_of_an_equal_dtype_is_not_one_of_a_dataclass() -> None:
    dtype = np.dtype([("angle", "f8"), ("on", "?")], align=True)
    with ipc.Blackboard("b", {"plain": dtype, "joint": Joint}) as board:
        with pytest.raises(ValueError, match=r"key 'plain' is \{.* not a record of"):
            board.add("plain", Joint)
        with pytest.raises(ValueError, match="key 'joint' is a record of"):
            board.add("joint", dtype)


def test_an_object_of_a_dataclass_is_no_type_of_a_key() -> None:
    with pytest.raises(TypeError, match=r"is an object of Joint; pass the class, Joint"):
        ipc.Blackboard("b", {"k": Joint(0.5, True)})
