# SPDX-License-Identifier: Apache-2.0
"""Small plain objects are pickled without the module pickle, to its bytes and its objects."""

import math
import pickle
import pickletools
import random
from typing import Any, NoReturn

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi.buffers import pickle as buffers_pickle
from shmnd.mpi.buffers.pickle import Pickle

PROTOCOL = 5
NUMBERS = [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32]
for bits in (39, 40, 47, 48, 55, 56):
    NUMBERS += [sign * (1 << bits) + more for sign in (1, -1) for more in (-1, 0, 1)]
NUMBERS += [2**63 - 1, -(2**63), 1 - 2**63]
TEXTS = ["", "a", "name", "München", "日本", "x" * 255, "y" * 256, "\0", "z" * 2000]
SCALARS = [None, True, False, *NUMBERS, 0.0, -0.0, 1.5, math.inf, 5e-324, *TEXTS]
SCALARS += [b"", b"a", bytes(255), bytes(range(256)), bytes(3000)]
# What the functions leave to the module: by type, by length, by depth.
BEYOND = [2**63, -(2**63) - 1, 1j, "\ud800", {1, 2}, frozenset(), bytearray(b"x"), range(3)]
BEYOND += [bytes(5000), "w" * 5000, [0] * 129, dict.fromkeys(range(65)), [[[[[[[[[]]]]]]]]], 10**40]


class ModuleIsUsed(Exception):
    pass


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Pickle:
    """A Pickle that raises where it would call the module pickle."""

    def refuse(*_args: Any, **_options: Any) -> NoReturn:
        raise ModuleIsUsed

    monkeypatch.setattr(buffers_pickle, "_py_dumps", refuse)
    monkeypatch.setattr(buffers_pickle, "_py_loads", refuse)
    return Pickle()


def _plain(dice: random.Random, depth: int, known: list[Any]) -> Any:
    """Return a random object; `known` has objects that may be in it more than once."""
    kind = dice.randrange(10 if depth else 5)
    made: Any
    if kind < 4 or (depth == 0 and not known):
        made = dice.choice(SCALARS[:-4])
    elif kind == 4 and known:
        made = dice.choice(known)
    elif kind < 7:
        made = [_plain(dice, depth - 1, known) for _ in range(dice.randrange(5))]
    elif kind == 7:
        made = tuple(_plain(dice, depth - 1, known) for _ in range(dice.randrange(6)))
    else:
        keys = [
            dice.choice(["a", "name", 3, (1, "k"), 2.5, None]) for _ in range(dice.randrange(5))
        ]
        made = {key: _plain(dice, depth - 1, known) for key in keys}
    known.append(made)
    return made


@pytest.mark.parametrize("obj", SCALARS, ids=repr)
def test_a_scalar_has_the_bytes_of_the_module(alone: Pickle, obj: Any) -> None:
    for whole in (obj, [obj], (obj,), {"key": obj}, [obj, obj], (obj, obj, obj, obj)):
        data = alone.dumps(whole)
        assert data == pickle.dumps(whole, PROTOCOL)
        assert repr(alone.loads(data)) == repr(whole)


@pytest.mark.parametrize("obj", [(), [], {}, [1], [1, 2], {1: 2}, {1: 2, 3: 4}, ((), [()], {})])
def test_a_container_has_the_bytes_of_the_module(alone: Pickle, obj: Any) -> None:
    data = alone.dumps(obj)
    assert data == pickle.dumps(obj, PROTOCOL)
    assert alone.loads(data) == obj


@pytest.mark.parametrize("obj", BEYOND, ids=lambda obj: repr(obj)[:30])
def test_other_objects_are_left_to_the_module(alone: Pickle, obj: Any) -> None:
    with pytest.raises(ModuleIsUsed):
        alone.dumps(obj)
    with pytest.raises(ModuleIsUsed):
        alone.dumps([1, "a", obj])


@pytest.mark.parametrize("obj", BEYOND, ids=lambda obj: repr(obj)[:30])
def test_the_module_pickles_other_objects(obj: Any) -> None:
    for whole in (obj, [obj], [1, "a", obj], {"a": obj}, (obj, 2, 3, 4)):
        assert Pickle().dumps(whole) == pickle.dumps(whole, PROTOCOL)
        assert Pickle().loads(pickle.dumps(whole, PROTOCOL)) == whole


def test_an_object_that_is_there_twice_is_one_object_again(alone: Pickle) -> None:
    inner = ["inner"]
    first, second, third = alone.loads(alone.dumps([inner, inner, (inner,)]))
    assert first is second is third[0]
    itself: list[Any] = []
    itself.append(itself)
    loaded = alone.loads(alone.dumps(itself))
    assert loaded[0] is loaded


def test_a_tuple_that_is_in_itself_is_left_to_the_module() -> None:
    within: Any = ([],)
    within[0].append(within)
    data = Pickle().dumps(within)
    assert data == pickle.dumps(within, PROTOCOL)
    loaded = Pickle().loads(data)
    assert loaded[0][0] is loaded


@pytest.mark.parametrize("seed", range(8))
def test_random_objects_have_the_bytes_of_the_module(alone: Pickle, seed: int) -> None:
    dice = random.Random(seed)
    taken = 0
    for _ in range(500):
        obj = _plain(dice, dice.randrange(5), [])
        expected = pickle.dumps(obj, PROTOCOL)
        try:
            data = alone.dumps(obj)
        except ModuleIsUsed:
            continue
        taken += 1
        assert data == expected
        loaded = alone.loads(data)
        assert repr(loaded) == repr(obj)
        assert pickle.dumps(loaded, PROTOCOL) == pickle.dumps(pickle.loads(expected), PROTOCOL)
    assert taken > 250


# Opcodes that a changed byte may make, and that no program should carry out: they import and call.
_NAMES = (
    "PROTO FRAME NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE "
    "BINUNICODE SHORT_BINBYTES BINBYTES EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 APPEND APPENDS SETITEM SETITEMS MARK MEMOIZE BINGET STOP POP POP_MARK DUP EMPTY_SET "
    "ADDITEMS FROZENSET BINPUT INT FLOAT LONG STRING"
)
HARMLESS = frozenset(_NAMES.split())


BEYOND_A_FRAME = "an opcode that ends behind its frame"
"""An error in the module of CPython 3.14 alone."""


def _harmless(data: bytes) -> bool:
    try:
        return all(op.name in HARMLESS for op, _, _ in pickletools.genops(data))
    except Exception:  # it ends there for the module as well
        return True


def _outcome(load: Any, data: bytes) -> str:
    try:
        return repr(load(data))
    except Exception as error:
        return BEYOND_A_FRAME if "end of frame" in str(error) else type(error).__name__


@pytest.mark.parametrize("seed", range(6))
def test_wrong_bytes_have_the_outcome_of_the_module(seed: int) -> None:
    dice = random.Random(seed)
    opcodes = [op.code.encode("latin-1")[0] for op in pickletools.opcodes if op.name in HARMLESS]
    ours = Pickle()
    compared = 0
    for _ in range(4000):
        data = bytearray(pickle.dumps(_plain(dice, 3, []), PROTOCOL))
        for _ in range(dice.choice([1, 1, 2, 5])):
            change = dice.randrange(4)
            place = dice.randrange(len(data))
            if change == 0:
                data[place] = dice.randrange(256)
            elif change == 1:
                data[place] = dice.choice(opcodes)
            elif change == 2:
                data.insert(place, dice.choice(opcodes))
            elif len(data) > 1:
                del data[place]
        changed = bytes(data)
        if _harmless(changed):
            compared += 1
            wanted = _outcome(pickle.loads, changed)
            if wanted not in (BEYOND_A_FRAME, _outcome(ours.loads, changed)):
                raise AssertionError((changed, wanted))
    assert compared > 1000


def test_every_cut_has_the_error_of_the_module() -> None:
    data = pickle.dumps({"name": ["a", (1, 2.5, 2**40)], "more": {"b": b"bytes"}}, PROTOCOL)
    for end in range(len(data)):
        assert _outcome(Pickle().loads, data[:end]) == _outcome(pickle.loads, data[:end])


def test_functions_of_the_program_are_used_for_small_objects_too() -> None:
    given = Pickle(dumps=lambda obj, _protocol=None: repr(obj).encode(), loads=bytes.decode)
    assert given.loads(given.dumps([1])) == "[1]"
    assert Pickle(protocol=4).dumps([1]) == pickle.dumps([1], 4)


KEEPS = """
from mpi4py import MPI
MPI.pickle.__init__(dumps=lambda obj, *_: bytes(obj), loads=lambda data: data)
comm = MPI.COMM_WORLD
kept = []
for size in (10, 100_000):
    if comm.rank == 0:
        comm.send(b"a" * size, 1)
    else:
        kept.append(comm.recv(source=0))
for size in (10, 100_000) * 20:  # into the memory that the first ones had
    if comm.rank == 0:
        comm.send(b"b" * size, 1)
    else:
        comm.recv(source=0)
assert all(set(data) == {ord("a")} for data in kept), kept
"""


def test_a_function_of_the_program_may_keep_the_bytes_that_it_gets() -> None:
    assert launch(2, "-c", KEEPS).returncode == 0
