# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.util.dtlib` is `shmnd.mpi.util.dtlib`: one module under two names."""

import sys

from shmnd.mpi.util import dtlib

sys.modules[__name__] = dtlib
