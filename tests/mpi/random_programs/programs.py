# SPDX-License-Identifier: Apache-2.0
"""Random programs, the same on all ranks, which compare what they get with a model in Python.

Started as ranks: `programs.py FIRST COUNT STEPS` runs one program for each of COUNT seeds.
Every rank draws from the same random numbers, so each knows the acts of all ranks. The data of a
rank are a function of the step, the rank and the place: the model needs no messages.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from mpi4py import MPI

WORLD: Final = MPI.COMM_WORLD
TAGS: Final = 4
SIZES: Final = (0, 1, 3, 8, 60, 700, 12000)
"""Items of a message: for lines, for one record, for several, for a copy by the receiver."""


class Kind(NamedTuple):
    """A datatype of 32-bit integers: where those of one item lie, and how far the next one is."""

    places: tuple[int, ...]
    extent: int
    type: MPI.Datatype

    def room(self, items: int) -> np.ndarray:
        """Return memory for so many items, all of it -1."""
        return np.full(max(1, items * self.extent), -1, "i4")

    def index(self, items: int) -> np.ndarray:
        """Return where the integers of so many items lie."""
        firsts = np.arange(items)[:, None] * self.extent
        found: np.ndarray = (firsts + np.array(self.places)[None, :]).ravel()
        return found

    def filled(self, values: np.ndarray) -> np.ndarray:
        """Return memory in which these integers are those of items."""
        items = len(values) // len(self.places)
        made = self.room(items)
        made[self.index(items)] = values
        return made


def _kinds() -> list[Kind]:
    one = MPI.INT32_T
    vector = one.Create_vector(2, 2, 3).Create_resized(0, 24)
    indexed = one.Create_indexed([1, 2, 1], [4, 0, 6]).Create_resized(0, 32)
    part = one.Create_subarray([3, 4], [2, 2], [1, 1])
    record = MPI.Datatype.Create_struct([2, 1], [0, 12], [one, one.Create_contiguous(2)])
    return [
        Kind((0,), 1, one),
        Kind((0, 1, 2, 3), 4, one.Create_contiguous(4).Commit()),
        Kind((0, 1, 3, 4), 6, vector.Commit()),
        Kind((4, 0, 1, 6), 8, indexed.Commit()),
        Kind((5, 6, 9, 10), 12, part.Commit()),
        Kind((0, 1, 3, 4), 5, record.Commit()),
    ]


KINDS: Final = _kinds()


class Group(NamedTuple):
    """A communicator, and the ranks of the job in it."""

    comm: Any
    """None where this rank is not in it."""
    ranks: list[int]


class Program:
    """One random program."""

    def __init__(self, seed: int) -> None:
        """Draw from the numbers of a seed."""
        self.draw = random.Random(seed)
        self.own = random.Random(seed * 1000 + WORLD.rank)  # no other rank has to know them
        self.step = 0
        self.groups = [Group(WORLD, list(range(WORLD.size)))]

    def values(self, place: int, length: int) -> np.ndarray:
        """Return what a rank gives in this step."""
        return (np.arange(length, dtype="i4") * 7 + self.step * 31 + place * 1009) % 9973

    def run(self, steps: int) -> None:
        """Run it."""
        for self.step in range(steps):
            group = self.draw.choice(self.groups)
            act = self.draw.choice([self.make, self.send, self.send, *[self.collect] * 4])
            act(group)
        for group in self.groups[1:]:
            if group.comm is not None:
                group.comm.Free()

    # -- communicators --

    def make(self, group: Group) -> None:
        """Make another communicator of one."""
        comm, ranks = group
        size = len(ranks)
        how = self.draw.choice(["Dup", "Idup", "Split", "Create", "Create_group"])
        colors = [self.draw.randrange(2) for _ in ranks]
        keys = [self.draw.randrange(3) for _ in ranks]
        chosen = self.draw.sample(range(size), self.draw.randint(1, size))
        if how in ("Dup", "Idup"):
            made = [ranks]
        elif how == "Split":
            order = sorted(range(size), key=lambda each: (keys[each], each))
            made = [[ranks[i] for i in order if colors[i] == color] for color in (0, 1)]
        else:
            made = [[ranks[i] for i in chosen]]
        new = None
        if how in ("Dup", "Split", "Create") and comm is not None:
            arguments: dict[str, Any] = {"Dup": (), "Split": (colors[comm.rank], keys[comm.rank])}
            new = getattr(comm, how)(*arguments.get(how, (comm.group.Incl(chosen),)))
        elif how == "Idup" and comm is not None:
            new, request = comm.Idup()
            request.Wait()
        elif comm is not None and comm.rank in chosen:
            new = comm.Create_group(comm.group.Incl(chosen))
        for each in made:
            inside = WORLD.rank in each
            if inside:
                assert (new.rank, new.size) == (each.index(WORLD.rank), len(each)), how
            if each:
                self.groups.append(Group(new if inside else None, each))
        while len(self.groups) > 6:
            old = self.groups.pop(self.draw.randrange(1, len(self.groups)))
            if old.comm is not None:
                old.comm.Free()

    # -- messages --

    def send(self, group: Group) -> None:
        """Send messages between random ranks, receive them in any order, some of them of any."""
        comm, ranks = group
        size, draw = len(ranks), self.draw
        sends: list[tuple[int, int, int, int, int]] = []  # source, destination, tag, kind, items
        for _ in range(draw.randint(1, 3 * size)):
            ends = draw.randrange(size), draw.randrange(size)
            sends.append((*ends, draw.randrange(TAGS), draw.randrange(6), draw.choice(SIZES) // 4))
        wild = draw.random() < 0.5
        if comm is None:
            return
        requests = [
            self._send(comm, each, i) for i, each in enumerate(sends) if each[0] == comm.rank
        ]
        mine = [(each, i) for i, each in enumerate(sends) if each[1] == comm.rank]
        if wild:
            self._receive_any(comm, mine)
        else:
            self._receive(comm, mine)
        MPI.Request.Waitall(requests)
        if wild:
            comm.Barrier()  # the next step's messages are for its receives

    def _data(self, each: tuple[int, int, int, int, int], i: int) -> np.ndarray:
        return self.values(each[0] * 50 + i, len(KINDS[each[3]].places) * each[4])

    def _send(self, comm: Any, each: tuple[int, int, int, int, int], i: int) -> Any:
        _, to, tag, kind, items = each
        memory = KINDS[kind].filled(self._data(each, i))
        start = self.own.choice([comm.Isend, comm.Isend, comm.Issend])
        return start([memory, items, KINDS[kind].type], to, tag)

    def _posted(
        self, comm: Any, each: tuple[int, int, int, int, int], source: int, tag: int
    ) -> tuple[Any, Callable[[np.ndarray], None]]:
        """Start a receive with another type of the same integers; return its check, too."""
        count = len(KINDS[each[3]].places) * each[4]
        kinds = [kind for kind in KINDS if count % len(kind.places) == 0]
        kind = self.own.choice(kinds)
        items = count // len(kind.places)
        memory = kind.room(items)
        request = comm.Irecv([memory, items, kind.type], source, tag)
        return request, lambda values: _equal(memory, kind.filled(values))

    def _receive(self, comm: Any, mine: list[Any]) -> None:
        """Receive from ranks that are named; of one rank by tags, or by their order."""
        posted = []
        by_order = {each[0] for each, _ in mine if self.own.random() < 0.3}
        for each, i in mine:
            tag = MPI.ANY_TAG if each[0] in by_order else each[2]
            posted.append((*self._posted(comm, each, each[0], tag), each, i))
        while posted:
            statuses = [MPI.Status() for _ in posted]
            done = MPI.Request.Waitsome([each[0] for each in posted], statuses)
            for at, status in zip(done, statuses, strict=False):
                _, check, each, i = posted[at]
                assert (status.source, status.tag) == (each[0], each[2]), self.step
                check(self._data(each, i))
            posted = [each for at, each in enumerate(posted) if at not in done]

    def _receive_any(self, comm: Any, mine: list[Any]) -> None:
        """Receive from any rank: messages of one rank in their order."""
        left = {source: [m for m in mine if m[0][0] == source] for source in range(comm.size)}
        for _ in mine:
            status = MPI.Status()
            message = None
            if self.own.random() < 0.5:
                message = comm.Mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            else:
                comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            each, i = left[status.source].pop(0)
            values = self._data(each, i)
            assert (status.tag, status.Get_count(MPI.INT32_T)) == (each[2], len(values)), self.step
            memory = np.full(len(values) + 1, -1, "i4")
            if message is not None:
                message.Recv([memory, len(values), MPI.INT32_T])
            else:
                comm.Recv([memory, len(values), MPI.INT32_T], status.source, status.tag)
            _equal(memory, np.append(values, -1).astype("i4"))

    # -- collectives --

    def collect(self, group: Group) -> None:
        """Call a collective, in one of its forms."""
        comm, ranks = group
        draw = self.draw
        name = draw.choice([*BUFFERS, *OBJECTS])
        form = draw.choice(["", "I", "_init"])
        facts = Facts(
            self, len(ranks), draw.randrange(len(ranks)), draw.choice(KINDS), draw.choice(SIZES)
        )
        in_place = draw.random() < 0.3
        if comm is None:
            return
        if name in OBJECTS:
            OBJECTS[name](comm, facts)
            return
        arguments, memory, expected = BUFFERS[name](comm.rank, facts, in_place)
        if form == "_init":
            request = getattr(comm, name + form)(*arguments)
            request.Start()
            request.Wait()
            request.Free()
        elif form:
            getattr(comm, "I" + name.lower())(*arguments).Wait()
        else:
            getattr(comm, name)(*arguments)
        if memory is not None:
            _equal(memory, expected)


class Facts(NamedTuple):
    """What all ranks know of a collective."""

    program: Program
    size: int
    root: int
    kind: Kind
    length: int

    @property
    def items(self) -> int:
        """Items of its type."""
        return self.length // len(self.kind.places)

    @property
    def counts(self) -> list[int]:
        """Numbers of integers, one for each rank."""
        return [(self.length + each * 3) % 41 for each in range(self.size)]

    def given(self, rank: int, blocks: int = 1) -> np.ndarray:
        """Return what a rank gives: integers of whole items."""
        return self.program.values(rank, self.items * len(self.kind.places) * blocks)

    def plain(self, rank: int, length: int | None = None) -> np.ndarray:
        """Return what a rank gives where types have no gaps."""
        return self.program.values(rank, self.length if length is None else length)

    def block(self, rank: int, to: int) -> np.ndarray:
        """Return what a rank gives to another one."""
        whole = self.items * len(self.kind.places)
        return self.given(rank, self.size)[to * whole : (to + 1) * whole]


def _equal(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.array_equal(found, expected), (found[:40], expected[:40])


Parts = tuple[tuple[Any, ...], np.ndarray | None, Any]
"""The arguments of a call, the memory that it fills, and with what."""


def _spec(facts: Facts, memory: np.ndarray) -> list[Any]:
    return [memory, facts.items, facts.kind.type]  # for each rank, where there are blocks


def _barrier(rank: int, facts: Facts, in_place: bool) -> Parts:
    return (), None, None


def _bcast(rank: int, facts: Facts, in_place: bool) -> Parts:
    expected = facts.kind.filled(facts.given(facts.root))
    memory = expected.copy() if rank == facts.root else facts.kind.room(facts.items)
    return (_spec(facts, memory), facts.root), memory, expected


def _gather(rank: int, facts: Facts, in_place: bool) -> Parts:
    mine = facts.kind.filled(facts.given(rank))
    if rank != facts.root:
        return (_spec(facts, mine), None, facts.root), None, None
    values = np.concatenate([facts.given(each) for each in range(facts.size)])
    memory = facts.kind.room(facts.items * facts.size)
    given: Any = _spec(facts, mine)
    if in_place:
        mine = mine[: facts.items * facts.kind.extent]
        memory[rank * len(mine) : (rank + 1) * len(mine)] = mine
        given = MPI.IN_PLACE
    arguments = given, _spec(facts, memory), facts.root
    return arguments, memory, facts.kind.filled(values)


def _scatter(rank: int, facts: Facts, in_place: bool) -> Parts:
    expected = facts.kind.filled(facts.block(facts.root, rank))
    memory = facts.kind.room(facts.items)
    given = None
    if rank == facts.root:
        given = _spec(facts, facts.kind.filled(facts.given(rank, facts.size)))
    return (given, _spec(facts, memory), facts.root), memory, expected


def _allgather(rank: int, facts: Facts, in_place: bool) -> Parts:
    values = np.concatenate([facts.given(each) for each in range(facts.size)])
    memory = facts.kind.room(facts.items * facts.size)
    mine = facts.kind.filled(facts.given(rank))
    return (_spec(facts, mine), _spec(facts, memory)), memory, facts.kind.filled(values)


def _alltoall(rank: int, facts: Facts, in_place: bool) -> Parts:
    values = np.concatenate([facts.block(each, rank) for each in range(facts.size)])
    mine = facts.kind.filled(facts.given(rank, facts.size))
    memory = mine.copy() if in_place else facts.kind.room(facts.items * facts.size)
    given = MPI.IN_PLACE if in_place else _spec(facts, mine)
    expected = facts.kind.filled(values)
    return (given, _spec(facts, memory)), memory, expected


def _allgatherv(rank: int, facts: Facts, in_place: bool) -> Parts:
    counts = facts.counts
    values = [facts.plain(each, n) for each, n in enumerate(counts)]
    memory = np.full(sum(counts) + 1, -1, "i4")
    return (values[rank], [memory, counts]), memory, np.append(np.concatenate(values), -1)


def _gatherv(rank: int, facts: Facts, in_place: bool) -> Parts:
    (mine, target), memory, expected = _allgatherv(rank, facts, in_place)
    if rank != facts.root:
        return (mine, None, facts.root), None, None
    return (mine, target, facts.root), memory, expected


def _scatterv(rank: int, facts: Facts, in_place: bool) -> Parts:
    counts = facts.counts
    every = facts.plain(facts.root, sum(counts))
    first = sum(counts[:rank])
    memory = np.full(counts[rank], -1, "i4")
    given = [every, counts] if rank == facts.root else None
    return (given, memory, facts.root), memory, every[first : first + counts[rank]]


def _pairs(facts: Facts, rank: int, to: int) -> np.ndarray:
    return facts.plain(rank * 10 + to, (facts.length + rank + 2 * to) % 19)


def _alltoallv(rank: int, facts: Facts, in_place: bool) -> Parts:
    ranks = range(facts.size)
    out = [_pairs(facts, rank, each) for each in ranks]
    into = [_pairs(facts, each, rank) for each in ranks]
    memory = np.full(sum(map(len, into)), -1, "i4")
    arguments = [np.concatenate(out), [*map(len, out)]], [memory, [*map(len, into)]]
    return arguments, memory, np.concatenate(into)


def _alltoallw(rank: int, facts: Facts, in_place: bool) -> Parts:
    (given, sent), (memory, got) = _alltoallv(rank, facts, in_place)[0]

    def spec(data: np.ndarray, counts: list[int]) -> list[Any]:
        places = [4 * sum(counts[:each]) for each in range(facts.size)]
        return [data, counts, places, [MPI.INT32_T] * facts.size]

    expected = np.concatenate([_pairs(facts, each, rank) for each in range(facts.size)])
    return (spec(given, sent), spec(memory, got)), memory, expected


def _sum(facts: Facts, ranks: range, length: int | None = None) -> np.ndarray:
    found = facts.plain(0, length) * 0
    for each in ranks:
        found = found + facts.plain(each, length)
    return found.astype("i4")


def _allreduce(rank: int, facts: Facts, in_place: bool) -> Parts:
    memory = facts.plain(rank).copy() if in_place else np.full(facts.length, -1, "i4")
    given = MPI.IN_PLACE if in_place else facts.plain(rank)
    return (given, memory, MPI.SUM), memory, _sum(facts, range(facts.size))


def _reduce(rank: int, facts: Facts, in_place: bool) -> Parts:
    if rank != facts.root:
        return (facts.plain(rank), None, MPI.SUM, facts.root), None, None
    arguments, memory, expected = _allreduce(rank, facts, in_place)
    return (*arguments, facts.root), memory, expected


def _scan(rank: int, facts: Facts, in_place: bool) -> Parts:
    arguments, memory, _ = _allreduce(rank, facts, in_place)
    return arguments, memory, _sum(facts, range(rank + 1))


def _exscan(rank: int, facts: Facts, in_place: bool) -> Parts:
    arguments, memory, _ = _allreduce(rank, facts, in_place)
    return arguments, memory if rank else None, _sum(facts, range(rank))


def _reduce_scatter_block(rank: int, facts: Facts, in_place: bool) -> Parts:
    n = facts.length
    memory = np.full(n, -1, "i4")
    every = _sum(facts, range(facts.size), n * facts.size)
    given = facts.plain(rank, n * facts.size)
    return (given, memory, MPI.SUM), memory, every[rank * n : (rank + 1) * n]


def _reduce_scatter(rank: int, facts: Facts, in_place: bool) -> Parts:
    counts = facts.counts
    first = sum(counts[:rank])
    memory = np.full(counts[rank], -1, "i4")
    every = _sum(facts, range(facts.size), sum(counts))
    given = facts.plain(rank, sum(counts))
    return (given, memory, counts, MPI.SUM), memory, every[first : first + counts[rank]]


BUFFERS: Final[dict[str, Callable[[int, Facts, bool], Parts]]] = {
    "Barrier": _barrier,
    "Bcast": _bcast,
    "Gather": _gather,
    "Gatherv": _gatherv,
    "Scatter": _scatter,
    "Scatterv": _scatterv,
    "Allgather": _allgather,
    "Allgatherv": _allgatherv,
    "Alltoall": _alltoall,
    "Alltoallv": _alltoallv,
    "Alltoallw": _alltoallw,
    "Reduce": _reduce,
    "Allreduce": _allreduce,
    "Scan": _scan,
    "Exscan": _exscan,
    "Reduce_scatter": _reduce_scatter,
    "Reduce_scatter_block": _reduce_scatter_block,
}


def _thing(facts: Facts, *places: int) -> Any:
    return {"step": facts.program.step, "at": places, "text": "x" * (facts.length % 5000)}


def _object_bcast(comm: Any, facts: Facts) -> None:
    mine = _thing(facts, comm.rank)
    assert comm.bcast(mine, facts.root) == _thing(facts, facts.root)


def _object_gather(comm: Any, facts: Facts) -> None:
    found = comm.gather(_thing(facts, comm.rank), facts.root)
    every = [_thing(facts, each) for each in range(facts.size)]
    assert found == (every if comm.rank == facts.root else None)
    assert comm.allgather(_thing(facts, comm.rank)) == every


def _object_scatter(comm: Any, facts: Facts) -> None:
    every = [_thing(facts, each) for each in range(facts.size)]
    given = every if comm.rank == facts.root else None
    assert comm.scatter(given, facts.root) == every[comm.rank]


def _object_alltoall(comm: Any, facts: Facts) -> None:
    ranks = range(facts.size)
    found = comm.alltoall([_thing(facts, comm.rank, each) for each in ranks])
    assert found == [_thing(facts, each, comm.rank) for each in ranks]


def _object_reductions(comm: Any, facts: Facts) -> None:
    texts = [f"<{each}>" for each in range(facts.size)]  # text keeps the order of ranks
    mine = texts[comm.rank]
    assert comm.allreduce(mine) == "".join(texts)
    at_root = "".join(texts) if comm.rank == facts.root else None
    assert comm.reduce(mine, root=facts.root) == at_root
    assert comm.scan(mine) == "".join(texts[: comm.rank + 1])
    assert comm.exscan(mine) == ("".join(texts[: comm.rank]) if comm.rank else None)


OBJECTS: Final[dict[str, Callable[[Any, Facts], None]]] = {
    "bcast": _object_bcast,
    "gather": _object_gather,
    "scatter": _object_scatter,
    "alltoall": _object_alltoall,
    "reductions": _object_reductions,
}


if __name__ == "__main__":
    first, count, steps = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        program = Program(seed)
        try:
            program.run(steps)
        except BaseException:
            print(f"seed {seed}, step {program.step}, rank {WORLD.rank}", flush=True)
            raise
    WORLD.Barrier()
    if WORLD.rank == 0:
        print("well")
