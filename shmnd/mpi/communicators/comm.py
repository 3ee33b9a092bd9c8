# SPDX-License-Identifier: Apache-2.0
"""Communicators of any kind: what they are, how new ones are made, and their end."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

from shmnd.mpi import constants
from shmnd.mpi.collectives.pickled import ObjectCollectives
from shmnd.mpi.collectives.reductions import ReduceCalls
from shmnd.mpi.communicators.comm_state import CONTEXTS, CommState, reserve_contexts
from shmnd.mpi.communicators.contexts import agreed_contexts
from shmnd.mpi.communicators.fault_tolerance import FaultCalls
from shmnd.mpi.communicators.group import Group, group_of_object, require_group
from shmnd.mpi.communicators.integers import c_int, integer
from shmnd.mpi.objects.errhandler import for_new, raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.handle import constant
from shmnd.mpi.objects.info import INFO_NULL, Info, InfoCalls, hints_of
from shmnd.mpi.objects.unsupported import left_out
from shmnd.mpi.point_to_point.buffering import Buffering, room_to_buffer
from shmnd.mpi.point_to_point.exchange import exchange
from shmnd.mpi.point_to_point.partitioned import PartitionedCalls
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.transport import engine
from shmnd.mpi.transport.hooks import abort_with_line
from shmnd.mpi.transport.outer_call import OuterCall, place_of

NEWS = 2
"""The context of a communicator, from its first, that news of new communicators use."""
_SHARED = "mpi_shared_memory"


class Comm(ReduceCalls, ObjectCollectives, PartitionedCalls, FaultCalls, Handling, InfoCalls):
    """Communication context."""

    _null_error = constants.ERR_COMM
    _kinds: ClassVar[dict[str, Any]] = {}

    def __new__(cls, comm: Comm | None = None) -> Self:
        """Return another handle to the same communicator."""
        return super().__new__(cls, comm)

    # -- what it is --

    def _state(self, call: str) -> Any:
        if self.ob is None:
            raise_error(self, constants.ERR_COMM, f"Comm.{call}: the communicator is null")
        return self.ob

    def _communicating(self, call: str) -> Any:
        """Return the state for a call that communicates with other ranks."""
        state = self._state(call)
        engine.require_open(place_of(state.context, call, state.title()))
        return state

    def _calling(self, call: str) -> OuterCall:
        """Return the block of a call that communicates by other calls."""
        state = self._communicating(call)
        return OuterCall(call, state, state.context, 1 + state.inter)

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """Create an object from the number of a handle."""
        state = super().fromhandle(handle).ob
        kind: type = cls
        if state is not None:
            topology = state.topology
            names = {
                constants.CART: "Cartcomm",
                constants.GRAPH: "Graphcomm",
                constants.DIST_GRAPH: "Distgraphcomm",
            }
            plain = "Intercomm" if state.inter else "Intracomm"
            kind = cls._kinds[plain if topology is None else names[topology.kind]]
        new = kind()
        new.ob = state
        return new

    @classmethod
    def fromint(cls, arg: int, /) -> Any:
        """Translate an integer to a handle."""
        return cls.fromhandle(arg)

    @classmethod
    def f2py(cls, arg: int) -> Any:
        """Translate an integer of Fortran to a handle."""
        return cls.fromhandle(arg)

    def _built_in(self, keyval: int) -> Any:
        values = {
            constants.TAG_UB: constants.TAG_LIMIT,
            constants.HOST: constants.PROC_NULL,
            constants.IO: constants.ANY_SOURCE,
            constants.WTIME_IS_GLOBAL: True,
            constants.UNIVERSE_SIZE: engine.size(),
            constants.APPNUM: 0,
        }
        if keyval == constants.LASTUSEDCODE:
            from shmnd.mpi.objects import errors

            return errors.last_used_code()
        return values.get(keyval, NotImplemented)

    def Get_group(self) -> Group:
        """Access the group associated with a communicator."""
        return group_of_object(self._state("Get_group").group)

    @property
    def group(self) -> Group:
        """Group."""
        return self.Get_group()

    def Compare(self, comm: Comm) -> int:
        """Compare two communicators."""
        if not isinstance(comm, Comm):
            raise TypeError(f"Comm.Compare: {comm!r} is not a communicator")
        mine, theirs = self._state("Compare"), comm._state("Compare")
        if mine is theirs:
            return constants.IDENT
        results = []
        for one, other in ((mine.group, theirs.group), (mine.remote or (), theirs.remote or ())):
            if one == other:
                results.append(constants.CONGRUENT)
            elif set(one) == set(other):
                results.append(constants.SIMILAR)
            else:
                results.append(constants.UNEQUAL)
        return max(results)

    def Is_inter(self) -> bool:
        """Return whether the communicator is an intercommunicator."""
        return bool(self._state("Is_inter").inter)

    def Is_intra(self) -> bool:
        """Return whether the communicator is an intracommunicator."""
        return not self._state("Is_intra").inter

    @property
    def is_inter(self) -> bool:
        """Is intercommunicator."""
        return self.Is_inter()

    @property
    def is_intra(self) -> bool:
        """Is intracommunicator."""
        return self.Is_intra()

    def Get_topology(self) -> int:
        """Return the type of topology (if any) associated with a communicator."""
        topology = self._state("Get_topology").topology
        return constants.UNDEFINED if topology is None else topology.kind

    @property
    def topology(self) -> int:
        """Topology type."""
        return self.Get_topology()

    @property
    def is_topo(self) -> bool:
        """Is a topology."""
        return self.ob is not None and self.ob.topology is not None

    # -- duplicates --

    def _twin(self, context: int) -> CommState:
        """Return the state of a duplicate with these contexts, without attributes."""
        old = self.ob
        new = CommState(context, old.group, old.remote)
        new.topology = old.topology
        new.errhandler = old.errhandler
        if old.local is not None:
            new.local = CommState(context + CONTEXTS, old.group)
        return new

    def _complete(self, twin: CommState) -> CommState:
        """Return a duplicate with its attributes and its error handler set."""
        self._copy_attrs_to(twin)
        twin.errhandler = for_new(twin.errhandler)
        return twin

    def _local(self) -> Comm:
        """Return the communicator of the local group of an intercommunicator."""
        local: Comm = self._kinds["Intracomm"]()
        local.ob = self.ob.local
        return local

    def _born(self, state: CommState, kind: str) -> Any:
        """Return a new communicator that is made of this one."""
        state.errhandler = for_new(None if self.ob is None else self.ob.errhandler)
        return self._made(state, kind)

    def _made(self, state: CommState | None, kind: str | None = None) -> Any:
        comm = type(self)() if kind is None else self._kinds[kind]()
        comm.ob = state
        return comm

    def Clone(self) -> Self:
        """Clone an existing communicator."""
        return self.Dup()

    def Dup(self, info: Info | None = None) -> Self:
        """Duplicate a communicator."""
        hints = hints_of(info, "Comm.Dup")
        with self._calling("Dup"):
            new: Self = self._made(self._complete(self._twin(agreed_contexts(self, 2))))
        if info is not None:
            new.ob.info = hints
        return new

    def _duplicate(self) -> Self:
        """Return a duplicate for the library, which calls no function of an attribute.

        Its errors are handled as those of this communicator.
        """
        with self._calling("Dup"):
            new: Self = self._made(self._twin(agreed_contexts(self, 2)))
        return new

    def Dup_with_info(self, info: Info) -> Self:
        """Duplicate a communicator with hints."""
        return self.Dup(info)

    def Idup(self, info: Info | None = None) -> tuple[Self, Request]:
        """Nonblocking duplicate a communicator."""
        hints = hints_of(info, "Comm.Idup")
        state = self._communicating("Idup")
        news = bytearray(8)
        leader = min(state.group[0], (state.remote or state.group)[0])
        if state.group[state.rank] == leader:
            news[:] = reserve_contexts(2).to_bytes(8, "little")
        new: Self = type(self)()
        old = type(self)(self)

        def arrived() -> None:
            new.ob = old._complete(old._twin(int.from_bytes(news, "little")))
            if info is not None:
                new.ob.info = hints

        request = self._news_then(news, leader, arrived, "Idup")
        return new, request

    def Idup_with_info(self, info: Info) -> tuple[Self, Request]:
        """Nonblocking duplicate a communicator with hints."""
        return self.Idup(info)

    # -- parts --

    def Create(self, group: Group) -> Any:
        """Create communicator from group."""
        state = self._communicating("Create")
        if require_group(group, "Comm.Create").ob is None:
            raise_error(self, constants.ERR_GROUP, "Comm.Create: the group is null")
        kind = "Intercomm" if state.inter else "Intracomm"
        with self._calling("Create"):
            context = agreed_contexts(self, 2)
            remote = self.allgather(group.ob.ranks)[0] if state.inter else None
        if engine.rank() not in group.ob.ranks or (state.inter and not remote):
            return self._made(None, kind)
        new = CommState(context, group.ob.ranks, remote)
        if state.inter:
            new.local = CommState(context + CONTEXTS, group.ob.ranks)
        return self._born(new, kind)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Split communicator by color and key."""
        state = self._communicating("Split")
        color, key = c_int(self, color, "Split", "color"), c_int(self, key, "Split", "key")
        if color < 0 and color != constants.UNDEFINED:
            raise_error(
                self, constants.ERR_ARG, f"Comm.Split: color {color} is negative, not UNDEFINED"
            )
        mine = (color, key, engine.rank(), reserve_contexts(2))
        with self._calling("Split"):
            if state.inter:
                return self._split_inter(mine)
            every = self.allgather(mine)
        group = sorted((each for each in every if each[0] == color), key=_by_key)
        if color == constants.UNDEFINED:
            return self._made(None, "Intracomm")
        return self._born(CommState(group[0][3], tuple(each[2] for each in group)), "Intracomm")

    def _split_inter(self, mine: tuple[int, int, int, int]) -> Any:
        color = mine[0]
        theirs = [each for each in self.allgather(mine) if each[0] == color]
        ours = [each for each in self._local().allgather(mine) if each[0] == color]
        if color == constants.UNDEFINED or not theirs:
            return self._made(None, "Intercomm")
        ours.sort(key=_by_key)
        theirs.sort(key=_by_key)
        context = min(ours[0], theirs[0], key=lambda each: each[2])[3]
        group = tuple(each[2] for each in ours)
        new = CommState(context, group, tuple(each[2] for each in theirs))
        new.local = CommState(context + CONTEXTS, group)
        return self._born(new, "Intercomm")

    def Split_type(self, split_type: int, key: int = 0, info: Info = INFO_NULL) -> Any:
        """Split communicator by type."""
        guided = (constants.COMM_TYPE_HW_GUIDED, constants.COMM_TYPE_RESOURCE_GUIDED)
        color = constants.UNDEFINED
        named = hints_of(info, "Comm.Split_type").get("mpi_hw_resource_type")
        known = (*guided, constants.COMM_TYPE_HW_UNGUIDED, constants.UNDEFINED)
        if split_type == constants.COMM_TYPE_SHARED or (split_type in guided and named == _SHARED):
            color = 0
        elif split_type not in known:
            raise_error(
                self, constants.ERR_ARG, f"Comm.Split_type: {split_type} is not a type of a split"
            )
        with self._calling("Split_type"):
            return self.Split(color, key)

    def Free(self) -> None:
        """Free a communicator."""
        self._free("Free")

    def _free(self, call: str) -> None:
        self._require_own(constants.ERR_COMM, call)
        self._drop_attrs()
        self.ob.freed = True
        self._release()

    def Disconnect(self) -> None:
        """Disconnect from a communicator."""
        self._free("Disconnect")

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """Terminate MPI execution environment, after a line with rank, code and communicator."""
        code = integer(errorcode, "Comm", "Abort", "errorcode")
        try:
            title = "a null communicator" if self.ob is None else self.ob.title()
            abort_with_line(code, title)
        finally:
            engine.abort(code)

    @classmethod
    def Get_parent(cls) -> Any:
        """Return the parent intercommunicator for this process."""
        return cls._kinds["Intercomm"]()

    @classmethod
    def Join(cls, fd: int) -> Any:
        """Interconnect two processes connected by a socket."""
        raise left_out("Comm.Join")

    # -- buffers --

    def _buffering(self, call: str) -> Buffering:
        state = self._state(call)
        if state.buffering is None:
            state.buffering = Buffering()
        found: Buffering = state.buffering
        return found

    def Attach_buffer(self, buf: Any) -> None:
        """Attach a user-provided buffer for sending in buffered mode."""
        self._buffering("Attach_buffer").attach(buf, "Comm.Attach_buffer")

    def Detach_buffer(self) -> Any:
        """Remove an existing attached buffer."""
        return self._buffering("Detach_buffer").detach()

    def Flush_buffer(self) -> None:
        """Block until all buffered messages have been transmitted."""
        self._buffering("Flush_buffer").flush("Flush_buffer")

    def Iflush_buffer(self) -> Request:
        """Nonblocking flush for buffered messages."""
        return self._buffering("Iflush_buffer").iflush("Iflush_buffer")

    def _room_to_buffer(self, state: CommState, nbytes: int, call: str) -> Buffering:
        """Return the buffering that has given room to a message, or raise the error."""
        return room_to_buffer(self, state.buffering, nbytes, call)

    def _news(self, context: int, tag: int, leader: int, members: tuple[int, ...]) -> int:
        """Return the first context of a new communicator; the leader chooses it for `members`."""
        if engine.rank() != leader:
            return int.from_bytes(exchange(self, context, tag, [], [leader])[0], "little")
        first = reserve_contexts(2)
        data = first.to_bytes(8, "little")
        exchange(self, context, tag, [(each, data) for each in members if each != leader], [])
        return first


def _by_key(each: tuple[int, int, int, int]) -> int:
    """Return the key of a split, to sort by; a stable sort keeps ranks of equal keys in order."""
    return each[1]


COMM_NULL = constant(Comm(), "COMM_NULL")

__all__ = ["COMM_NULL", "NEWS", "Comm"]
