# SPDX-License-Identifier: Apache-2.0
"""Where a file is read and written next: its view, the pointer of the rank, the shared one."""

from __future__ import annotations

from operator import index

from shmnd.common.held import Held
from shmnd.mpi import constants
from shmnd.mpi.datatypes.datatype import BYTE, Datatype
from shmnd.mpi.files.access import Failing, require_offsets
from shmnd.mpi.files.file_state import FileState
from shmnd.mpi.files.split import require_no_split
from shmnd.mpi.files.view import View
from shmnd.mpi.objects.info import INFO_NULL, Info, hints_of


def _target(state: FileState, offset: int, whence: int, current: int, call: str) -> int:
    """Return the offset to which a pointer moves."""
    if whence == constants.SEEK_SET:
        origin = 0
    elif whence == constants.SEEK_CUR:
        origin = current
    elif whence == constants.SEEK_END:
        origin = state.view.etypes_before(state.size())
    else:
        state.fail(
            constants.ERR_ARG, call, f"whence {whence}; expected SEEK_SET, SEEK_CUR or SEEK_END"
        )
    target = origin + index(offset)
    if target < 0:
        state.fail(constants.ERR_ARG, call, f"the offset would be {target}; expected 0 or more")
    state.view.place(target, call)
    return target


def _seek(state: FileState, offset: int, whence: int) -> None:
    require_offsets(state, "Seek")
    with Held(state.lock):
        state.position = _target(state, offset, whence, state.position, "Seek")


def _seek_shared(state: FileState, offset: int, whence: int) -> None:
    state.agree("Seek_shared", lambda: (index(offset), index(whence)))
    raised: list[Exception] = []
    if state.rank == 0:
        try:
            target = _target(state, offset, whence, state.pointer.get(), "Seek_shared")
            state.pointer.set(target)
        except Exception as error:
            raised.append(error)
    shared = state.comm.bcast(raised, 0)
    failures = raised or shared  # of the two at rank 0, the one that has a traceback
    if failures:
        raise failures.pop()


def _set_view(
    state: FileState,
    disp: int,
    etype: Datatype,
    filetype: Datatype | None,
    datarep: str,
    info: Info,
) -> None:
    hints: dict[str, str] = {}

    def make() -> View:
        require_no_split(state, "Set_view")
        for given in (etype, filetype):
            if given is not None and not isinstance(given, Datatype):
                raise TypeError(f"File.Set_view: {given!r} is not a datatype")
        hints.update(hints_of(info, "File.Set_view"))
        start = disp
        if disp == constants.DISPLACEMENT_CURRENT:
            if not state.amode & constants.MODE_SEQUENTIAL:
                state.fail(
                    constants.ERR_ARG,
                    "Set_view",
                    "DISPLACEMENT_CURRENT is for files that are open with MODE_SEQUENTIAL",
                )
            start = state.view.place(state.pointer.get(), "Set_view")
        return View(index(start), etype.ob, (filetype or etype).ob, datarep)

    state.show(make)
    state.info.update(hints)


class PointerCalls(Failing):
    """The calls about views and pointers."""

    __slots__ = ()

    def Set_view(
        self,
        disp: int = 0,
        etype: Datatype = BYTE,
        filetype: Datatype | None = None,
        datarep: str = "native",
        info: Info = INFO_NULL,
    ) -> None:
        """Set the file view.

        All ranks call it together, with one size of etype. It sets all pointers to 0.
        """
        self._run("Set_view", _set_view, disp, etype, filetype, datarep, info)

    def Get_view(self) -> tuple[int, Datatype, Datatype, str]:
        """Return the file view: displacement, etype, filetype and datarep."""
        view = self._state("Get_view").view
        etype, filetype = Datatype(), Datatype()
        etype.ob, filetype.ob = view.etype, view.filetype
        return view.displacement, etype, filetype, view.datarep

    def Seek(self, offset: int, whence: int = constants.SEEK_SET) -> None:
        """Update the individual file pointer."""
        self._run("Seek", _seek, offset, whence)

    def Get_position(self) -> int:
        """Return the current position of the individual pointer, in etypes of the view."""
        state = self._state("Get_position")
        self._run("Get_position", require_offsets, "Get_position")
        return state.position

    def Get_byte_offset(self, offset: int) -> int:
        """Return the byte of the file that an offset of the view is."""
        place: int = self._run(
            "Get_byte_offset", lambda state: state.view.place(offset, "Get_byte_offset")
        )
        return place

    def Seek_shared(self, offset: int, whence: int = constants.SEEK_SET) -> None:
        """Update the shared file pointer, together with all ranks."""
        self._run("Seek_shared", _seek_shared, offset, whence)

    def Get_position_shared(self) -> int:
        """Return the current position of the shared pointer, in etypes of the view."""
        return self._state("Get_position_shared").pointer.get()

    def Get_type_extent(self, datatype: Datatype) -> int:
        """Return the extent of datatype in the file."""
        self._state("Get_type_extent")
        if not isinstance(datatype, Datatype):
            raise TypeError(f"File.Get_type_extent: {datatype!r} is not a datatype")
        extent: int = datatype.Get_extent()[1]
        return extent
