# SPDX-License-Identifier: Apache-2.0
"""Every public name is in the reference, and no other name."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

import shmnd
import shmnd.nd1
from nd1.test_public_api import EXPECTED
from shmnd import ipc
from unit.interface.test_public_api import ATTRIBUTES, METHODS

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"

# A class with the text below it: its listed members, and attributes described by hand.
_CLASS: Final = re.compile(r"^\.\. autoclass:: (\S+)\n((?:(?:   .*)?\n)*)", re.M)
_LISTED: Final = re.compile(r"^   :members: *(.*(?:\n {6}.*)*)", re.M)
_BY_HAND: Final = re.compile(r"^   \.\. (?:auto)?(?:attribute|method):: (\w+)", re.M)
_SINGLE: Final = re.compile(r"^\.\. (?:autofunction|data):: (\S+)", re.M)


def described() -> dict[str, set[str]]:
    """Each name of the reference, with the members that stand below it."""
    found: dict[str, set[str]] = {}
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text()
        found |= {name: set() for name in _SINGLE.findall(text)}
        for name, below in _CLASS.findall(text):
            listed = _LISTED.search(below)
            members = re.findall(r"\w+", listed[1]) if listed else []
            found[name] = {*members, *_BY_HAND.findall(below)}
    return found


NAMES: Final = described()
# What only an instance has.
SAMPLES: Final = {"shmnd.NdError": shmnd.NdError(0, ""), "shmnd.nd1.Result": shmnd.nd1.Result()}
VERSION_1: Final = {name.partition(".")[0] for name in EXPECTED}


@pytest.mark.parametrize("package", [shmnd, shmnd.nd1], ids=lambda package: package.__name__)
def test_every_exported_name_is_there(package: object) -> None:
    assert inspect.ismodule(package)
    exported = {f"{package.__name__}.{name}" for name in package.__all__ if name[0] != "_"}
    assert exported <= set(NAMES)


@pytest.mark.parametrize("cls", METHODS)
def test_every_method_and_attribute_of_version_2_is_there(cls: str) -> None:
    assert {*METHODS[cls], *ATTRIBUTES.get(cls, [])} <= NAMES[f"shmnd.{cls}"]


@pytest.mark.parametrize("cls", sorted(VERSION_1))
def test_every_method_of_version_1_is_there(cls: str) -> None:
    methods = {name.partition(".")[2] for name in EXPECTED if name.startswith(f"{cls}.")}
    assert methods <= NAMES[f"shmnd.nd1.{cls}"]


@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name]])
def test_listed_members_exist(name: str) -> None:
    module, _, cls = name.rpartition(".")
    owner = getattr(importlib.import_module(module), cls)
    shown = SAMPLES.get(name, owner)
    assert {member for member in NAMES[name] if not hasattr(shown, member)} == set()


@pytest.mark.parametrize("cls", ["shmnd.AdapterInfo", "shmnd.nd1.AdapterInfo"])
def test_every_field_of_the_adapter_is_there(cls: str) -> None:
    package = shmnd if cls == "shmnd.AdapterInfo" else shmnd.nd1
    assert set(inspect.signature(package.AdapterInfo).parameters) <= NAMES[cls]


def test_every_error_of_a_family_is_there() -> None:
    """The table names the built-in exception of each status that has one."""
    rows = re.findall(r"^\| (`.*) \| `(\w+)` \|$", (REFERENCE / "errors.md").read_text(), re.M)
    shown = {}
    for statuses, builtin in rows:
        for status in re.findall(r"\w+", statuses.replace("`_10`", "")):
            if status in shmnd.Status.__members__:
                shown[shmnd.Status[status]] = builtin
    for number in range(2, 11):
        shown[shmnd.Status[f"INVALID_PARAMETER_{number}"]] = "ValueError"
    families = {
        status: type(shmnd.NdError(status, "")).__mro__[2].__name__ for status in shmnd.Status
    }
    assert shown == {status: name for status, name in families.items() if name != "BaseException"}


def test_every_status_is_there_with_its_number() -> None:
    text = (REFERENCE / "errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (0x[0-9A-F]{8}) \| (.+) \|$", text, re.M)
    assert [(name, int(number, 16)) for name, number, _ in rows] == [
        (status.name, status.value) for status in shmnd.Status
    ]
    aliases = {name for name, status in shmnd.Status.__members__.items() if name != status.name}
    shown = re.findall(r"`(\w+)` is `(\w+)`", text)
    assert {name for name, _ in shown} == aliases
    assert all(shmnd.Status[name] is shmnd.Status[meant] for name, meant in shown)


def test_every_error_of_ipc_is_there_with_its_built_in_class() -> None:
    page = (REFERENCE / "ipc_objects.md").read_text()
    rows = re.findall(r"^\| `ipc\.(\w+)` \| `(\w+)` \|", page, re.M)
    classes = [getattr(ipc, name) for name in ipc.__all__]
    errors = [each for each in classes if isinstance(each, type) and issubclass(each, Exception)]
    assert rows == [(each.__name__, each.__mro__[1].__name__) for each in errors]
