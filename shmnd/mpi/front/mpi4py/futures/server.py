# SPDX-License-Identifier: Apache-2.0
"""Workers that are ranks of the job."""

from shmnd.mpi.futures.server import main as main
