# SPDX-License-Identifier: Apache-2.0
"""Sessions: the process sets of a job, and groups made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

from shmnd.mpi import constants
from shmnd.mpi.communicators.group import Group, group_from
from shmnd.mpi.objects.errhandler import Errhandler, handle_new, raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.handle import Handle, State, constant
from shmnd.mpi.objects.info import INFO_NULL, Info, hints_of, require_info
from shmnd.mpi.point_to_point import buffering
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.transport import hooks


class SessionState(State):
    """What belongs to one session: its hints, and its buffer for buffered sends."""

    def __init__(self, info: Info) -> None:
        """Keep a copy of the hints."""
        super().__init__()
        self.info = Info.Create(hints_of(info, "Session.Init"))
        self.buffering = buffering.of_session()


def _sets() -> dict[str, list[int]]:
    """Return the process sets of the job with their ranks."""
    return {"mpi://WORLD": list(range(hooks.size())), "mpi://SELF": [hooks.rank()]}


class Session(Handle, Handling):
    """Session context."""

    _family = "Session"
    _null_error = constants.ERR_SESSION

    def __new__(cls, session: Session | None = None) -> Self:
        """Return another handle to the same session."""
        return super().__new__(cls, session)

    def _state(self, call: str) -> SessionState:
        if self.ob is None:
            raise_error(self, constants.ERR_SESSION, f"Session.{call}: the session is null")
        state: SessionState = self.ob
        return state

    def _ranks(self, pset_name: str, call: str) -> list[int]:
        self._state(call)
        ranks = _sets().get(pset_name)
        if ranks is None:
            raise_error(
                self,
                constants.ERR_ARG,
                f"Session.{call}({pset_name!r}): the process sets are {', '.join(_sets())}",
            )
        return ranks or []

    @classmethod
    def Init(cls, info: Info = INFO_NULL, errhandler: Errhandler | None = None) -> Self:
        """Create a new session.

        Errors in it are treated by `errhandler`.
        """
        self = cls()
        self.ob = SessionState(info)
        handle_new(self, errhandler)
        return self

    def Finalize(self) -> None:
        """Finalize a session."""
        self._state("Finalize")
        self._release()

    def free(self) -> None:
        """Call `Finalize` unless the session is null."""
        if self.ob is not None:
            self.Finalize()

    def Get_num_psets(self, info: Info = INFO_NULL) -> int:
        """Number of available process sets."""
        self._state("Get_num_psets")
        require_info(info, "Session.Get_num_psets")
        return len(_sets())

    def Get_nth_pset(self, n: int, info: Info = INFO_NULL) -> str:
        """Name of the *n*-th process set."""
        self._state("Get_nth_pset")
        require_info(info, "Session.Get_nth_pset")
        names = list(_sets())
        if not 0 <= n < len(names):
            raise_error(
                self,
                constants.ERR_ARG,
                f"Session.Get_nth_pset({n}): there are {len(names)} process sets",
            )
        return names[n]

    def Get_info(self) -> Info:
        """Return the current hints for a session."""
        return Info.Create(self._state("Get_info").info)

    def Get_pset_info(self, pset_name: str) -> Info:
        """Return the current hints for a session and process set."""
        return Info.Create({"mpi_size": str(len(self._ranks(pset_name, "Get_pset_info")))})

    def Create_group(self, pset_name: str) -> Group:
        """Create a new group from session and process set."""
        return group_from(self._ranks(pset_name, "Create_group"))

    def Attach_buffer(self, buf: Any) -> None:
        """Attach a user-provided buffer for sending in buffered mode."""
        self._state("Attach_buffer").buffering.attach(buf, "Session.Attach_buffer")

    def Detach_buffer(self) -> Any:
        """Remove an existing attached buffer."""
        return self._state("Detach_buffer").buffering.detach()

    def Flush_buffer(self) -> None:
        """Block until all buffered messages have been transmitted."""
        self._state("Flush_buffer").buffering.flush("Flush_buffer")

    def Iflush_buffer(self) -> Request:
        """Nonblocking flush for buffered messages."""
        request: Request = self._state("Iflush_buffer").buffering.iflush("Iflush_buffer")
        return request

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], None]) -> Errhandler:
        """Create a new error handler for sessions.

        It is called with the session and the error code.
        """
        return super().Create_errhandler(errhandler_fn)


SESSION_NULL: Final = constant(Session(), "SESSION_NULL")
