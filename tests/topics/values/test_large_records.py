# SPDX-License-Identifier: Apache-2.0
"""Records of 2 GiB and more: numpy makes types of some whose fields lie beyond their end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from shmnd import ipc

GIB = ("f8", (1 << 27,))


@dataclass
class Two:
    a: Annotated[Any, ipc.Array(*GIB)]
    b: Annotated[Any, ipc.Array(*GIB)]


@dataclass
class Four:
    """Of 8 bytes, by the sum of a C int."""

    a: Annotated[Any, ipc.Array(*GIB)]
    b: Annotated[Any, ipc.Array(*GIB)]
    c: Annotated[Any, ipc.Array(*GIB)]
    d: Annotated[Any, ipc.Array(*GIB)]
    last: int


FIELDS = [(name, *GIB) for name in "abcd"] + [("last", "i8")]
TYPES: dict[str, Any] = {
    "two": Two,
    "four": Four,
    "list": FIELDS,
    "dtype": np.dtype(FIELDS),
    "within": [("inner", np.dtype(FIELDS)), ("x", "u1")],
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "publisher": lambda type_: ipc.Publisher("large", type_),
    "subscriber": lambda type_: ipc.Subscriber("large", type_),
    "array": lambda type_: ipc.Array(type_, ()),
    "server": lambda type_: ipc.Server("large", type_),
    "blackboard": lambda type_: ipc.Blackboard("large", {"key": type_}),
}
CASES = [
    pytest.param(end, type_, id=f"{name}-{of}")
    for name, end in ENDS.items()
    for of, type_ in TYPES.items()
    # The others take a dataclass as an object, or not at all.
    if name in ("publisher", "subscriber") or not isinstance(type_, type)
]


@pytest.mark.parametrize(("end", "type_"), CASES)
def test_no_type_has_a_field_beyond_its_end(end: Callable[[Any], Any], type_: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"; pass parts of less than 2 GiB"):
        end(type_)


def test_the_error_names_the_class_of_the_program() -> None:
    with pytest.raises(ValueError, match=r"^Publisher: type Four cannot be used: its fields take"):
        ipc.Publisher("large", Four)
    arrays = ipc.Arrays(a=ipc.Array(*GIB), b=ipc.Array(*GIB))
    with pytest.raises(ValueError, match=r"^Publisher: type Arrays\(a=Array\(dtype=dtype"):
        ipc.Publisher("large", arrays)
