# SPDX-License-Identifier: Apache-2.0
"""Shared memory as the broker takes it."""

import fcntl
import os


def sealed_memory(nbytes: int = 4096) -> int:
    """A descriptor of shared memory that no process can truncate."""
    fd = os.memfd_create("shmnd-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd
