# SPDX-License-Identifier: Apache-2.0
"""MPI between the processes of one host: programs written for mpi4py, over shared memory.

`from shmnd.mpi import MPI` brings the namespace that mpi4py calls `mpi4py.MPI`. Under
`shmnd mpiexec` a front package of that name is first on the path, and programs run unmodified.
"""

import shmnd.common  # noqa: F401 - it refuses a subinterpreter before any compiled module is loaded
