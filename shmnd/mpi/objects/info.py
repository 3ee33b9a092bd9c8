# SPDX-License-Identifier: Apache-2.0
"""Info: ordered pairs of strings, as hints to calls and as a mapping of Python."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import Handle, State, constant


class InfoState(State):
    """The pairs of an info object."""

    def __init__(self, items: Mapping[str, str] | None = None) -> None:
        """Keep a copy of the pairs."""
        super().__init__()
        self.items: dict[str, str] = dict(items or {})


def _environment(args: Sequence[str] | str | None) -> dict[str, str]:
    """Return what the standard wants in an info object about the start of the job."""
    if args is None:
        args = []
    words = [args] if isinstance(args, str) else [os.fspath(word) for word in args]
    return {
        "command": words[0] if words else sys.executable or "",
        "argv": " ".join(words[1:] if words else sys.argv),
        "maxprocs": os.environ.get("SHMND_MPI_SIZE", "1"),
        "soft": os.environ.get("SHMND_MPI_SIZE", "1"),
        "host": os.uname().nodename,
        "arch": os.uname().machine,
        "wdir": str(os.environ.get("PWD", "")),
        "thread_level": "MPI_THREAD_MULTIPLE",
    }


class Info(Handle):
    """Info object."""

    _family = "Info"

    def __new__(cls, info: "Info | None" = None) -> Self:
        """Return another handle to the same pairs."""
        return super().__new__(cls, info)

    @classmethod
    def _of(cls, items: Mapping[str, str]) -> Self:
        self = cls()
        self.ob = InfoState(items)
        return self

    def _pairs(self, call: str) -> dict[str, str]:
        self._require(constants.ERR_INFO, call)
        state: InfoState = self.ob
        return state.items

    @classmethod
    def Create(
        cls, items: "Info | Mapping[str, str] | Iterable[tuple[str, str]] | None" = None
    ) -> Self:
        """Create a new info object.

        Return it with the pairs of `items`, if there are any.
        """
        self = cls._of({})
        if items is not None:
            self.update(items)
        return self

    @classmethod
    def Create_env(cls, args: Sequence[str] | None = None) -> Self:
        """Create a new environment info object.

        Return it with the keys `command`, `argv`, `maxprocs` and so on of this process.
        """
        return cls._of(_environment(args))

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.ob is None or self.ob.predefined:
            return super().__reduce__()
        return (_restored, (type(self), self.items()))

    def Free(self) -> None:
        """Free an info object."""
        self._require_own(constants.ERR_INFO, "Free")
        self._release()

    def Dup(self) -> Self:
        """Duplicate an existing info object."""
        return self._of(self._pairs("Dup"))

    def Get(self, key: str) -> str | None:
        """Retrieve the value associated with a key."""
        return self._pairs("Get").get(key)

    def Set(self, key: str, value: str) -> None:
        """Store a value associated with a key."""
        pairs = self._pairs("Set")
        for what, text, limit, code in (
            ("key", key, constants.MAX_INFO_KEY, constants.ERR_INFO_KEY),
            ("value", value, constants.MAX_INFO_VAL, constants.ERR_INFO_VALUE),
        ):
            if not isinstance(text, str):
                raise TypeError(f"Info.Set: the {what} {text!r} is not a str")
            if len(text) > limit or (what == "key" and not text):
                raise MPIException(
                    code, f"Info.Set: the {what} has {len(text)} characters; the limit is {limit}"
                )
        pairs[key] = value

    def Delete(self, key: str) -> None:
        """Remove a (key, value) pair from info."""
        if self._pairs("Delete").pop(key, None) is None:
            raise MPIException(constants.ERR_INFO_NOKEY, f"Info.Delete({key!r}): there is none")

    def Get_nkeys(self) -> int:
        """Return the number of currently defined keys in info."""
        return len(self._pairs("Get_nkeys"))

    def Get_nthkey(self, n: int) -> str:
        """Return the *n*-th defined key in info."""
        keys = list(self._pairs("Get_nthkey"))
        if not 0 <= n < len(keys):
            raise MPIException(
                constants.ERR_ARG, f"Info.Get_nthkey({n}): there are {len(keys)} keys"
            )
        return keys[n]

    # As a mapping; null behaves as an empty one that takes nothing.

    def _mapping(self) -> dict[str, str]:
        state: InfoState | None = self.ob
        return {} if state is None else state.items

    def __len__(self) -> int:
        return len(self._mapping())

    def __bool__(self) -> bool:
        return self.ob is not None

    def __contains__(self, key: object, /) -> bool:
        return key in self._mapping()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, key: str, /) -> str:
        return self._mapping()[key]

    def __setitem__(self, key: str, value: str, /) -> None:
        if self.ob is None:
            raise KeyError(key)
        self.Set(key, value)

    def __delitem__(self, key: str, /) -> None:
        if key not in self._mapping():
            raise KeyError(key)
        self.Delete(key)

    def get(self, key: str, default: str | None = None) -> str | None:
        """Retrieve value by key."""
        return self._mapping().get(key, default)

    def keys(self) -> list[str]:
        """Return list of keys."""
        return list(self._mapping())

    def values(self) -> list[str]:
        """Return list of values."""
        return list(self._mapping().values())

    def items(self) -> list[tuple[str, str]]:
        """Return list of items."""
        return list(self._mapping().items())

    def update(
        self, items: "Info | Mapping[str, str] | Iterable[tuple[str, str]]" = (), **kwds: str
    ) -> None:
        """Update contents."""
        if self.ob is None:
            raise KeyError("Info.update: the handle is null")
        pairs = items.items() if isinstance(items, Info | Mapping) else items
        for key, value in pairs:
            self.Set(key, value)
        for key, value in kwds.items():
            self.Set(key, value)

    def pop(self, key: str, *default: str) -> str:
        """Pop value by key."""
        return self._mapping().pop(key, *default)

    def popitem(self) -> tuple[str, str]:
        """Pop first item."""
        return self._mapping().popitem()

    def copy(self) -> Self:
        """Copy contents."""
        return type(self)() if self.ob is None else self.Dup()

    def clear(self) -> None:
        """Clear contents."""
        self._mapping().clear()


def _restored(cls: type[Info], items: list[tuple[str, str]]) -> Info:
    """Return the info object of a pickle."""
    return cls.Create(items)


INFO_NULL: Final = constant(Info(), "INFO_NULL")
INFO_ENV: Final = constant(Info.Create_env(), "INFO_ENV")


def hints_of(info: Info | None, call: str) -> dict[str, str]:
    """Return the pairs that a call takes as hints; INFO_NULL and None stand for none."""
    require_info(info, call)
    return {} if info is None else dict(info.items())


def require_info(info: Info | None, call: str) -> None:
    """Raise TypeError where it is none: also in calls that take no hint."""
    if info is not None and not isinstance(info, Info):
        raise TypeError(f"{call}: info {info!r} is not an Info")


class InfoCalls:
    """The calls about hints, mixed into the classes of objects that keep them."""

    __slots__ = ()

    _family: str
    _state: Callable[[str], Any]

    def Set_info(self, info: Info) -> None:
        """Set new values for the hints associated with this object."""
        self._state("Set_info").info = hints_of(info, f"{self._family}.Set_info")

    def Get_info(self) -> Info:
        """Return the current hints for this object."""
        return Info.Create(self._state("Get_info").info or {})

    @property
    def info(self) -> Info:
        """Info hints."""
        return self.Get_info()

    @info.setter
    def info(self, value: Info) -> None:
        self.Set_info(value)
