# SPDX-License-Identifier: Apache-2.0
"""Collectives of Python objects, by pickles that travel whole.

Reductions keep the order of ranks: the objects of a tree's two branches meet as left and right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from shmnd.mpi import constants
from shmnd.mpi.buffers.pickle import pickle
from shmnd.mpi.collectives.op import SUM
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.point_to_point.exchange import exchange, next_tag, to_job

_OUTSIDE = (constants.ROOT, constants.PROC_NULL)


def _dump(obj: Any) -> bytes:
    return bytes(pickle.dumps(obj))


def _copy(obj: Any) -> Any:
    return pickle.loads(_dump(obj))


class ObjectCollectives:
    """The lower-case collectives of every communicator."""

    __slots__ = ()
    ob: Any
    title: Any

    def _begin(self, call: str) -> tuple[Any, int, int]:
        """Return the state, the context and the tag of the next collective."""
        state = self.ob
        if state is None:
            raise_error(self, constants.ERR_COMM, f"Comm.{call}: the communicator is null")
        if state.revoked:
            raise_error(self, constants.ERR_REVOKED, f"Comm.{call}: the communicator is revoked")
        lock_table(self).setdefault(call, threading.Lock())
        return state, state.context + 1, next_tag(state, call)

    def _root(self, root: int, call: str) -> None:
        if self.ob is not None and not (0 <= root < self.ob.peers):
            if self.ob.inter and root in _OUTSIDE:
                return
            raise_error(
                self,
                constants.ERR_ROOT,
                f"Comm.{call}: root {root}; {self.title(self.ob)} has ranks 0 to "
                f"{self.ob.peers - 1}",
            )

    def barrier(self) -> None:
        """Barrier synchronization."""
        self.Barrier()  # type: ignore[attr-defined]

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Broadcast."""
        self._root(root, "bcast")
        state, context, tag = self._begin("bcast")
        if state.inter:
            if root == constants.ROOT:
                data = _dump(obj)
                exchange(context, tag, [(to_job(state, i), data) for i in range(state.peers)], [])
            if root in _OUTSIDE:
                return None
            return pickle.loads(exchange(context, tag, [], [to_job(state, root)])[0])
        size, rank = state.size, state.rank
        place = (rank - root) % size
        step = 1
        while step < size and not place & step:
            step *= 2
        if place:
            source = to_job(state, (place - step + root) % size)
            data = exchange(context, tag, [], [source])[0]
        else:
            data = _dump(obj)
        below = []
        step //= 2
        while step:
            if place + step < size:
                below.append((to_job(state, (place + step + root) % size), data))
            step //= 2
        if below:
            exchange(context, tag, below, [])
        return pickle.loads(data)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Gather."""
        self._root(root, "gather")
        state, context, tag = self._begin("gather")
        if root == constants.PROC_NULL and state.inter:
            return None
        if root != (constants.ROOT if state.inter else state.rank):
            exchange(context, tag, [(to_job(state, root), _dump(sendobj))], [])
            return None
        others = [i for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(context, tag, [], [to_job(state, i) for i in others])
        found = [pickle.loads(data) for data in came]
        if not state.inter:
            found.insert(state.rank, _copy(sendobj))
        return found

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Scatter."""
        self._root(root, "scatter")
        state, context, tag = self._begin("scatter")
        if root == constants.PROC_NULL and state.inter:
            return None
        if root != (constants.ROOT if state.inter else state.rank):
            return pickle.loads(exchange(context, tag, [], [to_job(state, root)])[0])
        parts = _parts(sendobj, state.peers)
        sends = [
            (to_job(state, i), _dump(part))
            for i, part in enumerate(parts)
            if state.inter or i != state.rank
        ]
        exchange(context, tag, sends, [])
        return None if state.inter else _copy(parts[state.rank])

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather to all."""
        state, context, tag = self._begin("allgather")
        data = _dump(sendobj)
        others = [to_job(state, i) for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(context, tag, [(each, data) for each in others], others)
        if not state.inter:
            came.insert(state.rank, data)
        return [pickle.loads(each) for each in came]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """All to all scatter/gather."""
        state, context, tag = self._begin("alltoall")
        parts = [_dump(part) for part in _parts(sendobj, state.peers)]
        others = [i for i in range(state.peers) if state.inter or i != state.rank]
        came = exchange(
            context,
            tag,
            [(to_job(state, i), parts[i]) for i in others],
            [to_job(state, i) for i in others],
        )
        if not state.inter:
            came.insert(state.rank, parts[state.rank])
        return [pickle.loads(each) for each in came]

    def _tree(
        self, sendobj: Any, op: Callable[[Any, Any], Any], context: int, tag: int
    ) -> tuple[Any, bool]:
        """Reduce within the local group; at its first rank there is the result, and True."""
        state = self.ob
        own, rank = state.group, state.rank
        result = _copy(sendobj)
        step = 1
        while step < state.size:
            if rank & step:
                exchange(context, tag, [(own[rank - step], _dump(result))], [])
                return None, False
            if rank + step < state.size:
                right = pickle.loads(exchange(context, tag, [], [own[rank + step]])[0])
                result = op(result, right)
            step *= 2
        return result, True

    def reduce(
        self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM, root: int = 0
    ) -> Any | None:
        """Reduce to root."""
        self._root(root, "reduce")
        state, context, tag = self._begin("reduce")
        if state.inter:
            if root == constants.ROOT:
                return pickle.loads(exchange(context, tag, [], [to_job(state, 0)])[0])
            if root == constants.PROC_NULL:
                return None
        result, first = self._tree(sendobj, op, context, tag)
        if state.inter:
            if first:
                exchange(context, tag, [(to_job(state, root), _dump(result))], [])
            return None
        if root == 0:
            return result
        if first:
            exchange(context, tag, [(to_job(state, root), _dump(result))], [])
        elif state.rank == root:
            return pickle.loads(exchange(context, tag, [], [to_job(state, 0)])[0])
        return None

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Reduce to all."""
        state, context, tag = self._begin("allreduce")
        result, first = self._tree(sendobj, op, context, tag)
        if first:
            data = _dump(result)
            if state.inter:
                data = exchange(context, tag, [(to_job(state, 0), data)], [to_job(state, 0)])[0]
            exchange(context, tag, [(each, data) for each in state.group[1:]], [])
        else:
            data = exchange(context, tag, [], [state.group[0]])[0]
        return pickle.loads(data)


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
        before, result = None, _copy(sendobj)
        if state.rank:
            before = pickle.loads(exchange(context, tag, [], [to_job(state, state.rank - 1)])[0])
            result = op(_copy(before), result)
        if state.rank + 1 < state.size:
            exchange(context, tag, [(to_job(state, state.rank + 1), _dump(result))], [])
        return before, result


def lock_table(comm: Any) -> dict[str, threading.Lock]:
    """Return the locks of a communicator's collectives of objects, by their names."""
    state = comm.ob
    if state.locks is None:
        state.locks = {}
    found: dict[str, threading.Lock] = state.locks
    return found


def _parts(given: Sequence[Any] | None, count: int) -> list[Any]:
    """Return the objects for `count` ranks; None stands for as many None."""
    if given is None:
        return [None] * count
    parts = list(given)
    if len(parts) != count:
        raise ValueError(f"expecting {count} items, got {len(parts)}")
    return parts
