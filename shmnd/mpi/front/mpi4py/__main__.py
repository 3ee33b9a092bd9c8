# SPDX-License-Identifier: Apache-2.0
"""`python -m mpi4py` runs a program under `mpi4py.run`."""

from shmnd.mpi.run import main

if __name__ == "__main__":
    main()
