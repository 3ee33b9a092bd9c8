# SPDX-License-Identifier: Apache-2.0
"""Epochs of windows: when a rank may use the memory of others, and when it offers its own.

A call that moves data needs an access epoch at its target: of Fence, of Start, or of a lock. The
window keeps one flag for each rank, which such a call reads; the calls here set and clear it. A
rank is in epochs of one kind at a time.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.communicators.comm_state import small_number
from shmnd.mpi.communicators.group import Group, require_group
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point.request import Request

_POSTED, _DONE = 1, 2
"""Tags of the messages between ranks that offer a window and ranks that use it."""

_ASSERTIONS: Final = {
    "Fence": ("MODE_NOSTORE", "MODE_NOPUT", "MODE_NOPRECEDE", "MODE_NOSUCCEED"),
    "Start": ("MODE_NOCHECK",),
    "Post": ("MODE_NOCHECK", "MODE_NOSTORE", "MODE_NOPUT"),
    "Lock": ("MODE_NOCHECK",),
    "Lock_all": ("MODE_NOCHECK",),
}
_KNOWN: Final = {
    call: sum(getattr(constants, name) for name in names) for call, names in _ASSERTIONS.items()
}
"""The bits of these: each has one of its own."""


class Epochs:
    """The calls of a window that begin and end epochs, and those that complete calls within."""

    __slots__ = ()
    ob: Any
    _poll: Any
    """Moves messages, and yields the core after many calls in vain. A program may complete its
    calls in a loop until another rank has come so far, which may need the same core."""

    def _state(self, call: str) -> Any:
        if self.ob is None:
            raise_error(self, constants.ERR_WIN, f"Win.{call}: the window is null")
        return self.ob

    def _out_of_turn(self, call: str, why: str) -> None:
        title = self.ob.title()
        raise_error(self, constants.ERR_RMA_SYNC, f"Win.{call} of {title}: {why}")

    def _no_epoch(self, call: str, *, exposed: bool) -> None:
        """Raise ERR_RMA_SYNC in an access epoch and, where asked, an exposure epoch."""
        ends = self.ob.epoch()
        if ends:
            self._out_of_turn(call, f"an access epoch is open; call {ends} first")
        if exposed and self.ob.posted is not None:
            self._out_of_turn(call, "an exposure epoch is open; call Wait first")

    def _assertion(self, given: int, call: str) -> int:
        """Return the assertion of a call as an integer, which has the bits that the call knows."""
        assertion = small_number(given, call, "assertion", "Win")
        if assertion & ~_KNOWN[call]:
            raise_error(
                self,
                constants.ERR_ASSERT,
                f"Win.{call}: assertion {shown(given)}; "
                f"this call knows {', '.join(_ASSERTIONS[call])}",
            )
        return assertion

    # -- epochs of all --

    def Fence(self, assertion: int = 0) -> None:
        """Perform an MPI fence synchronization on a window."""
        state = self._state("Fence")
        assertion = self._assertion(assertion, "Fence")
        if not state.fenced:
            self._no_epoch("Fence", exposed=True)
        elif state.posted is not None:
            self._out_of_turn("Fence", "an exposure epoch is open; call Wait first")
        state.comm._barrier_as("Win.Fence", state)
        if assertion & constants.MODE_NOSUCCEED:
            state.close(None)
        else:
            state.open(None)
            state.fenced = True

    # -- epochs of some --

    def _places(self, group: Group, call: str) -> list[int]:
        comm = self._state(call).comm
        places = comm.ob.group
        require_group(group, f"Win.{call}")
        if group.ob is None or any(rank not in places for rank in group.ob.ranks):
            raise_error(self, constants.ERR_GROUP, f"Win.{call}: the group is not of the window")
        return [places.index(rank) for rank in group.ob.ranks]

    def Start(self, group: Group, assertion: int = 0) -> None:
        """Start an RMA access epoch for MPI."""
        places = self._places(group, "Start")
        state = self.ob
        self._assertion(assertion, "Start")
        self._no_epoch("Start", exposed=False)
        for place in places:
            state.receive(place, _POSTED, "Win.Start")
        state.close(None)
        state.open(places)
        state.started = places

    def Complete(self) -> None:
        """Complete an RMA operation begun after an `Start`."""
        state = self._state("Complete")
        if state.started is None:
            self._out_of_turn("Complete", "no epoch of Start is open; call Start first")
        places, state.started = state.started, None
        state.close(None)
        self._send_to(places, _DONE, "Win.Complete")

    def Post(self, group: Group, assertion: int = 0) -> None:
        """Start an RMA exposure epoch."""
        places = self._places(group, "Post")
        state = self.ob
        self._assertion(assertion, "Post")
        if state.posted is not None:
            self._out_of_turn("Post", "an exposure epoch is open; call Wait first")
        state.posted = [state.post_receive(place, _DONE, "Win.Wait") for place in places]
        self._send_to(places, _POSTED, "Win.Post")

    def _send_to(self, places: list[int], tag: int, call: str) -> None:
        """Send to all of them, also where one has died, and raise the first error then."""
        failures: list[MPIException] = []
        for place in places:
            try:
                self.ob.send(place, tag, call)
            except MPIException as error:
                failures = failures or [error]
        if failures:
            raise failures.pop()  # the frame, which its traceback has, has it no more

    def _posted(self, call: str) -> list[Request]:
        posted: list[Request] | None = self._state(call).posted
        if posted is None:
            self._out_of_turn(call, "no exposure epoch is open; call Post first")
            return []
        return posted

    def Wait(self) -> Literal[True]:
        """Complete an RMA exposure epoch begun with `Post`."""
        for each in self._posted("Wait"):
            each.Wait()
        self.ob.posted = None
        return True

    def Test(self) -> bool:
        """Test whether an RMA exposure epoch has completed."""
        done = all(each.Test() for each in self._posted("Test"))
        if done:
            self.ob.posted = None
        return done

    # -- locks --

    def _target(self, given: int, call: str) -> tuple[Any, int]:
        """Return the state of the window, and the rank that a call names as an integer."""
        state = self._state(call)
        rank = small_number(given, call, "rank", "Win")
        if rank != constants.PROC_NULL and not 0 <= rank < state.size:
            raise_error(
                self,
                constants.ERR_RANK,
                f"Win.{call}: rank {shown(given)}; {state.title()} has ranks 0 to {state.size - 1}",
            )
        return state, rank

    def Lock(
        self, rank: int, lock_type: int = constants.LOCK_EXCLUSIVE, assertion: int = 0
    ) -> None:
        """Begin an RMA access epoch at the target process."""
        state, rank = self._target(rank, "Lock")
        kind = small_number(lock_type, "Lock", "lock_type", "Win")
        if kind not in (constants.LOCK_EXCLUSIVE, constants.LOCK_SHARED):
            raise_error(
                self,
                constants.ERR_LOCKTYPE,
                f"Win.Lock: lock_type {lock_type}; expected LOCK_EXCLUSIVE or LOCK_SHARED",
            )
        self._assertion(assertion, "Lock")
        if rank == constants.PROC_NULL:
            return
        if rank in state.locked:
            ends = "Unlock_all" if state.all_locked else f"Unlock({rank})"
            self._out_of_turn("Lock", f"rank {rank} is locked already; call {ends} first")
        if not state.locked:
            self._no_epoch("Lock", exposed=False)
            state.close(None)
        writes = kind == constants.LOCK_EXCLUSIVE
        state.lock(rank, writes)
        state.open([rank])

    def Unlock(self, rank: int) -> None:
        """Complete an RMA access epoch at the target process."""
        state, rank = self._target(rank, "Unlock")
        if rank == constants.PROC_NULL:
            return
        if state.all_locked:
            self._out_of_turn("Unlock", "the lock is one of Lock_all; call Unlock_all")
        if rank not in state.locked:
            self._out_of_turn("Unlock", f"rank {rank} is not locked; call Lock({rank}) first")
        state.close([rank])
        state.unlock(rank)
        self._poll()

    def Lock_all(self, assertion: int = 0) -> None:
        """Begin an RMA access epoch at all processes."""
        state = self._state("Lock_all")
        self._assertion(assertion, "Lock_all")
        self._no_epoch("Lock_all", exposed=False)
        try:
            for rank in range(state.size):
                state.lock(rank, False, "Win.Lock_all")
            state.all_locked = True
        except BaseException:
            self._unlock_all(state)
            raise
        state.open(None)

    def Unlock_all(self) -> None:
        """Complete an RMA access epoch at all processes."""
        state = self._state("Unlock_all")
        if not state.all_locked:
            self._out_of_turn("Unlock_all", "Lock_all was not called; call it first")
        state.close(None)
        self._unlock_all(state)
        self._poll()

    def _unlock_all(self, state: Any) -> None:
        """Release all locks; what a handler of a signal has interrupted may be called again."""
        for rank in list(state.locked):
            state.unlock(rank)
        state.all_locked = False

    # -- completion within an epoch --

    def _flush(self, rank: int, call: str) -> None:
        # Programs flush after each call that moves data: an int that is locked needs no check.
        if type(rank) is not int or self.ob is None or rank not in self.ob.locked:
            self._require_locked(rank, call)
        self._poll()

    def _require_locked(self, rank: int, call: str) -> None:
        state, rank = self._target(rank, call)
        if rank != constants.PROC_NULL and rank not in state.locked:
            self._out_of_turn(call, f"rank {rank} is not locked; call Lock or Lock_all first")

    def _flush_all(self, call: str) -> None:
        if not self._state(call).locked:
            self._out_of_turn(call, "no rank is locked; call Lock or Lock_all first")
        self._poll()

    def Flush(self, rank: int) -> None:
        """Complete all outstanding RMA operations at a target."""
        self._flush(rank, "Flush")

    def Flush_all(self) -> None:
        """Complete all outstanding RMA operations at all targets."""
        self._flush_all("Flush_all")

    def Flush_local(self, rank: int) -> None:
        """Complete locally all outstanding RMA operations at a target."""
        self._flush(rank, "Flush_local")

    def Flush_local_all(self) -> None:
        """Complete locally all outstanding RMA operations at all targets."""
        self._flush_all("Flush_local_all")

    def Sync(self) -> None:
        """Synchronize public and private copies of the window."""
        self._state("Sync")
        self._poll()
