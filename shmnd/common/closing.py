# SPDX-License-Identifier: Apache-2.0
"""What every object with a `close()` has besides: `with`, the end of its life, and no copies."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Final, NoReturn, Self, SupportsIndex

from shmnd.common.interruption import is_interruption

__all__ = ["Closing", "Front", "refuse_copy"]


_TWICE: Final = (
    "it belongs to this process, and its end would come twice; another process opens an adapter of"
    " its own and connects"
)


def refuse_copy(obj: object, why: str = _TWICE) -> NoReturn:
    """Raise TypeError: the object can be neither copied nor pickled."""
    raise TypeError(f"cannot copy or pickle {type(obj).__name__!r} object: {why}")


class Closing:
    """Base of the objects released by `close()`, which may be called twice, late, or never."""

    __slots__ = ()

    def close(self) -> None:
        """Release the object; every subclass says how."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        refuse_copy(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    _interpreter_ends: ClassVar[Any] = staticmethod(sys.is_finalizing)

    def __del__(self) -> None:
        try:
            self.close()
        except BaseException as exc:
            if self._interpreter_ends():
                return  # the parts of this module may be gone
            if is_interruption(exc):
                self.close()  # continues it: no other call will
                raise
            # Else half-made: no caller could take the error.


class Front(Closing):
    """Base of an object in front of another one that closes itself when it is dropped.

    A pending operation may keep the other object longer than this one.
    """

    __slots__ = ()

    def __del__(self) -> None:
        pass
