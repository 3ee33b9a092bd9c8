# SPDX-License-Identifier: Apache-2.0
"""Queues in place of those of multiprocessing."""
