# SPDX-License-Identifier: Apache-2.0
"""Futures with callbacks that return values or futures."""

from concurrent.futures import Future as Future

from shmnd.mpi.futures.aplus import ThenableFuture as ThenableFuture
from shmnd.mpi.futures.aplus import catch as catch
from shmnd.mpi.futures.aplus import then as then
