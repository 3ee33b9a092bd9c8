# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.bench` is `shmnd.mpi.bench`: one module under two names."""

import sys

from shmnd.mpi import bench

sys.modules[__name__] = bench
if __name__ == "__main__":
    bench.main()
