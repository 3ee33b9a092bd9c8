# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.typing` is `shmnd.mpi.typing`: one module under two names."""

import sys

from shmnd.mpi import typing

sys.modules[__name__] = typing
