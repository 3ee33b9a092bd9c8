# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.util.sync import *
from shmnd.mpi.util.sync import __all__ as __all__
