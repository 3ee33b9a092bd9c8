# SPDX-License-Identifier: Apache-2.0
"""Windows: memory that ranks offer to each other."""

from __future__ import annotations

import sys
import weakref
from operator import index
from typing import Any, NamedTuple, Self, SupportsIndex

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.buffers.sentinels import BOTTOM
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.comm_state import small_number
from shmnd.mpi.communicators.group import Group, group_of_object
from shmnd.mpi.communicators.intracomm import COMM_SELF
from shmnd.mpi.objects.errhandler import handle_new, leave_to, raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.handle import constant
from shmnd.mpi.objects.info import INFO_NULL, Info, InfoCalls, hints_of
from shmnd.mpi.one_sided.epochs import Epochs
from shmnd.mpi.one_sided.rma import WinCalls
from shmnd.mpi.one_sided.window import WinState
from shmnd.mpi.transport.outer_call import OuterCall

_UNIT_MOST = 0x7FFFFFFF


class Offer(NamedTuple):
    """What one rank gives to a window."""

    memory: buffer | None
    """None: the window makes it, or there is none."""
    nbytes: int
    """Of the memory that the window makes."""
    unit: int
    info: dict[str, str]


def _offer(memory: Any, size: int, unit: int, info: Info | None, comm: Comm, call: str) -> Offer:
    """Return the checked arguments of a call that makes a window."""
    for role, given in ("disp_unit", unit), ("size", size):
        if not isinstance(given, SupportsIndex):
            raise TypeError(f"{call}: {role} {given!r} is not an integer")
    nbytes, unit = index(size), index(unit)
    if not 0 < unit <= _UNIT_MOST:
        raise_error(
            comm,
            constants.ERR_DISP,
            f"{call}: disp_unit {unit}, at least 1 and at most {_UNIT_MOST}",
        )
    if not 0 <= nbytes <= sys.maxsize:
        raise_error(
            comm, constants.ERR_SIZE, f"{call}: size {nbytes}, at least 0 and at most {sys.maxsize}"
        )
    hints = hints_of(info, call)
    own = None
    if memory is None:
        own = buffer(b"")
    elif memory is not BOTTOM:
        own = buffer.frombuffer(memory)
    return Offer(own, nbytes, unit, hints)


class Win(WinCalls, Epochs, Handling, InfoCalls):
    """Remote memory access context."""

    _family = "Win"
    _null_error = constants.ERR_WIN

    def __new__(cls, win: Win | None = None) -> Self:
        """Return another handle to the same window."""
        return super().__new__(cls, win)

    # -- making --

    @classmethod
    def _make(
        cls, flavor: int, memory: Any, size: int, unit: int, info: Info, comm: Comm, call: str
    ) -> Self:
        if not isinstance(comm, Comm):
            raise TypeError(f"Win.{call}: comm {comm!r} is not a communicator")
        if comm.ob is None:
            raise_error(comm, constants.ERR_COMM, f"Win.{call}: the communicator is null")
        call = f"Win.{call}"

        def offer() -> Offer:
            return _offer(memory, size, unit, info, comm, call)

        self = cls()
        with OuterCall(call, comm.ob, comm.ob.context) as outer:
            own = comm._duplicate()
            outer.cover(own.ob.context)
            self.ob = WinState(own, flavor, offer, call)
        handle_new(self)
        self.ob.comm.ob.label = self.ob.title()
        state = weakref.ref(self.ob)  # a window that is dropped, and not freed, ends at once
        leave_to(self.ob.comm, lambda: _handle_to(state()))
        return self

    def Set_name(self, name: str) -> None:
        """Set the print name for this object."""
        super().Set_name(name)
        self.ob.comm.ob.label = self.ob.title()

    @classmethod
    def Create(
        cls, memory: Any, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window of what each rank gives; None gives nothing.
        """
        return cls._make(constants.WIN_FLAVOR_CREATE, memory, 0, disp_unit, info, comm, "Create")

    @classmethod
    def Allocate(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window with `size` bytes of shared memory of each rank.
        """
        flavor = constants.WIN_FLAVOR_ALLOCATE
        return cls._make(flavor, BOTTOM, size, disp_unit, info, comm, "Allocate")

    @classmethod
    def Allocate_shared(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window with memory that every rank maps.
        """
        flavor = constants.WIN_FLAVOR_SHARED
        return cls._make(flavor, BOTTOM, size, disp_unit, info, comm, "Allocate_shared")

    @classmethod
    def Create_dynamic(cls, info: Info = INFO_NULL, comm: Comm = COMM_SELF) -> Self:
        """Create an window object for one-sided communication.

        Return the window without memory; `Attach` gives it some.
        """
        return cls._make(constants.WIN_FLAVOR_DYNAMIC, BOTTOM, 0, 1, info, comm, "Create_dynamic")

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        """Query the process-local address for remote memory segments."""
        state = self._state("Shared_query")
        given, rank = rank, small_number(rank, "Shared_query", "rank", "Win")
        if rank == constants.PROC_NULL:
            rank = next((i for i, size in enumerate(state.sizes) if size), 0)
        if not 0 <= rank < state.size:
            raise_error(
                self,
                constants.ERR_RANK,
                f"Win.Shared_query: rank {shown(given)}; {state.title()} has ranks 0 to "
                f"{state.size - 1}",
            )
        part = state.part(rank)
        if part is None:
            return buffer(b""), 1
        return part, state.units[rank]

    def Attach(self, memory: Any) -> None:
        """Attach a local memory region."""
        attached = self._attached("Attach")
        new = buffer.frombuffer(memory)
        for each in attached:
            if each.address < new.address + new.nbytes and new.address < each.address + each.nbytes:
                raise_error(
                    self,
                    constants.ERR_RMA_ATTACH,
                    f"Win.Attach: {new.nbytes} bytes at {new.address:#x}; {each.nbytes} bytes at "
                    f"{each.address:#x} are attached, and regions must not overlap: Detach them",
                )
        attached.append(new)

    def Detach(self, memory: Any) -> None:
        """Detach a local memory region."""
        attached = self._attached("Detach")
        address = buffer.frombuffer(memory).address
        for each in attached:
            if each.address == address:
                attached.remove(each)
                return
        raise_error(
            self, constants.ERR_RMA_ATTACH, f"Win.Detach: nothing is attached at {address:#x}"
        )

    def _attached(self, call: str) -> list[buffer]:
        """Return the regions that are attached. ERR_RMA_FLAVOR where a window cannot have any."""
        state = self._state(call)
        if state.flavor != constants.WIN_FLAVOR_DYNAMIC:
            raise_error(
                self,
                constants.ERR_RMA_FLAVOR,
                f"Win.{call} of {state.title()}: it has memory of its own; only a window of "
                "Create_dynamic has regions that are attached",
            )
        found: list[buffer] = state.attached
        return found

    def Free(self) -> None:
        """Free a window."""
        self._require_own(constants.ERR_WIN, "Free")
        state = self.ob
        if not state.fenced:
            self._no_epoch("Free", exposed=True)
        state.comm._barrier_as("Win.Free", state)
        self._drop_attrs()
        self._release()
        state.comm.Free()

    # -- what it is --

    def _built_in(self, keyval: int) -> Any:
        state = self.ob
        values = {
            constants.WIN_BASE: state.base,
            constants.WIN_SIZE: state.memory.nbytes,
            constants.WIN_DISP_UNIT: state.unit,
            constants.WIN_FLAVOR: state.flavor,
            constants.WIN_MODEL: constants.WIN_UNIFIED,
        }
        return values.get(keyval, NotImplemented)

    def tomemory(self) -> buffer:
        """Return window memory buffer."""
        state = self._state("tomemory")
        found: buffer = state.part(state.rank)
        return found

    @property
    def attrs(self) -> tuple[int, int, int]:
        """Attributes."""
        state = self._state("attrs")
        return state.base, state.memory.nbytes, state.unit

    @property
    def flavor(self) -> int:
        """Create flavor."""
        return int(self._state("flavor").flavor)

    @property
    def model(self) -> int:
        """Memory model."""
        self._state("model")
        return constants.WIN_UNIFIED

    def Get_group(self) -> Group:
        """Return a duplicate of the group of the communicator used to create the window."""
        return group_of_object(self._state("Get_group").comm.ob.group)

    @property
    def group(self) -> Group:
        """Group."""
        return self.Get_group()

    @property
    def group_size(self) -> int:
        """Group size."""
        return int(self._state("group_size").size)

    @property
    def group_rank(self) -> int:
        """Group rank."""
        return int(self._state("group_rank").rank)


def _handle_to(state: WinState | None) -> Win:
    found = Win()
    found.ob = state
    return found


WIN_NULL = constant(Win(), "WIN_NULL")
