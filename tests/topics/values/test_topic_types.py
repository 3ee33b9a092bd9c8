# SPDX-License-Identifier: Apache-2.0
"""Types of topics as values: read from an end, passed to another one, kept as JSON."""

import dataclasses
import json
import pickle
import uuid
from typing import Annotated, Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


@dataclasses.dataclass
class State:
    step: int
    pose: Annotated[np.ndarray, ipc.Array("f8", 6)]


ODD = np.dtype({"names": ["b", "a"], "formats": ["f8", "u1"], "offsets": [8, 0], "itemsize": 24})
TYPES: dict[str, tuple[Any, Any, str]] = {
    "dtype": ("f4", np.ones((2, 3), "f4"), "array"),
    "dates": ("M8[ms]", np.zeros(3, "M8[ms]"), "array"),
    "array": (ipc.Array(">u2", (2, 2)), np.ones((2, 2), ">u2"), "array"),
    "record": (State, State(3, np.ones(6)), "array"),
    "arrays": (ipc.Arrays(a=ipc.Array("i4", 3)), {"a": np.ones(3, "i4")}, "array"),
    "rows": (ODD, np.zeros(4, ODD), "array"),
    "bytes": (bytes, b"some", "bytes"),
    "object": (object, {"a": np.arange(5000)}, "object"),
    "any array": (None, np.ones((2, 1, 1, 1, 1), "i2"), "array"),
    "any bytes": (None, b"", "bytes"),
    "any object": (None, ("x", np.arange(2000)), "object"),
}


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


def as_sent(sample: ipc.Sample) -> Any:
    """Return what to send for the same sample, whatever its type."""
    if sample.kind == "object":
        return ipc.PackedObject(sample.array)
    return memoryview(sample.array) if sample.kind == "bytes" else sample.array


def same(one: ipc.Sample, other: ipc.Sample) -> bool:
    told = [
        (each.kind, each.header, each.array.dtype, each.array.shape, each.array.tobytes())
        for each in (one, other)
    ]
    return told[0] == told[1] and type(one.value) is type(other.value)


@pytest.mark.parametrize("what", TYPES)
def test_a_topic_is_carried_over_from_its_page_alone(name: str, what: str) -> None:
    type_, value, kind = TYPES[what]
    far = name + "-far"
    with ipc.Publisher(name, type_) as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        pub.send(value, b"head")
        found = sub.receive(timeout=PATIENCE)
        assert found.kind == kind
        assert sub.type == pub.type
        assert hash(sub.type) == hash(pub.type)
        assert sub.type is not None
        told = json.loads(json.dumps(sub.type.description))
        (described,) = (each for each in ipc.topics() if each.name == name)
        assert described.type == told
        again = ipc.TopicType.from_description(told)
        assert again == sub.type == pickle.loads(pickle.dumps(sub.type))
        with ipc.Publisher(far, again) as second, ipc.Subscriber(far, sub.type) as last:
            assert second.subscribers == 1
            second.send(as_sent(found), found.header)
            assert same(found, last.receive(timeout=PATIENCE))
    assert sub.type == pub.type  # closed, both


def test_an_end_without_a_publisher_has_no_type_yet(name: str) -> None:
    with ipc.Subscriber(name) as sub:
        assert sub.type is None
        with ipc.Publisher(name, None) as pub:
            assert sub.type == pub.type != None  # noqa: E711  # not None: any
            assert (pub.type.dtype, pub.type.shape) == (None, None)
    with ipc.Subscriber(name, "f8") as sub:
        assert sub.type is not None
        assert (sub.type.dtype, sub.type.shape) == (np.dtype("f8"), None)


def test_types_are_equal_where_ends_agree() -> None:
    def of(type_: Any) -> ipc.TopicType:
        with ipc.Publisher(uuid.uuid4().hex, type_) as pub:
            return pub.type

    fields = np.dtype([("step", "i8"), ("pose", "f8", 6)], align=True)
    packed = np.dtype([("step", "i8"), ("pose", "f8", 6)])
    assert of(State) == of(fields) == of(packed)
    assert len({of(State), of(fields), of(packed)}) == 1
    apart = [of(each) for each in ("f8", "f4", ipc.Array("f8"), bytes, object, None, State, ODD)]
    assert len(set(apart)) == 8
    assert of("f8") != "f8"


BAD: list[Any] = [
    None, 3, "f8", "", [], {}, {"dtype": "f8", "more": 1}, {"dtype": "O"}, {"dtype": "S"},
    {"dtype": []}, {"array": []}, {"array": ["<f8", 3]}, {"array": ["<f8", [-1]]}, {"record": 5},
    {"record": ["struct", [["a", "<f8", 0]], 4]}, {"structured": ["struct", [], 0]},
    {"structured": {"a": 1}}, object(), {"array": ["<f8", [1] * 40]}, {"record": "<f8"},
    {"structured": "<f8"},
]  # fmt: skip


@pytest.mark.parametrize("description", BAD, ids=repr)
def test_a_description_that_makes_no_sense(description: Any) -> None:
    with pytest.raises(ValueError, match=r"ipc\.TopicType: the description .* makes no sense"):
        ipc.TopicType.from_description(description)


def test_a_packed_object_is_an_object_and_goes_to_topics_of_objects_alone(name: str) -> None:
    for data in (b"", b"pickle", bytes(64), b"\xff" * 64):
        with pytest.raises(ValueError, match="object"):
            ipc.PackedObject(data)
    with pytest.raises(TypeError):
        ipc.PackedObject("text")
    with ipc.Publisher(name, object, history=1) as pub, ipc.Subscriber(name) as sub:
        pub.send([1, np.arange(9)])
        data = bytes(sub.receive(timeout=PATIENCE).array)
    value = ipc.PackedObject(data)
    assert repr(value) == f"<PackedObject of {len(data)} bytes>"
    for type_ in ("u1", bytes, State):
        with (
            ipc.Publisher(f"{name}-{type_}", type_) as pub,
            pytest.raises(ipc.TypeMismatch, match="packed object"),
        ):
            pub.send(value)


def test_one_that_adopts_knows_the_type_of_the_newest_publisher(name: str) -> None:
    with ipc.Publisher(name, "f8") as first, ipc.Subscriber(name) as sub:
        assert sub.type == first.type
        with ipc.Publisher(f"{name}-other", "i4") as model:
            wanted = model.type
        first.close()
        with ipc.Publisher(name, "i4", history=2) as second:
            assert sub.publishers == 0  # one of another type is not counted
            with pytest.raises(ipc.TypeMismatch):
                sub.receive(timeout=PATIENCE)
            sub.adopt()
            assert sub.type == wanted
            second.send(np.arange(3, dtype="i4"))
            assert sub.receive(timeout=PATIENCE).array.tolist() == [0, 1, 2]
            sub.adopt()  # nothing is new
            assert sub.type == wanted
    with pytest.raises(ipc.Closed):
        sub.adopt()
