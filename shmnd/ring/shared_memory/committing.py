# SPDX-License-Identifier: Apache-2.0
"""How the pages of a new file are committed."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["commit"]

_PIECE: Final = 2 << 20
"""Bytes of one call. On many kernels a signal undoes what a call of fallocate has done so far: with
a timer of a millisecond, a call of some tens of megabytes would begin again for ever."""


def commit(fd: int, nbytes: int) -> None:
    """Commit the first bytes of a file that is dropped if this fails."""
    for at in range(0, nbytes, _PIECE):
        os.posix_fallocate(fd, at, min(_PIECE, nbytes - at))
