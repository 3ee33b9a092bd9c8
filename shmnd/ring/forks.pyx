# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Whose an object is: it notes `forks` when it is made, and refuses where that has grown."""

import os

from libc.stdint cimport uint32_t

cdef uint32_t forks = 0


def _forked() -> None:
    global forks
    forks += 1


os.register_at_fork(after_in_child=_forked)
