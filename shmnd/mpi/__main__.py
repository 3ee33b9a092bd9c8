# SPDX-License-Identifier: Apache-2.0
"""`python -m shmnd.mpi -n N program`: the launcher without the command `shmnd`."""

import sys

from shmnd.mpi.launcher.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m shmnd.mpi"))
