# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Objects whose errors a handler treats: communicators, windows, files, sessions."""

from collections.abc import Callable
from typing import Any

from shmnd.mpi.objects.errhandler cimport Errhandler

from shmnd.mpi import constants
from shmnd.mpi.objects import errhandler as handlers
from shmnd.mpi.objects.errors import Exception as MPIException


class Handling:
    """The calls about error handlers, mixed into the classes of objects that have one."""

    __slots__ = ()

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], None]) -> Errhandler:
        """Create a new error handler for objects of this kind."""
        return handlers.create(cls._family, errhandler_fn)

    def Get_errhandler(self) -> Errhandler:
        """Get the error handler for this object."""
        self._require(self._null_error, "Get_errhandler")
        return handlers.refer(self.ob.errhandler)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set the error handler for this object."""
        self._require(self._null_error, "Set_errhandler")
        if (<Errhandler?> errhandler).ob is None:
            raise MPIException(
                constants.ERR_ERRHANDLER, f"{self._family}.Set_errhandler: the handler is null"
            )
        self.ob.errhandler = (<Errhandler> errhandler).ob

    def Call_errhandler(self, errorcode: int) -> None:
        """Call the error handler installed on this object."""
        self._require(self._null_error, "Call_errhandler")
        handlers.handle(self, errorcode, "Call_errhandler")
