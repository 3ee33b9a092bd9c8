# SPDX-License-Identifier: Apache-2.0
"""How the pages of a new file are committed, and what helps when the kernel refuses them."""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["commit", "remedy"]

_PIECE: Final = 2 << 20
"""Bytes of one call. On many kernels a signal undoes what a call of fallocate has done so far: with
a timer of a millisecond, a call of some tens of megabytes would begin again for ever."""

_REMEDIES: Final = {
    errno.EFBIG: "a file of this process may not be that long: the limit is ulimit -f, LimitFSIZE= "
    "in a unit",
    errno.EMFILE: "the limit of descriptors of a process is ulimit -n",
    errno.ENFILE: "the limit of open files of the machine is fs.file-max",
}


def commit(fd: int, nbytes: int) -> None:
    """Commit the first bytes of a file that is dropped if this fails."""
    for at in range(0, nbytes, _PIECE):
        os.posix_fallocate(fd, at, min(_PIECE, nbytes - at))


def remedy(failure: OSError, otherwise: str) -> str:
    """Return what raises the limit that a call has met."""
    return _REMEDIES.get(failure.errno or 0, otherwise)
