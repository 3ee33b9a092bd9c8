# SPDX-License-Identifier: Apache-2.0
"""Whether a descriptor is open in this process."""

import errno
import os


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as exc:
        return exc.errno != errno.EBADF
    return True
