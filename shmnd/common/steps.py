# SPDX-License-Identifier: Apache-2.0
"""Named steps of the protocols that are carried out in Python.

A test sets `reached` to see them, or to end the process at one; no other code sets it. The steps of
the compiled part have their names in the same way (kill_point.h).
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["step"]

reached: Callable[[str], None] | None = None


def step(name: str) -> None:
    """Pass a step of a protocol."""
    if reached is not None:
        reached(name)
