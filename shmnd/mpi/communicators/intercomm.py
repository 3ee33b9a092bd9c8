# SPDX-License-Identifier: Apache-2.0
"""Communicators between two groups."""

from __future__ import annotations

import pickle
import zlib
from typing import Any, Self

from shmnd.common.arguments import shown
from shmnd.common.native import direct_calls
from shmnd.mpi import constants
from shmnd.mpi.collectives.outcomes import Outgoing, failed, reason
from shmnd.mpi.communicators.comm import NEWS, Comm
from shmnd.mpi.communicators.comm_state import (
    CONTEXTS,
    CommState,
    reserve_contexts,
    small_number,
)
from shmnd.mpi.communicators.contexts import agreed_contexts
from shmnd.mpi.communicators.from_groups import Making
from shmnd.mpi.communicators.group import Group, group_of_object
from shmnd.mpi.communicators.intracomm import Intracomm
from shmnd.mpi.objects.errhandler import for_new, handle_new, raise_error
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.info import INFO_NULL, Info, require_info
from shmnd.mpi.point_to_point.exchange import exchange, to_job
from shmnd.mpi.transport import engine
from shmnd.mpi.transport.outer_call import OuterCall

_FROM_GROUPS = 9
"""The context for news of intercommunicators that have no parent."""


class Intercomm(Comm):
    """Intercommunicator."""

    def __new__(cls, comm: Comm | None = None) -> Self:
        """Return another handle to the same communicator."""
        self = super().__new__(cls, comm)
        if self.ob is not None and not self.ob.inter:
            raise TypeError(f"{cls.__name__}: the communicator has one group; use Intracomm")
        return self

    @classmethod
    def _make(
        cls, local: Intracomm, leader: int, peers: Intracomm, remote_leader: int, tag: int
    ) -> Intercomm:
        """Connect two groups by their leaders, which share the communicator `peers`."""
        state = local._communicating("Create_intercomm")
        group = state.group
        given, leader = leader, small_number(leader, "Create_intercomm", "local_leader")
        if not 0 <= leader < len(group):
            raise_error(
                local,
                constants.ERR_RANK,
                f"Comm.Create_intercomm: local_leader {shown(given)}, the group has {len(group)}",
            )

        with local._calling("Create_intercomm") as outer:
            local.Ibarrier().Wait()  # else a leader that has missed a collective would not wait

            def news() -> tuple[int, tuple[int, ...]]:
                return _swap_by(peers, remote_leader, tag, group, outer)

            context, remote = local._bcast_of(news, leader)
        if both := set(group).intersection(remote):
            raise_error(local, constants.ERR_COMM, _overlap("Comm.Create_intercomm", both))
        new = cls._between(context, group, remote)
        new.ob.errhandler = for_new(local.ob.errhandler)
        return new

    @classmethod
    def _between(cls, context: int, group: tuple[int, ...], remote: tuple[int, ...]) -> Intercomm:
        new = cls()
        new.ob = CommState(context, group, remote)
        new.ob.local = CommState(context + CONTEXTS, group)
        return new

    @classmethod
    def Create_from_groups(
        cls,
        local_group: Group,
        local_leader: int,
        remote_group: Group,
        remote_leader: int,
        stringtag: str = "org.mpi4py",
        info: Info = INFO_NULL,
        errhandler: Any = None,
    ) -> Intercomm:
        """Create communicator from group."""
        call = "Intercomm.Create_from_groups"
        engine.require_open(call)
        require_info(info, call)
        tag = zlib.crc32(stringtag.encode()) & constants.TAG_LIMIT
        with Making(cls(), errhandler, call) as making:
            group, remote = making.ranks(local_group), making.ranks(remote_group)
            if both := set(group).intersection(remote):
                raise MPIException(constants.ERR_GROUP, _overlap(call, both))
            leader = making.leader(group, local_leader, "local_leader")
            other = making.leader(remote, remote_leader, "remote_leader")
            with OuterCall(call, repr(stringtag), _FROM_GROUPS):
                context = _context(group, leader, other, tag, call)
        new = cls._between(context, group, remote)
        handle_new(new, errhandler)
        return new

    def Get_remote_group(self) -> Group:
        """Access the remote group associated with the inter-communicator."""
        return group_of_object(self._state("Get_remote_group").remote)

    def Get_remote_size(self) -> int:
        """Intercommunicator remote size."""
        return len(self._state("Get_remote_size").remote)

    @property
    def remote_group(self) -> Group:
        """Remote group."""
        return self.Get_remote_group()

    @property
    def remote_size(self) -> int:
        """Number of remote processes."""
        return self.Get_remote_size()

    def Merge(self, high: bool = False) -> Intracomm:
        """Merge intercommunicator into an intracommunicator."""
        state = self._state("Merge")
        with self._calling("Merge"):
            context = agreed_contexts(self, 2)
            theirs = self.allgather(bool(high))[0]
        first = state.group[0] < state.remote[0] if bool(high) == theirs else not high
        ranks = state.group + state.remote if first else state.remote + state.group
        merged: Intracomm = self._born(CommState(context, ranks), "Intracomm")
        return merged


def _overlap(call: str, both: set[int]) -> str:
    return f"{call}: both groups have rank {min(both)} of the job; they may share none"


def _context(group: tuple[int, ...], leader: int, other: int, tag: int, call: str) -> int:
    """Return the contexts on which the leaders of two groups agree; all ranks of both call it."""
    if engine.rank() != leader:
        came = exchange(None, _FROM_GROUPS + 1, tag, [], [leader])[0]
        if failed(came):
            raise MPIException(constants.ERR_OTHER, f"{call}: it failed at {reason(came)}")
        return int.from_bytes(came, "little")

    def agreed() -> list[bytes]:
        return [_swap(None, _FROM_GROUPS, tag, other, group)[0].to_bytes(8, "little")]

    news = Outgoing(leader, agreed)
    sends = [(each, news.data(0)) for each in group if each != leader]
    exchange(None, _FROM_GROUPS + 1, tag, sends, [])
    news.check()
    return int.from_bytes(news.data(0), "little")


def _swap_by(
    peers: Comm, remote_leader: int, tag: int, group: tuple[int, ...], outer: OuterCall
) -> tuple[int, tuple[int, ...]]:
    """Exchange groups with the other leader, a rank of `peers`; return what `_swap` returns."""
    if not isinstance(peers, Comm):
        raise TypeError(f"Comm.Create_intercomm: peer_comm {peers!r} is not a communicator")
    bridge = peers._state("Create_intercomm")
    leader = small_number(remote_leader, "Create_intercomm", "remote_leader")
    if not 0 <= leader < bridge.peers:
        raise_error(
            peers,
            constants.ERR_RANK,
            f"Comm.Create_intercomm: remote_leader {shown(remote_leader)}; "
            f"{bridge.title()} has ranks 0 to {bridge.peers - 1}",
        )
    outer.cover(bridge.context)
    other = to_job(bridge, leader)
    return _swap(peers, bridge.context + NEWS, tag, other, group)


def _swap(
    peers: Comm | None, context: int, tag: int, other: int, group: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Exchange groups with the other leader; return the contexts agreed on and its group."""
    mine = (reserve_contexts(2), group)
    came = exchange(peers, context, tag, [(other, pickle.dumps(mine))], [other])[0]
    theirs = pickle.loads(came)
    first = mine if engine.rank() < other else theirs
    return first[0], theirs[1]


Comm._kinds["Intercomm"] = direct_calls(Intercomm)
