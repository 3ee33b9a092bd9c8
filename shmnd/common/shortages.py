# SPDX-License-Identifier: Apache-2.0
"""What raises a limit of the system that a call has met."""

from __future__ import annotations

import errno
import resource
from typing import Final

from shmnd.status import LIMIT_OF_FILES, LIMITS_OF_MEMORY, NdError, Status, error

__all__ = [
    "LIMITS_OF_MEMORY",
    "memory_error",
    "reason_of_refusal",
    "remedy",
    "remedy_of_call",
    "remedy_of_mapping",
    "remedy_of_start",
]

_REMEDIES: Final = {
    errno.EFBIG: "a file of this process may not be longer than {} bytes: the limit is ulimit -f, "
    "LimitFSIZE= in a unit",
    errno.EMFILE: "the limit of descriptors of this process is {}, which ulimit -n raises",
    errno.ENFILE: LIMIT_OF_FILES,
}
"""Those that mean the same whatever the call was."""
_LIMITS: Final = {errno.EFBIG: resource.RLIMIT_FSIZE, errno.EMFILE: resource.RLIMIT_NOFILE}
"""Where a process has such a limit."""
_FORBIDDEN: Final = (errno.EPERM, errno.ENOSYS)
_PROCESSES: Final = "ulimit -u and the limits of the control group say how many processes may run"


def remedy(failure: OSError, otherwise: str) -> str:
    """Return what raises the limit that a call has met; `otherwise` where the error names none."""
    number = failure.errno or 0
    if number not in _LIMITS:
        return _REMEDIES.get(number, otherwise)
    limit, _ = resource.getrlimit(_LIMITS[number])
    return otherwise if limit == resource.RLIM_INFINITY else _REMEDIES[number].format(limit)


def reason_of_refusal(failure: OSError) -> str:
    """Return why the kernel has refused a call that needs no right; "" for other errors."""
    if failure.errno not in _FORBIDDEN:
        return ""
    return (
        f"{failure.strerror} (errno {failure.errno}): the kernel is too old, or a filter of system"
        " calls (seccomp, of a container for instance) forbids what this needs; `shmnd doctor`"
        " shows it"
    )


def memory_error(call: str, what: str, failure: OSError, otherwise: str) -> NdError:
    """Return the error of a call for which the system has given no shared memory.

    `what` says which memory; `otherwise` what helps where the failure names no limit.
    """
    refused = reason_of_refusal(failure)
    if refused:
        return error(Status.NOT_SUPPORTED, call, f"{what}: {refused}")
    why = f"{what}: {failure.strerror or failure}; {remedy(failure, otherwise)}"
    return error(Status.INSUFFICIENT_RESOURCES, call, why)


def remedy_of_call(failure: OSError) -> str:
    """Return what raises the limit that a call of the system has met, after "; "; or nothing."""
    found = remedy(failure, "")
    return found and f"; {found}"


def remedy_of_start(failure: OSError) -> str:
    """Return what raises the limit that the start of a process has met, after "; "; or nothing."""
    found = remedy(failure, _PROCESSES if failure.errno == errno.EAGAIN else "")
    return found and f"; {found}"


def remedy_of_mapping(failure: int) -> str:
    """Return which limits a mapping may have met, by the number of its error."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if failure == errno.EAGAIN and limit != resource.RLIM_INFINITY:
        return (
            f"the program locks its memory (mlockall), and may lock {limit} bytes: the limit is "
            "ulimit -l, LimitMEMLOCK= in a unit, and the capability CAP_IPC_LOCK lifts it"
        )
    return "see the limits of the address space (ulimit -v) and of mappings (vm.max_map_count)"
