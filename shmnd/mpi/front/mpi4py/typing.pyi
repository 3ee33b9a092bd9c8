# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.typing import *
from shmnd.mpi.typing import __all__ as __all__
