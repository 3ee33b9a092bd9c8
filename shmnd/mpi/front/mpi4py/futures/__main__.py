# SPDX-License-Identifier: Apache-2.0
"""`python -m mpi4py.futures` runs a program whose executors use the other ranks."""

from shmnd.mpi.futures.server import main

if __name__ == "__main__":
    main()
