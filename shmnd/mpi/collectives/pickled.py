# SPDX-License-Identifier: Apache-2.0
"""Collectives of Python objects, by pickles that travel whole.

Reductions keep the order of ranks: the objects of a tree's two branches meet as left and right. A
rank whose object cannot be pickled, or whose operation raises, tells the ranks that wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from shmnd.mpi import constants
from shmnd.mpi.collectives.op import SUM
from shmnd.mpi.collectives.outcomes import Outgoing, Partial, dump, dump_parts, failed, load
from shmnd.mpi.communicators.comm_state import small_number
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.point_to_point.exchange import exchange, next_tag, to_job
from shmnd.mpi.transport.outer_call import name_of

_OUTSIDE = (constants.ROOT, constants.PROC_NULL)


class ObjectCollectives:
    """The lower-case collectives of every communicator."""

    __slots__ = ()
    ob: Any
    title: Any

    def _begin(self, call: str, root: int = -1) -> tuple[Any, int, int]:
        """Return the state, the context and the tag of the next collective."""
        state = self.ob
        if state is None:
            raise_error(self, constants.ERR_COMM, f"Comm.{call}: the communicator is null")
        if state.is_revoked(call):
            name = name_of(state.context, call)
            raise_error(self, constants.ERR_REVOKED, f"{name}: the communicator is revoked")
        locks = lock_table(self)
        if call not in locks:
            locks.setdefault(call, threading.Lock())  # another thread may have come before
        return state, state.context + 1, next_tag(self, call, root)

    def _root(self, given: int, call: str) -> int:
        root = small_number(given, call, "root")
        if self.ob is not None and not (0 <= root < self.ob.peers):
            if self.ob.inter and root in _OUTSIDE:
                return root
            raise_error(
                self,
                constants.ERR_ROOT,
                f"Comm.{call}: root {given}; {self.ob.title()} has ranks 0 to {self.ob.peers - 1}",
            )
        return root

    def barrier(self) -> None:
        """Barrier synchronization."""
        self.Barrier()  # type: ignore[attr-defined]

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Broadcast."""
        return self._bcast_of(lambda: obj, root)

    def _bcast_of(self, make: Callable[[], Any], root: int) -> Any:
        """Broadcast what the root makes. Where that raises, all ranks raise."""
        root = self._root(root, "bcast")
        state, context, tag = self._begin("bcast", root)
        if state.inter:
            return self._bcast_to_other_group(make, root, context, tag)
        size, rank = state.size, state.rank
        place = (rank - root) % size
        step = 1
        while step < size and not place & step:
            step *= 2
        mine: Outgoing | None = None
        if place:
            source = to_job(state, (place - step + root) % size)
            data = exchange(self, context, tag, [], [source])[0]
        else:
            mine = Outgoing(rank, lambda: [dump(make())])
            data = mine.data(0)
        below = []
        step //= 2
        while step:
            if place + step < size:
                below.append((to_job(state, (place + step + root) % size), data))
            step //= 2
        if below:
            exchange(self, context, tag, below, [])
        if mine is not None:
            mine.check()
        return load(self, data, "bcast")

    def _bcast_to_other_group(
        self, make: Callable[[], Any], root: int, context: int, tag: int
    ) -> Any:
        """Broadcast from the root to the other group; return the object there, else None."""
        state = self.ob
        if root == constants.ROOT:
            given = Outgoing(state.rank, lambda: [dump(make())])
            sends = [(to_job(state, i), given.data(0)) for i in range(state.peers)]
            exchange(self, context, tag, sends, [])
            given.check()
        if root in _OUTSIDE:
            return None
        return load(self, exchange(self, context, tag, [], [to_job(state, root)])[0], "bcast")

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Gather."""
        root = self._root(root, "gather")
        state, context, tag = self._begin("gather", root)
        if root == constants.PROC_NULL and state.inter:
            return None
        mine = Outgoing(state.rank, lambda: [dump(sendobj)])
        if root != (constants.ROOT if state.inter else state.rank):
            exchange(self, context, tag, [(to_job(state, root), mine.data(0))], [])
            mine.check()
            return None
        others = [i for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(self, context, tag, [], [to_job(state, i) for i in others])
        if not state.inter:
            mine.check()
            came.insert(state.rank, mine.data(0))
        return [load(self, data, "gather") for data in came]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Scatter."""
        root = self._root(root, "scatter")
        state, context, tag = self._begin("scatter", root)
        if root == constants.PROC_NULL and state.inter:
            return None
        if root != (constants.ROOT if state.inter else state.rank):
            data = exchange(self, context, tag, [], [to_job(state, root)])[0]
            return load(self, data, "scatter")
        mine = Outgoing(state.rank, lambda: dump_parts(sendobj, state.peers, "scatter"))
        others = [i for i in range(state.peers) if state.inter or i != state.rank]
        exchange(self, context, tag, [(to_job(state, i), mine.data(i)) for i in others], [])
        mine.check()
        return None if state.inter else load(self, mine.data(state.rank), "scatter")

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather to all."""
        return self._allgather_of(lambda: sendobj)

    def _allgather_of(self, make: Callable[[], Any]) -> list[Any]:
        """Gather to all what each rank makes. Where that raises, all ranks raise."""
        state, context, tag = self._begin("allgather")
        mine = Outgoing(state.rank, lambda: [dump(make())])
        others = [to_job(state, i) for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(self, context, tag, [(each, mine.data(0)) for each in others], others)
        mine.check()
        if not state.inter:
            came.insert(state.rank, mine.data(0))
        return [load(self, each, "allgather") for each in came]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """All to all scatter/gather."""
        state, context, tag = self._begin("alltoall")
        mine = Outgoing(state.rank, lambda: dump_parts(sendobj, state.peers, "alltoall"))
        others = [i for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(
            self,
            context,
            tag,
            [(to_job(state, i), mine.data(i)) for i in others],
            [to_job(state, i) for i in others],
        )
        mine.check()
        if not state.inter:
            came.insert(state.rank, mine.data(state.rank))
        return [load(self, each, "alltoall") for each in came]

    def _tree(self, sendobj: Any, op: Any, call: str, context: int, tag: int) -> Partial:
        """Return this rank's part of a reduction in the local group; at the first, the result."""
        state = self.ob
        own, rank = state.group, state.rank
        result = Partial(self, op, call)
        result.begin(sendobj)
        step = 1
        while step < state.size and not rank & step:
            if rank + step < state.size:
                result.combine(exchange(self, context, tag, [], [own[rank + step]])[0])
            step *= 2
        if rank:
            exchange(self, context, tag, [(own[rank - step], result.data())], [])
        return result

    def reduce(
        self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM, root: int = 0
    ) -> Any | None:
        """Reduce to root."""
        root = self._root(root, "reduce")
        state, context, tag = self._begin("reduce", root)
        if state.inter:
            if root == constants.ROOT:
                data = exchange(self, context, tag, [], [to_job(state, 0)])[0]
                return load(self, data, "reduce")
            if root == constants.PROC_NULL:
                return None
        result = self._tree(sendobj, op, "reduce", context, tag)
        if state.rank == 0 and (state.inter or root):
            exchange(self, context, tag, [(to_job(state, root), result.data())], [])
        given = None
        if state.rank == root and root and not state.inter:
            given = exchange(self, context, tag, [], [to_job(state, 0)])[0]
        result.check()
        if given is not None:
            return load(self, given, "reduce")
        return result.value if state.rank == root and not state.inter else None

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Reduce to all."""
        state, context, tag = self._begin("allreduce")
        result = self._tree(sendobj, op, "allreduce", context, tag)
        if state.rank == 0:
            data = result.data()
            if state.inter:
                other = to_job(state, 0)
                theirs = exchange(self, context, tag, [(other, data)], [other])[0]
                data = data if failed(data) else theirs
            exchange(self, context, tag, [(each, data) for each in state.group[1:]], [])
        else:
            data = exchange(self, context, tag, [], [state.group[0]])[0]
        result.check()
        return load(self, data, "allreduce")


class ObjectScans:
    """The lower-case prefix reductions of intracommunicators."""

    __slots__ = ()
    ob: Any
    title: Any

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Inclusive scan."""
        return self._before(sendobj, op, "scan")[1]

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Exclusive scan."""
        return self._before(sendobj, op, "exscan")[0]

    def _before(self, sendobj: Any, op: Callable[[Any, Any], Any], call: str) -> tuple[Any, Any]:
        """Return the reduction of all ranks before this one, and with it."""
        state, context, tag = self._begin(call)  # type: ignore[attr-defined]
        before = None
        result = Partial(self, op, call)
        result.begin(sendobj)
        if state.rank:
            data = exchange(self, context, tag, [], [to_job(state, state.rank - 1)])[0]
            before = result.combine(data, left=True)
        if state.rank + 1 < state.size:
            exchange(self, context, tag, [(to_job(state, state.rank + 1), result.data())], [])
        result.check()
        return before, result.value


def lock_table(comm: Any) -> dict[str, threading.Lock]:
    """Return the locks of a communicator's collectives of objects, by their names."""
    state = comm.ob
    if state.locks is None:
        state.locks = {}
    found: dict[str, threading.Lock] = state.locks
    return found
