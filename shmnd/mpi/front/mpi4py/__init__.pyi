# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi import MPI as MPI
from shmnd.mpi.package import get_config as get_config
from shmnd.mpi.package import get_include as get_include
from shmnd.mpi.package import profile as profile
from shmnd.mpi.rc import Rc as Rc
from shmnd.mpi.rc import rc as rc

__version__: str
__all__ = ["MPI"]
