# SPDX-License-Identifier: Apache-2.0
"""Helpers that the tests of ways to run Python share."""

import os


def reported(child: int, read: int) -> list[str]:
    """What it reported, and its good end."""
    with os.fdopen(read, "rb") as pipe:
        said: list[str] = eval(pipe.read())
    assert os.waitpid(child, 0)[1] == 0, said
    return said
