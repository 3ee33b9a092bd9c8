# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import Executor as Executor
from concurrent.futures import Future as Future
from concurrent.futures import as_completed as as_completed

from shmnd.mpi.futures import MPICommExecutor as MPICommExecutor
from shmnd.mpi.futures import MPIPoolExecutor as MPIPoolExecutor
from shmnd.mpi.futures import ProcessPoolExecutor as ProcessPoolExecutor
from shmnd.mpi.futures import ThreadPoolExecutor as ThreadPoolExecutor
from shmnd.mpi.futures import get_comm_workers as get_comm_workers
