# SPDX-License-Identifier: Apache-2.0
"""Buffers of Python objects are refused as memory: bytes in place of a reference are a crash."""

import ctypes
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmnd
import shmnd.nd1 as nd
from shmnd import MrFlag, NdError, Status
from shmnd.common.objects import holds_objects


class Either(ctypes.Union):
    """A reference, or a number."""

    _fields_ = (("what", ctypes.py_object), ("number", ctypes.c_long))


class Within(ctypes.Structure):
    """Such a union between other fields."""

    _fields_ = (("before", ctypes.c_long), ("either", Either * 2))


class Derived(Within):
    """A structure whose base has the reference."""

    _fields_ = (("after", ctypes.c_long),)


class Numbers(ctypes.Union):
    """No reference."""

    _fields_ = (("O", ctypes.c_long), ("address", ctypes.c_void_p))


class Endless(np.ndarray[Any, Any]):
    """An array that says that its memory is its own."""

    @property
    def base(self) -> Any:
        """Return the array itself, as no array of numpy does."""
        return self


OBJECTS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.array([object()] * 100, dtype=object),
    "record": lambda: np.zeros(100, dtype=[("Over", "i4"), ("what", "O")]),
    "view": lambda: memoryview(np.array([object()] * 100, dtype=object)),
    "ctypes": lambda: (ctypes.py_object * 100)(),
    "union": Either,
    "unions": lambda: (Either * 10)(),
    "union within": Within,
    "inherited": Derived,
    "view of a union": lambda: memoryview(Derived()),
    "pickled union": lambda: pickle.PickleBuffer(Derived()),
    "bytes of a union": lambda: np.frombuffer(Derived(), np.uint8)[1:],
    "bytes of an array": lambda: np.frombuffer(np.array([object()] * 9, dtype=object), np.uint8),
    "bytes of a view": lambda: memoryview(np.frombuffer(Within(), np.uint8)),
    "texts": lambda: np.array(["a"] * 100, dtype=np.dtypes.StringDType()),
}


@pytest.mark.parametrize("flags", [0, MrFlag.ALLOW_LOCAL_WRITE])
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS.keys())
def test_objects_are_not_registered(make: Callable[[], Any], flags: int) -> None:
    with shmnd.open_adapter() as adapter, nd.Provider().open_adapter("127.0.0.1") as earlier:
        region = adapter.create_memory_region()
        with pytest.raises(NdError, match=r"of Python objects.*convert them") as caught:
            region.register(make(), flags)
        assert caught.value.status == Status.ACCESS_VIOLATION
        region.register(bytearray(8), flags).result(30)  # nothing stayed of it
        with pytest.raises(NdError, match="of Python objects") as caught:
            earlier.register_memory(make())
        assert caught.value.status == Status.ACCESS_VIOLATION


def test_an_o_in_a_name_is_not_an_object() -> None:
    layouts = {"O": True, "<O": True, "T{i:Over:O:b:}": True, "T{(2,2)i:O:T{f:OO:}:O:}": False}
    assert {layout: holds_objects(layout) for layout in layouts} == layouts
    with shmnd.open_adapter() as adapter:
        region = adapter.create_memory_region()
        region.register(np.zeros(4, dtype=[("Over", "i4"), ("O", "f8")])).result(30)
        region.deregister().result(30)
        region.register((Numbers * 4)()).result(30)
        region.deregister().result(30)
        region.register(np.zeros(8, np.uint8).view(Endless)).result(30)


@pytest.mark.parametrize("make", [OBJECTS["array"], OBJECTS["unions"]], ids=["array", "unions"])
def test_no_call_writes_over_objects(make: Callable[[], Any]) -> None:
    objects = make()
    with shmnd.open_adapter() as adapter, nd.Provider().open_adapter("127.0.0.1") as earlier:
        for call in (
            adapter.query_into,
            adapter.query_address_list_into,
            shmnd.Provider().query_address_list_into,
            lambda buffer: earlier.query_into(1, buffer),
            earlier.query_address_list_into,
        ):
            with pytest.raises(NdError, match="of Python objects"):
                call(objects)
    if isinstance(objects, np.ndarray):
        assert all(type(each) is object for each in objects)
    else:
        assert bytes(objects) == bytes(len(bytes(objects)))
