# SPDX-License-Identifier: Apache-2.0
"""Utilities on top of MPI, as `mpi4py.util` has them."""
