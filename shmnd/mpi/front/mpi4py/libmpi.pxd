# SPDX-License-Identifier: Apache-2.0
# shmnd.mpi has no C interface: build extensions that use it with a real MPI and mpi4py.
