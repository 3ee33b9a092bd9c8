# SPDX-License-Identifier: Apache-2.0
"""The transport between the ranks of a job, in C headers, and its Python module."""
