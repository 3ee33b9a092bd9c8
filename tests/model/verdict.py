# SPDX-License-Identifier: Apache-2.0
"""A model that cannot fail proves nothing: each is explored again with one order removed."""

from collections.abc import Callable


def violated(run: Callable[[], int]) -> bool:
    """Does some execution break an assertion?"""
    try:
        run()
    except AssertionError as exc:
        return "too large" not in str(exc)
    return False
