# SPDX-License-Identifier: Apache-2.0
"""Windows: memory that ranks offer to each other, and the epochs in which it is used."""

from __future__ import annotations

from typing import Any, Literal, Self

from shmnd.mpi import constants
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.buffers.sentinels import BOTTOM
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.group import Group, group_from
from shmnd.mpi.communicators.intracomm import COMM_SELF
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.handle import constant
from shmnd.mpi.objects.info import INFO_NULL, Info, InfoCalls
from shmnd.mpi.one_sided.rma import WinCalls
from shmnd.mpi.one_sided.window import WinState
from shmnd.mpi.point_to_point.request import Request

_POSTED, _DONE = 1, 2
"""Tags of the messages between those who offer and those who use."""


class Win(WinCalls, Handling, InfoCalls):
    """Remote memory access context."""

    _family = "Win"
    _null_error = constants.ERR_WIN

    def __new__(cls, win: Win | None = None) -> Self:
        """Return another handle to the same window."""
        return super().__new__(cls, win)

    def _state(self, call: str) -> Any:
        if self.ob is None:
            raise_error(self, constants.ERR_WIN, f"Win.{call}: the window is null")
        return self.ob

    # -- making --

    @classmethod
    def _make(
        cls, flavor: int, memory: Any, size: int, unit: int, info: Info, comm: Comm, call: str
    ) -> Self:
        if comm.ob is None:
            raise_error(comm, constants.ERR_COMM, f"Win.{call}: the communicator is null")
        if unit <= 0:
            raise_error(comm, constants.ERR_DISP, f"Win.{call}: disp_unit {unit}, at least 1")
        if size < 0:
            raise_error(comm, constants.ERR_SIZE, f"Win.{call}: size {size}, at least 0")
        self = cls()
        self.ob = WinState(comm.Dup(), flavor, memory, size, unit, f"Win.{call}")
        self.ob.info = dict(info.items()) if info else {}
        return self

    @classmethod
    def Create(
        cls, memory: Any, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window of what each rank gives; None gives nothing.
        """
        if memory is None or memory is BOTTOM:
            memory = buffer(b"") if memory is None else None
        else:
            memory = buffer.frombuffer(memory)
        return cls._make(constants.WIN_FLAVOR_CREATE, memory, 0, disp_unit, info, comm, "Create")

    @classmethod
    def Allocate(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window with `size` bytes of shared memory of each rank.
        """
        flavor = constants.WIN_FLAVOR_ALLOCATE
        return cls._make(flavor, None, size, disp_unit, info, comm, "Allocate")

    @classmethod
    def Allocate_shared(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Comm = COMM_SELF
    ) -> Self:
        """Create an window object for one-sided communication.

        Return the window with memory that every rank maps.
        """
        flavor = constants.WIN_FLAVOR_SHARED
        return cls._make(flavor, None, size, disp_unit, info, comm, "Allocate_shared")

    @classmethod
    def Create_dynamic(cls, info: Info = INFO_NULL, comm: Comm = COMM_SELF) -> Self:
        """Create an window object for one-sided communication.

        Return the window without memory; `Attach` gives it some.
        """
        return cls._make(constants.WIN_FLAVOR_DYNAMIC, None, 0, 1, info, comm, "Create_dynamic")

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        """Query the process-local address for remote memory segments."""
        state = self._state("Shared_query")
        if rank == constants.PROC_NULL:
            rank = next((i for i, size in enumerate(state.sizes) if size), 0)
        if not 0 <= rank < state.size:
            raise_error(
                self,
                constants.ERR_RANK,
                f"Win.Shared_query: rank {rank}; the window has {state.size} ranks",
            )
        part = state.part(rank)
        if part is None:
            return buffer(b""), 1
        return part, state.units[rank]

    def Attach(self, memory: Any) -> None:
        """Attach a local memory region."""
        self._state("Attach").attached.append(buffer.frombuffer(memory))

    def Detach(self, memory: Any) -> None:
        """Detach a local memory region."""
        address = buffer.frombuffer(memory).address
        attached = self._state("Detach").attached
        for each in attached:
            if each.address == address:
                attached.remove(each)
                return
        raise_error(
            self, constants.ERR_RMA_ATTACH, f"Win.Detach: nothing is attached at {address:#x}"
        )

    def Free(self) -> None:
        """Free a window."""
        self._require_own(constants.ERR_WIN, "Free")
        state = self.ob
        state.comm.Barrier()
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
        found: buffer = self._state("tomemory").memory
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
        return group_from(self._state("Get_group").comm.ob.group)

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

    # -- epochs of all --

    def Fence(self, assertion: int = 0) -> None:
        """Perform an MPI fence synchronization on a window."""
        self._state("Fence").comm.Barrier()

    # -- epochs of some --

    def _places(self, group: Group, call: str) -> list[int]:
        comm = self._state(call).comm
        places = comm.ob.group
        if group.ob is None or any(rank not in places for rank in group.ob.ranks):
            raise_error(self, constants.ERR_GROUP, f"Win.{call}: the group is not of the window")
        return [places.index(rank) for rank in group.ob.ranks]

    def Start(self, group: Group, assertion: int = 0) -> None:
        """Start an RMA access epoch for MPI."""
        places = self._places(group, "Start")
        state = self.ob
        if state.started is not None:
            raise_error(self, constants.ERR_RMA_SYNC, "Win.Start: call Complete first")
        for place in places:
            state.comm.Recv(_nothing(), place, _POSTED)
        state.started = places

    def Complete(self) -> None:
        """Complete an RMA operation begun after an `Start`."""
        state = self._state("Complete")
        if state.started is None:
            raise_error(self, constants.ERR_RMA_SYNC, "Win.Complete: Start was not called")
        places, state.started = state.started, None
        for place in places:
            state.comm.Send(_nothing(), place, _DONE)

    def Post(self, group: Group, assertion: int = 0) -> None:
        """Start an RMA exposure epoch."""
        places = self._places(group, "Post")
        state = self.ob
        if state.posted is not None:
            raise_error(self, constants.ERR_RMA_SYNC, "Win.Post: call Wait first")
        state.posted = [state.comm.Irecv(_nothing(), place, _DONE) for place in places]
        for place in places:
            state.comm.Send(_nothing(), place, _POSTED)

    def _posted(self, call: str) -> list[Request]:
        posted: list[Request] | None = self._state(call).posted
        if posted is None:
            raise_error(self, constants.ERR_RMA_SYNC, f"Win.{call}: Post was not called")
            return []
        return posted

    def Wait(self) -> Literal[True]:
        """Complete an RMA exposure epoch begun with `Post`."""
        Request.Waitall(self._posted("Wait"))
        self.ob.posted = None
        return True

    def Test(self) -> bool:
        """Test whether an RMA exposure epoch has completed."""
        done = Request.Testall(self._posted("Test"))
        if done:
            self.ob.posted = None
        return done

    # -- locks --

    def _target(self, rank: int, call: str) -> Any:
        state = self._state(call)
        if rank != constants.PROC_NULL and not 0 <= rank < state.size:
            raise_error(
                self,
                constants.ERR_RANK,
                f"Win.{call}: rank {rank}; the window has {state.size} ranks",
            )
        return state

    def Lock(
        self, rank: int, lock_type: int = constants.LOCK_EXCLUSIVE, assertion: int = 0
    ) -> None:
        """Begin an RMA access epoch at the target process."""
        state = self._target(rank, "Lock")
        if lock_type not in (constants.LOCK_EXCLUSIVE, constants.LOCK_SHARED):
            raise_error(
                self, constants.ERR_LOCKTYPE, f"Win.Lock: lock_type {lock_type} is none of two"
            )
        if rank == constants.PROC_NULL:
            return
        if rank in state.locked:
            raise_error(self, constants.ERR_RMA_SYNC, f"Win.Lock: rank {rank} is locked already")
        writes = lock_type == constants.LOCK_EXCLUSIVE
        state.lock(rank, writes)
        state.locked[rank] = writes

    def Unlock(self, rank: int) -> None:
        """Complete an RMA access epoch at the target process."""
        state = self._target(rank, "Unlock")
        if rank == constants.PROC_NULL:
            return
        if rank not in state.locked:
            raise_error(self, constants.ERR_RMA_SYNC, f"Win.Unlock: rank {rank} is not locked")
        state.unlock(rank, state.locked.pop(rank))

    def Lock_all(self, assertion: int = 0) -> None:
        """Begin an RMA access epoch at all processes."""
        state = self._state("Lock_all")
        if state.locked:
            raise_error(self, constants.ERR_RMA_SYNC, "Win.Lock_all: some are locked already")
        for rank in range(state.size):
            state.lock(rank, False)
            state.locked[rank] = False

    def Unlock_all(self) -> None:
        """Complete an RMA access epoch at all processes."""
        state = self._state("Unlock_all")
        if len(state.locked) != state.size:
            raise_error(self, constants.ERR_RMA_SYNC, "Win.Unlock_all: Lock_all was not called")
        for rank, writes in state.locked.items():
            state.unlock(rank, writes)
        state.locked = {}

    def Flush(self, rank: int) -> None:
        """Complete all outstanding RMA operations at a target."""
        self._target(rank, "Flush")

    def Flush_all(self) -> None:
        """Complete all outstanding RMA operations at all targets."""
        self._state("Flush_all")

    def Flush_local(self, rank: int) -> None:
        """Complete locally all outstanding RMA operations at a target."""
        self._target(rank, "Flush_local")

    def Flush_local_all(self) -> None:
        """Complete locally all outstanding RMA operations at all targets."""
        self._state("Flush_local_all")

    def Sync(self) -> None:
        """Synchronize public and private copies of the window."""
        self._state("Sync")


def _nothing() -> bytearray:
    return bytearray()


WIN_NULL = constant(Win(), "WIN_NULL")
