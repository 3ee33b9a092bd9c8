# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.futures import MPICommExecutor as MPICommExecutor
from shmnd.mpi.futures import MPIPoolExecutor as MPIPoolExecutor
from shmnd.mpi.futures import ProcessPoolExecutor as ProcessPoolExecutor
from shmnd.mpi.futures import ThreadPoolExecutor as ThreadPoolExecutor
from shmnd.mpi.futures import get_comm_workers as get_comm_workers
