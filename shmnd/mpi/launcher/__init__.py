# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job, watches them, and ends them: `shmnd mpiexec`."""
