# SPDX-License-Identifier: Apache-2.0
"""Why a rank could not be started: in words with a remedy, and as an exit code."""

import errno
import os
from pathlib import Path
from typing import Final

from shmnd.common.shortages import remedy
from shmnd.mpi.launcher.options import Wish

NOT_EXECUTABLE: Final = 126
NO_PROGRAM: Final = 127
"""Exit codes, as those of shells."""
_PROCESSES: Final = "ulimit -u and the limits of the control group say how many processes may run"


def explain(exc: OSError, wish: Wish) -> tuple[str, int]:
    """Return the words for an error of a start, and the exit code of the job."""
    name = exc.filename
    if name == wish.folder and name is not None:
        return f"--wdir {name}: {exc.strerror}", 1
    if isinstance(exc, (FileNotFoundError, NotADirectoryError)):
        return f"{name}: no such program", NO_PROGRAM
    if isinstance(exc, PermissionError) and name is not None:
        if Path(os.fsdecode(name)).is_dir():
            return f"{name}: a folder, not a program", NOT_EXECUTABLE
        return (
            f"{name}: the program cannot be executed; chmod +x permits it, and a script of Python "
            "without .py is run as: python SCRIPT"
        ), NOT_EXECUTABLE
    if exc.errno == errno.ENOEXEC:
        return (
            f"{name}: the program cannot be executed: it is none of this machine, or a script "
            "whose first line does not name its interpreter, as in: #!/bin/sh"
        ), NOT_EXECUTABLE
    limit = remedy(exc, _PROCESSES if exc.errno == errno.EAGAIN else "")
    return f"{wish.ranks} ranks could not be started: {exc.strerror}{limit and f'; {limit}'}", 1
