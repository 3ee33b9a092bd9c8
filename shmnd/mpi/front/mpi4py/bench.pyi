# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.bench import *
from shmnd.mpi.bench import __all__ as __all__
