# SPDX-License-Identifier: Apache-2.0
"""`mpi4py._mpiabi` is `shmnd.mpi.abi`: one module under two names."""

import sys

from shmnd.mpi import abi

abi.__name__ = __name__
sys.modules[__name__] = abi
