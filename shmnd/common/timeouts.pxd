# SPDX-License-Identifier: Apache-2.0
"""Time-outs that need no further look: most calls have none, or a plain number."""


cdef inline bint is_plain_timeout(object timeout) except -1:
    """Return whether it is None, or a plain number of seconds that is not negative."""
    if timeout is None:
        return True
    if type(timeout) is float:
        return <double>timeout >= 0  # not of NaN
    return type(timeout) is int and timeout >= 0
