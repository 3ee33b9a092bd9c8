# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.futures import *
from shmnd.mpi.futures import __all__ as __all__
