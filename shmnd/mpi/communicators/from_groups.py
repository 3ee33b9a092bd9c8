# SPDX-License-Identifier: Apache-2.0
"""Communicators of groups, without a parent: whose handler the errors of making one go to."""

from __future__ import annotations

from typing import Any, Self

from shmnd.mpi import constants
from shmnd.mpi.communicators.group import Group, require_group
from shmnd.mpi.objects.errhandler import Errhandler, handle_by
from shmnd.mpi.objects.errors import Exception as MPIException


class Making:
    """Have the handler that the program gave for a new communicator handle the errors of making
    it: there is no other object that could.
    """

    def __init__(self, made: Any, errhandler: Errhandler | None, call: str) -> None:
        """Take a null handle of the communicator's kind, and the handler, if there is one."""
        self.made = made
        self.state = None if errhandler is None else errhandler.ob
        self.call = call

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Call the handler where an error of MPI ended the making."""
        if isinstance(error, MPIException):
            handle_by(self.state, self.made, error.error_code, error.detail)

    def ranks(self, group: Group) -> tuple[int, ...]:
        """Return the ranks of a group that is not null."""
        if require_group(group, self.call).ob is None:
            raise MPIException(constants.ERR_GROUP, f"{self.call}: the group is null")
        ranks: tuple[int, ...] = group.ob.ranks
        return ranks

    def leader(self, ranks: tuple[int, ...], place: int, role: str) -> int:
        """Return the rank of the job that leads a group."""
        if not 0 <= place < len(ranks):
            raise MPIException(
                constants.ERR_RANK,
                f"{self.call}: {role} {place}; the group has {len(ranks)} ranks",
            )
        return ranks[place]
