# SPDX-License-Identifier: Apache-2.0
"""What raises a limit of the system that a call has met."""

from __future__ import annotations

import errno
import resource
from typing import Final

__all__ = ["remedy", "remedy_of_start"]

_REMEDIES: Final = {
    errno.EFBIG: "a file of this process may not be longer than {} bytes: the limit is ulimit -f, "
    "LimitFSIZE= in a unit",
    errno.EMFILE: "the limit of descriptors of this process is {}, which ulimit -n raises",
    errno.ENFILE: "the limit of open files of the machine is fs.file-max",
}
"""Those that mean the same whatever the call was."""
_LIMITS: Final = {errno.EFBIG: resource.RLIMIT_FSIZE, errno.EMFILE: resource.RLIMIT_NOFILE}
"""Where a process has such a limit."""
_PROCESSES: Final = "ulimit -u and the limits of the control group say how many processes may run"


def remedy(failure: OSError, otherwise: str) -> str:
    """Return what raises the limit that a call has met; `otherwise` where the error names none."""
    number = failure.errno or 0
    if number not in _LIMITS:
        return _REMEDIES.get(number, otherwise)
    limit, _ = resource.getrlimit(_LIMITS[number])
    return otherwise if limit == resource.RLIM_INFINITY else _REMEDIES[number].format(limit)


def remedy_of_start(failure: OSError) -> str:
    """Return what raises the limit that the start of a process has met, after "; "; or nothing."""
    found = remedy(failure, _PROCESSES if failure.errno == errno.EAGAIN else "")
    return found and f"; {found}"
