# SPDX-License-Identifier: Apache-2.0
"""Why a rank could not be started: in words with a remedy, and as an exit code."""

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Final

from shmnd.common.shortages import remedy_of_start
from shmnd.mpi.launcher.options import JobOptions

NOT_EXECUTABLE: Final = 126
NO_PROGRAM: Final = 127
"""Exit codes, as those of shells."""


def refuse_missing_script(options: JobOptions) -> None:
    """Raise FileNotFoundError for a Python file that is not there: each rank would say so."""
    script = options.command[1:2]
    if options.command[0] == sys.executable and script and script[0].endswith(".py"):
        with contextlib.suppress(PermissionError):  # the interpreter reports that one
            Path(options.folder or "", script[0]).stat()


def explain(exc: OSError, options: JobOptions) -> tuple[str, int]:
    """Return the words for an error of a start, and the exit code of the job."""
    name = exc.filename
    if name == options.folder and name is not None:
        return f"--wdir {name}: {exc.strerror}", 1
    if name == "":  # as of a variable that is not set, in quotes
        return "'': no such program", NO_PROGRAM
    if isinstance(exc, (FileNotFoundError, NotADirectoryError)):
        return f"{name}: no such program{_of_file_here(name, options)}", NO_PROGRAM
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
    limit = remedy_of_start(exc)
    return f"{options.ranks} ranks could not be started: {exc.strerror}{limit}", 1


def _of_file_here(name: str, options: JobOptions) -> str:
    """Return why a file that is there cannot be run, if there is one."""
    if not Path(options.folder or "", name).exists():
        return ""
    if "/" in name:
        return " as the interpreter that its first line names"
    return f" in PATH; ./{name} is the file in the folder of the ranks"
