# SPDX-License-Identifier: Apache-2.0
"""Run a program, and abort the job if it ends by an exception."""

from shmnd.mpi.run import main as main
from shmnd.mpi.run import run_command_line as run_command_line
from shmnd.mpi.run import set_abort_status as set_abort_status

if __name__ == "__main__":
    main()
