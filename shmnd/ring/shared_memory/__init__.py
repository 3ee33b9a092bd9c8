# SPDX-License-Identifier: Apache-2.0
"""Shared memory: segments, pieces of them, registered memory, and the limits."""
