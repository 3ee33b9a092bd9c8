# SPDX-License-Identifier: Apache-2.0
"""`python -m shmnd.mpi -n N program`: the launcher without the command `shmnd`."""

import contextlib
import sys

from shmnd.common.streams import discard_output, open_streams
from shmnd.mpi.launcher.job import main
from shmnd.status import NdError


def _run() -> int:
    """Run the launcher; return its exit code. Errors of the system, and limits, are one line."""
    open_streams()
    try:
        return main(sys.argv[1:], "python -m shmnd.mpi")
    except BrokenPipeError:
        discard_output()  # the reader has closed the pipe
    except (OSError, NdError) as exc:
        with contextlib.suppress(OSError):
            text = str(exc).removeprefix("shmnd mpiexec: ")
            print(f"shmnd mpiexec: {text}", file=sys.stderr)
        discard_output()
    return 1


if __name__ == "__main__":
    sys.exit(_run())
