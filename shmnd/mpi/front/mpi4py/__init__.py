# SPDX-License-Identifier: Apache-2.0
"""The front under which programs for mpi4py find shmnd.mpi, on the path of its ranks alone."""

import sys

from shmnd.mpi.package import get_config as get_config
from shmnd.mpi.package import get_include as get_include
from shmnd.mpi.package import profile as profile
from shmnd.mpi.rc import Rc as Rc
from shmnd.mpi.rc import rc as rc

__version__ = "4.1.2"
__all__ = ["MPI"]

sys.modules["mpi4py.rc"] = rc  # type: ignore[assignment]  # as `import mpi4py.rc` expects
