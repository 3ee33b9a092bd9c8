# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.util.pool` is `shmnd.mpi.util.pool`: one module under two names."""

import sys

from shmnd.mpi.util import pool

sys.modules[__name__] = pool
