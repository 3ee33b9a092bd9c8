# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.util.dtlib import *
from shmnd.mpi.util.dtlib import __all__ as __all__
