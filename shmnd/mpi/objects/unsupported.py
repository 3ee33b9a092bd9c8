# SPDX-License-Identifier: Apache-2.0
"""The error of calls that are left out."""


def left_out(call: str) -> NotImplementedError:
    """Return the error of a call that is not there, which says what to do."""
    return NotImplementedError(
        f"{call}: shmnd.mpi leaves it out (docs/mpi.md has the table); start the program with the "
        "mpiexec of a real MPI and its mpi4py"
    )
