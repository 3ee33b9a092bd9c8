# SPDX-License-Identifier: Apache-2.0
"""What every object with a `close()` has besides: `with`, and the end of its life."""

from __future__ import annotations

from typing import Self

__all__ = ["Closing"]


class Closing:
    """Base of what is released by `close()`, which may come twice, late, or never."""

    __slots__ = ()

    def close(self) -> None:
        """Release the object; every subclass says how."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass  # half-made, or the interpreter is ending: there is nobody to tell
