# SPDX-License-Identifier: Apache-2.0
"""`python -m shmnd.mpi -n N program`: the launcher without the command `shmnd`."""

import contextlib
import sys

from shmnd.common.streams import discard_output, open_streams
from shmnd.mpi.launcher.job import main


def _run() -> int:
    """Run the launcher; return its exit code. Errors of the system are one line."""
    open_streams()
    try:
        return main(sys.argv[1:], "python -m shmnd.mpi")
    except BrokenPipeError:
        discard_output()  # the reader has closed the pipe
    except OSError as exc:
        with contextlib.suppress(OSError):
            print(f"shmnd mpiexec: {exc}", file=sys.stderr)
        discard_output()
    return 1


if __name__ == "__main__":
    sys.exit(_run())
