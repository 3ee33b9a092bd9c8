# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.package import get_config as get_config, get_include as get_include, profile as profile
from shmnd.mpi.rc import rc as rc

__version__: str
__all__: list[str]
