# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.futures.aplus import ThenableFuture as ThenableFuture
