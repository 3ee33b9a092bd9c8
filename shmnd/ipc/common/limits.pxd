# SPDX-License-Identifier: Apache-2.0
"""Bounds that compiled modules share."""

cdef enum:
    LONG_COPY = 64 << 10  # during a copy of more bytes other threads run
