# SPDX-License-Identifier: Apache-2.0
"""A process that announces a topic with a type that makes no sense."""

import uuid
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.types import forms

NONSENSE: list[Any] = [
    None, 5, "x", "{}", '"i8"', "[" * 3000, '{"array": []}', '{"array": 5}', '{"dtype": "%"}',
    '{"record": {"a": 1}}', '{"structured": []}', '{"dtype": ["i8"]}', '{"array": [["i8"], [-1]]}',
]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: str(text)[:16])
def test_others_of_the_topic_are_not_harmed(text: Any) -> None:
    name = f"topic-{uuid.uuid4().hex}"
    with shmnd.open_adapter() as adapter, ipc.Subscriber(name) as early:
        forged = {"head": 1, "sleepers": 2} | ({} if text is None else {"type": text})
        with Directory(adapter).announce("ipc.topic", name, forged):
            with ipc.Publisher(name, "i8", history=1) as pub, ipc.Subscriber(name) as late:
                pub.send(np.int64(7))
                for sub in (early, late):
                    assert sub.receive(timeout=30).value == 7
            assert name in [each.name for each in ipc.topics()]


@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: str(text)[:16])
def test_nonsense_is_a_value_error(text: Any) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        forms.form_from_text(text)


@pytest.mark.parametrize("attributes", [True, 5, 1.5, "x", [1], None], ids=repr)
def test_attributes_that_make_no_sense_are_none(attributes: Any) -> None:
    name = f"topic-{uuid.uuid4().hex}"
    forged = {"head": 1, "sleepers": 2, "type": "{}", "attributes": attributes}
    with shmnd.open_adapter() as adapter, Directory(adapter).announce("ipc.topic", name, forged):
        (found,) = (each for each in ipc.topics() if each.name == name)
        assert dict(found.attributes) == {}
        with ipc.Publisher(name, "i8", attributes={"rate": 5}):
            (found,) = (each for each in ipc.topics() if each.name == name)
            assert dict(found.attributes) == {"rate": 5}
