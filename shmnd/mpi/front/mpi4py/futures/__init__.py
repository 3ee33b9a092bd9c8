# SPDX-License-Identifier: Apache-2.0
"""Pools of workers with the interface of `concurrent.futures`."""

from shmnd.mpi.futures import *
from shmnd.mpi.futures import __all__ as __all__
