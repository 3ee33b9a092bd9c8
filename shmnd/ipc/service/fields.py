# SPDX-License-Identifier: Apache-2.0
"""Values of `ipc.Arrays` in requests and answers."""

from __future__ import annotations

from typing import Any

__all__ = ["Fields", "with_fields"]


class Fields(dict[str, Any]):
    """The arrays of a value by key and by attribute. It is pickled and copied as a dict."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise _no_field(name, self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self:
            raise _no_field(name, self)
        self[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _no_field(name: str, fields: Fields) -> AttributeError:
    return AttributeError(f"the value has no field {name!r}; it has {', '.join(fields)}")


def with_fields(value: Any, type_: Any) -> Any:
    """Return a value that came from another process; one of `ipc.Arrays` with its attributes."""
    if type(value) is dict and isinstance(getattr(type_, "arrays", None), dict):
        return Fields(value)
    return value
