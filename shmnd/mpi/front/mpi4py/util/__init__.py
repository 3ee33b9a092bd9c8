# SPDX-License-Identifier: Apache-2.0
"""Utilities on top of MPI."""
