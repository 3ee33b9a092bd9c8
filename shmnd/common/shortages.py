# SPDX-License-Identifier: Apache-2.0
"""What raises a limit of the system that a call has met."""

from __future__ import annotations

import errno
from typing import Final

__all__ = ["remedy"]

_REMEDIES: Final = {
    errno.EFBIG: "a file of this process may not be that long: the limit is ulimit -f, LimitFSIZE= "
    "in a unit",
    errno.EMFILE: "the limit of descriptors of a process is ulimit -n",
    errno.ENFILE: "the limit of open files of the machine is fs.file-max",
}
"""Those that mean the same whatever the call was."""


def remedy(failure: OSError, otherwise: str) -> str:
    """Return what raises the limit that a call has met; `otherwise` where the error names none."""
    return _REMEDIES.get(failure.errno or 0, otherwise)
