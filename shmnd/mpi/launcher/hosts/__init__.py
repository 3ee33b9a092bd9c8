# SPDX-License-Identifier: Apache-2.0
"""The hosts of a job: those of a batch system, and the real mpiexec for several."""
