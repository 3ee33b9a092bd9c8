/* SPDX-License-Identifier: Apache-2.0 */
#error "shmnd.mpi has no C interface: build this extension with a real MPI and mpi4py"
