# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.util.pool import *
from shmnd.mpi.util.pool import __all__ as __all__
