# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.MPI` is `shmnd.mpi.MPI`: one module under two names."""

import sys

from shmnd.mpi import MPI
from shmnd.mpi.extension_modules import refuse

refuse()
sys.modules[__name__] = MPI
