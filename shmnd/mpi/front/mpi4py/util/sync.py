# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.util.sync` is `shmnd.mpi.util.sync`: one module under two names."""

import sys

from shmnd.mpi.util import sync

sys.modules[__name__] = sync
