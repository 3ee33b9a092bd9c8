# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.futures import collect as collect
from shmnd.mpi.futures import compose as compose

__all__ = ["collect", "compose"]
