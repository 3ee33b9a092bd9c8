# SPDX-License-Identifier: Apache-2.0
"""Groups: ordered sets of ranks of the job."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.communicators.integers import integers
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import Handle, State, constant
from shmnd.mpi.transport import hooks


class GroupState(State):
    """The ranks of a group, as numbered in the job, in the order of the group."""

    def __init__(self, ranks: Iterable[int], of_object: bool = False) -> None:
        """Keep the ranks, where each is, and whether an object was asked for its group."""
        super().__init__()
        self.ranks = tuple(ranks)
        self.of_object = of_object
        self.places = {rank: place for place, rank in enumerate(self.ranks)}


class Group(Handle):
    """Group of processes."""

    _family = "Group"

    def __new__(cls, group: "Group | None" = None) -> Self:
        """Return another handle to the same ranks."""
        return super().__new__(cls, group)

    def __eq__(self, other: object, /) -> bool:
        """Return whether both are handles to one group.

        The groups that a program gets from communicators, windows and files are equal if they have
        the same ranks in the same order, of one object or of two. Each handle has a number of its
        own, and is freed alone.
        """
        if isinstance(other, Group) and self.ob is not None and other.ob is not None:
            mine, theirs = self.ob, other.ob
            if mine.of_object and theirs.of_object:
                return bool(mine.ranks == theirs.ranks)
        return super().__eq__(other)

    @classmethod
    def _of(cls, ranks: Iterable[int], of_object: bool = False) -> Self:
        self = cls()
        state = GroupState(ranks, of_object)
        self.ob = state if state.ranks else GROUP_EMPTY.ob
        return self

    def _state(self, call: str) -> GroupState:
        self._require(constants.ERR_GROUP, call)
        state: GroupState = self.ob
        return state

    def __reduce__(self) -> str | tuple[Any, ...]:
        return super().__reduce__()

    def Get_size(self) -> int:
        """Return the number of processes in a group."""
        return len(self._state("Get_size").ranks)

    def Get_rank(self) -> int:
        """Return the rank of this process in a group."""
        return self._state("Get_rank").places.get(hooks.rank(), constants.UNDEFINED)

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.Get_size()

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.Get_rank()

    def Translate_ranks(
        self, ranks: Sequence[int] | None = None, group: "Group | None" = None
    ) -> list[int]:
        """Translate ranks in a group to those in another group."""
        mine = self._state("Translate_ranks")
        if ranks is None:
            ranks = range(len(mine.ranks))
        ranks = integers(ranks, "Group", "Translate_ranks", "ranks")
        if group is None:
            return [self._checked(rank, "Translate_ranks") for rank in ranks]
        theirs = _state_of(group, "Translate_ranks")
        return [
            rank
            if rank == constants.PROC_NULL
            else theirs.places.get(mine.ranks[self._checked(rank, "Translate_ranks")], _NOWHERE)
            for rank in ranks
        ]

    def _checked(self, rank: int, call: str) -> int:
        size = len(self._state(call).ranks)
        if rank == constants.PROC_NULL and call == "Translate_ranks":
            return rank
        if not 0 <= rank < size:
            raise MPIException(
                constants.ERR_RANK, f"Group.{call}: rank {shown(rank)} in a group of {size}"
            )
        return rank

    def Compare(self, group: "Group") -> int:
        """Compare two groups."""
        mine, theirs = self._state("Compare"), _state_of(group, "Compare")
        if mine.ranks == theirs.ranks:
            return constants.IDENT
        same = mine.places.keys() == theirs.places.keys()
        return constants.SIMILAR if same else constants.UNEQUAL

    def Dup(self) -> Self:
        """Duplicate a group."""
        return self._of(self._state("Dup").ranks)

    @classmethod
    def Union(cls, group1: "Group", group2: "Group") -> Self:
        """Produce a group by combining two existing groups.

        Its ranks are those of the first, then those of the second that are not in the first.
        """
        first, second = _state_of(group1, "Union"), _state_of(group2, "Union")
        return cls._of(dict.fromkeys(first.ranks + second.ranks))

    @classmethod
    def Intersection(cls, group1: "Group", group2: "Group") -> Self:
        """Produce a group as the intersection of two existing groups.

        Its ranks are ordered as in the first.
        """
        first, second = _state_of(group1, "Intersection"), _state_of(group2, "Intersection")
        return cls._of(rank for rank in first.ranks if rank in second.places)

    @classmethod
    def Intersect(cls, group1: "Group", group2: "Group") -> Self:
        """Produce a group as the intersection of two existing groups.

        This is `Intersection` under its older name.
        """
        return cls.Intersection(group1, group2)

    @classmethod
    def Difference(cls, group1: "Group", group2: "Group") -> Self:
        """Produce a group from the difference of two existing groups.

        Its ranks are those of the first that are not in the second.
        """
        first, second = _state_of(group1, "Difference"), _state_of(group2, "Difference")
        return cls._of(rank for rank in first.ranks if rank not in second.places)

    def Incl(self, ranks: Sequence[int]) -> Self:
        """Produce a group by including ranks."""
        state = self._state("Incl")
        return self._of(state.ranks[place] for place in self._distinct(ranks, "Incl"))

    def Excl(self, ranks: Sequence[int]) -> Self:
        """Produce a group by excluding ranks."""
        state = self._state("Excl")
        out = set(self._distinct(ranks, "Excl"))
        return self._of(rank for place, rank in enumerate(state.ranks) if place not in out)

    def _distinct(self, ranks: Iterable[int], call: str) -> list[int]:
        given = integers(ranks, "Group", call, "ranks")
        places = [self._checked(rank, call) for rank in given]
        if len(set(places)) != len(places):
            raise MPIException(constants.ERR_RANK, f"Group.{call}: {places} has a rank twice")
        return places

    def _ranges(self, ranks: Sequence[tuple[int, int, int]], call: str) -> list[int]:
        """Return the ranks of triples (first, last, stride); the last is included."""
        places: list[int] = []
        for each in ranks:
            given = integers(each, "Group", call, "the range")
            if len(given) != 3:
                raise ValueError(f"Group.{call}: the range {given} is not (first, last, stride)")
            first, last, stride = given
            if stride == 0:
                raise MPIException(constants.ERR_ARG, f"Group.{call}: a stride of 0")
            found = range(first, last + (1 if stride > 0 else -1), stride)
            for end in (*found[:1], *found[-1:]):  # before there is a list of all
                self._checked(end, call)
            places.extend(found)
        return self._distinct(places, call)

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Create a new group from ranges of ranks in an existing group."""
        return self.Incl(self._ranges(ranks, "Range_incl"))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Create a new group by excluding ranges of ranks from an existing group."""
        return self.Excl(self._ranges(ranks, "Range_excl"))

    @classmethod
    def Create_from_session_pset(cls, session: Any, pset_name: str) -> Self:
        """Create a new group from session and process set.

        This is `Session.Create_group`.
        """
        return cls(session.Create_group(pset_name))

    def Free(self) -> None:
        """Free a group."""
        self._require(constants.ERR_GROUP, "Free")
        if self is GROUP_EMPTY:
            self._require_own(constants.ERR_GROUP, "Free")
        self._release()


def group_from(ranks: Iterable[int]) -> Group:
    """Return a group of ranks of the job, in this order."""
    return Group._of(ranks)


def group_of_object(ranks: Iterable[int]) -> Group:
    """Return a handle to the group of a communicator or window: ranks of the job."""
    return Group._of(ranks, of_object=True)


def require_group(given: Any, call: str) -> Group:
    """Return the argument of a call, which has to be a group."""
    if not isinstance(given, Group):
        raise TypeError(f"{call}: group {given!r} is not a group of MPI")
    return given


def _state_of(given: Any, call: str) -> GroupState:
    return require_group(given, f"Group.{call}")._state(call)


_NOWHERE: Final = constants.UNDEFINED
GROUP_NULL: Final = constant(Group(), "GROUP_NULL")
GROUP_EMPTY: Final = Group()
GROUP_EMPTY.ob = GroupState(())
constant(GROUP_EMPTY, "GROUP_EMPTY")
