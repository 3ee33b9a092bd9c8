# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.util.pkl5` is `shmnd.mpi.util.pkl5`: one module under two names."""

import sys

from shmnd.mpi.util import pkl5

sys.modules[__name__] = pkl5
