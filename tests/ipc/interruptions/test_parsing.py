# SPDX-License-Identifier: Apache-2.0
"""What a handler of a signal raises while a text is parsed is not taken for a fault of the text."""

import itertools
import json
from collections.abc import Callable

import numpy as np

import shmnd
from interrupting import inside, interrupted
from shmnd import ipc
from shmnd.ipc.types.forms import form_of

within = inside(shmnd, json, np)


def places_of(call: Callable[[], object]) -> int:
    """Interrupt a call at each of its places, and return how many there are.

    `interrupted` lets every exception pass but the handler's.
    """
    return next(at for at in itertools.count() if not interrupted(at, call, within))


def test_a_type_of_a_topic() -> None:
    description = form_of(np.dtype([("a", "i4"), ("b", "f8")]), "test").description
    assert places_of(lambda: ipc.TopicType.from_description(description)) > 5


def test_the_keys_of_a_blackboard() -> None:
    types = {"a": "f8", "b": ("i4", 3)}
    with ipc.Blackboard("parsed", types), ipc.BlackboardReader("parsed") as reader:
        board = reader._board
        assert board is not None

        def read_again() -> None:
            board._keys_read = 0
            board.keys.clear()
            board.read_keys("BlackboardReader.keys")

        assert places_of(read_again) > 5
        assert set(board.keys) == {"a", "b"}
