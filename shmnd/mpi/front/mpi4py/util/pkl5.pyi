# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.util.pkl5 import *
from shmnd.mpi.util.pkl5 import __all__ as __all__
