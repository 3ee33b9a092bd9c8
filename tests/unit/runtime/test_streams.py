# SPDX-License-Identifier: Apache-2.0
"""Closing a descriptor that the program may have closed, on every version of Python."""

import errno
import select
from typing import cast

import pytest

from shmnd.common.streams import close_epoll


class Refusing:
    """An epoll whose close ends with an error, as one of CPython 3.15 does."""

    def __init__(self, code: int) -> None:
        self._code = code

    def close(self) -> None:
        """Raise the error."""
        raise OSError(self._code, "refused")


def closed(code: int) -> None:
    close_epoll(cast("select.epoll", Refusing(code)))


def test_a_number_that_the_program_has_closed_is_not_an_error() -> None:
    closed(errno.EBADF)


def test_any_other_error_is_raised() -> None:
    with pytest.raises(OSError, match="refused"):
        closed(errno.EIO)


def test_an_oserror_that_a_handler_raises_is_not_ignored() -> None:
    class Interrupted(Refusing):
        def close(self) -> None:
            raise TimeoutError("of a handler")

    with pytest.raises(TimeoutError, match="of a handler"):
        close_epoll(cast("select.epoll", Interrupted(0)))
