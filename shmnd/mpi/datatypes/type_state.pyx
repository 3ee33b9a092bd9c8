# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A datatype behind its handles: where its bytes lie, of what kind they are, how it was made.

A derived type is made of pieces: regular rows of blocks of items of other types. From them follow
its runs (`runs.h`), by which messages are packed, and its bounds.
"""

from libc.string cimport memcpy

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

cdef double _LIMIT = 2.0 ** 62
_WHOLE_LIMIT = 1 << 62
cdef long _MOST_STEPS = 1 << 28     # what takes a second, and gigabytes

KINDS = {mpi_kinds[kind].name.decode(): kind for kind in range(1, MPI_KIND_END)}
"""The number of each kind of basic item, by name."""


cdef class TypeState(State):
    """A datatype: where its bytes lie, of what kind they are, and how it was made."""

    def __cinit__(self) -> None:
        self.basic = -1
        self.align = 1
        self.ints = self.addrs = self.counts = self.types = ()
        self.char = self.text = ""
        self.pieces = []

    def __dealloc__(self) -> None:
        mpi_runs_free(&self.runs)
        mpi_runs_free(&self.typed)

    def title(self) -> str:
        """Return its name for a message; of a derived type without one, its bytes."""
        return self.name or f"a derived type of {self.size} bytes"

    def commit(self) -> None:
        """Note that messages will use the type."""
        self.committed = True

    cdef void pack(self, const char *src, Py_ssize_t count, char *dst) noexcept:
        if self.contig:
            memcpy(dst, src, count * self.size)
        else:
            mpi_types_copy(
                &self.runs, self.extent, <char *> src, count, dst, 0, count * self.size, 0)

    cdef void unpack(self, const char *src, Py_ssize_t count, char *dst) noexcept:
        self.unpack_bytes(src, count * self.size, dst)

    cdef void unpack_bytes(self, const char *src, Py_ssize_t nbytes, char *dst) noexcept:
        if self.contig:
            memcpy(dst, src, nbytes)
        elif self.size:
            mpi_types_copy(
                &self.runs, self.extent, dst, nbytes // self.size + 1, <char *> src, 0, nbytes, 1)

    cdef size_t pack_part(
        self, const char *src, Py_ssize_t count, char *dst, size_t start, size_t nbytes
    ) noexcept:
        """Pack the bytes [start, start + nbytes) of `count` items; return how many those were."""
        return mpi_types_copy(
            &self.runs, self.extent, <char *> src, count, dst, start, nbytes, 0)

    cdef mpi_runs *by_kind(self) except NULL:
        """Return runs of which each is of one kind."""
        cdef TypeState item
        cdef Py_ssize_t off, count, length, stride
        if self.typed.n == 0 and self.size:
            for off, count, length, stride, item in self.pieces:
                if mpi_runs_add_blocks(
                    &self.typed, item.by_kind(), item.extent, off, count, length, stride
                ) < 0:
                    mpi_runs_free(&self.typed)
                    raise MemoryError("no memory for the description of a datatype")
        return &self.typed

    cdef TypeState leaf(self):
        """Return the named type that all items are of; None where there are several."""
        cdef TypeState item, found = None, other
        cdef Py_ssize_t count, length
        if self.predefined or self.pair_value:
            return self
        for _, count, length, _, item in self.pieces:
            if count * length == 0 or item.size == 0:
                continue        # no item: the type map does not have this piece
            other = item.leaf()
            if other is None:
                return None
            if found is None:
                found = other
            elif other is not found and (other.basic < 0 or other.basic != found.basic):
                return None
        return found

    def parts(self) -> list[tuple[int, int, int, int, TypeState]]:
        """Return the pieces: (offset, count, length, stride, type)."""
        return list(self.pieces)

    def signature(self) -> list[tuple[int, int]]:
        """Return the kinds of one item with their numbers, in order."""
        cdef mpi_runs *runs = self.by_kind()
        cdef size_t place
        cdef list found = []
        for place in range(runs.n):
            kind = runs.run[place].kind
            number = runs.run[place].bytes * runs.run[place].count // mpi_kinds[kind].size
            if found and found[-1][0] == kind:
                number += found.pop()[1]
            found.append((kind, number))
        return found

    def elements_in(self, nbytes: int) -> int:
        """Return how many basic items so many packed bytes are, or UNDEFINED for none whole."""
        cdef Py_ssize_t left = nbytes
        if left == 0 or self.size == 0:
            return 0 if left == 0 else constants.UNDEFINED
        kinds = self.signature()
        elements = (left // self.size) * sum([number for _, number in kinds])
        left %= self.size
        for kind, number in kinds:
            part = min(number, left // <Py_ssize_t> mpi_kinds[kind].size)
            elements += part
            left -= part * <Py_ssize_t> mpi_kinds[kind].size
            if part < number:
                break
        return elements if left == 0 else constants.UNDEFINED

    def bytes_of_elements(self, count: int) -> int:
        """Return how many packed bytes so many basic items are."""
        kinds = self.signature()
        whole = sum([number for _, number in kinds])
        if whole == 0:
            return 0
        nbytes = count // whole * self.size
        left = count % whole
        for kind, number in kinds:
            part = min(number, left)
            nbytes += part * mpi_kinds[kind].size
            left -= part
        return nbytes

    cdef _check_room(self):
        """Raise an error for pieces that reach further than addresses do, or are too many."""
        cdef TypeState item
        cdef double off, count, length, stride, size = 0, far = 0, steps = 0
        try:
            for off, count, length, stride, item in self.pieces:
                size += count * length * item.size
                far = max(
                    far,
                    abs(off) + count * abs(stride) + length * abs(<double> item.extent)
                    + abs(<double> item.lb),
                )
                if item.runs.n > 1 or stride < 0 or not item.contig:
                    steps += count * length * item.runs.n
        except OverflowError:
            far = 2 * _LIMIT
        if size > _LIMIT or far > _LIMIT:
            self._beyond(f"items of {size:.3g} bytes that reach over {far:.3g} bytes")
        if steps > _MOST_STEPS:
            self._beyond(f"a description of {steps:.3g} separate blocks")

    def _beyond(self, text):
        name = self.decoded[0].lower() if self.decoded else "type"
        contiguous = self.combiner == constants.COMBINER_CONTIGUOUS
        raise MPIException(
            constants.ERR_COUNT if contiguous else constants.ERR_ARG,
            f"Datatype.Create_{name}: {text}; the limits are 2**62 bytes and {_MOST_STEPS} blocks",
        )

    cdef _place(self):
        """Make the runs out of the pieces."""
        cdef TypeState item
        cdef Py_ssize_t off, count, length, stride
        for off, count, length, stride, item in self.pieces:
            if mpi_runs_add_blocks(
                &self.runs, &item.runs, item.extent, off, count, length, stride
            ) < 0:
                raise MemoryError("no memory for the description of a datatype")

    cdef _bound(self):
        """Set the bounds: those of the pieces, and up to where the next item may lie."""
        cdef TypeState item
        lows, highs = [], []
        bounded = any([piece[4].bounded for piece in self.pieces])
        for off, count, length, stride, item in self.pieces:
            self.align = max(self.align, item.align)
            if bounded and not item.bounded:
                continue
            for block in {0, count - 1}:
                for place in {0, length - 1}:
                    low = off + block * stride + place * item.extent + item.lb
                    lows.append(low)
                    highs.append(low + item.extent)
        self.bounded = bounded
        self.lb = min(lows, default=0)
        self.extent = max(highs, default=0) - self.lb
        if not bounded:
            self.extent += -self.extent % self.align

    cdef _finish(self):
        """Derive the rest from runs and bounds."""
        cdef mpi_run *run
        cdef size_t place
        cdef Py_ssize_t low, high, first = 0, last = 0
        for place in range(self.runs.n):
            run = &self.runs.run[place]
            low = run.off + min(0, <Py_ssize_t> (run.count - 1) * run.stride)
            high = run.off + run.bytes + max(0, <Py_ssize_t> (run.count - 1) * run.stride)
            first = low if place == 0 else min(first, low)
            last = high if place == 0 else max(last, high)
        self.true_lb, self.true_extent = first, last - first
        self.size = self.runs.size
        self.contig = self.lb == 0 and self.size == self.extent and (
            self.size == 0
            or (self.runs.n == 1 and self.runs.run[0].count == 1 and self.runs.run[0].off == 0)
        )
        basics = {piece[4].basic for piece in self.pieces}
        self.basic = basics.pop() if len(basics) == 1 else -1


def named(name: str, kind: str, letter: str, text: str) -> TypeState:
    """Return a named type of one basic item."""
    cdef TypeState self = TypeState()
    cdef mpi_run run
    cdef int number = KINDS[kind]
    run.off = run.stride = 0
    run.bytes = mpi_kinds[number].size
    run.count = 1
    run.kind = 0
    if mpi_runs_add(&self.runs, run) < 0:
        raise MemoryError("no memory for the description of a datatype")
    run.kind = number
    if mpi_runs_add(&self.typed, run) < 0:
        raise MemoryError("no memory for the description of a datatype")
    self.extent = run.bytes
    self.align = mpi_kinds[number].align
    self._finish()
    self.basic = number
    self.name = f"MPI_{name}"
    self.char, self.text = letter, text
    self.committed = self.predefined = True
    return self


def pair(
    name: str, value: TypeState, index: TypeState, combiner: int = constants.COMBINER_NAMED
) -> TypeState:
    """Return a named type of a value and an index, as MAXLOC and MINLOC take."""
    cdef TypeState self = derived(combiner, (), [])
    cdef TypeState first = value, second = index
    self.pair_value, self.pair_index = first.basic, second.basic
    self.pair_off = first.size + -first.size % second.align
    self.pieces = [(0, 1, 1, 0, first), (self.pair_off, 1, 1, 0, second)]
    self._place()
    self._bound()
    self._finish()
    self.basic = -1
    self.name = f"MPI_{name}" if name else ""
    self.committed = self.predefined = True
    return self


def derived(combiner: int, decoded: object, pieces: list) -> TypeState:
    """Return a type made of pieces: (offset, count, length, stride, type) in bytes.

    `decoded` is how to make it again: the name of the combiner, and its parameters.
    """
    cdef TypeState self = TypeState()
    self.combiner = combiner
    self.decoded = decoded
    self.pieces = [piece for piece in pieces if piece[1] > 0 and piece[2] > 0]
    self._check_room()
    self._place()
    self._bound()
    self._finish()
    return self


def bound(state: TypeState, lb: int, extent: int) -> TypeState:
    """Set the bounds of a new type by hand, and return it."""
    cdef TypeState self = state
    if not (-_WHOLE_LIMIT <= lb <= _WHOLE_LIMIT and -_WHOLE_LIMIT <= extent <= _WHOLE_LIMIT):
        self._beyond(f"a lower bound of {lb} and an extent of {extent} bytes")
    self.lb, self.extent, self.bounded = lb, extent, True
    self._finish()
    return self


def describe(
    state: TypeState, ints: tuple, addrs: tuple, counts: tuple, types: tuple
) -> TypeState:
    """Note the contents with which a type was made, and return it."""
    cdef TypeState self = state
    self.ints, self.addrs, self.counts, self.types = ints, addrs, counts, types
    return self


def duplicate(state: TypeState, combiner: int, decoded: object) -> TypeState:
    """Return another type that describes the same bytes."""
    cdef TypeState old = state
    cdef TypeState self = derived(combiner, decoded, [(0, 1, 1, 0, old)])
    self.lb, self.extent, self.bounded, self.align = old.lb, old.extent, old.bounded, old.align
    self._finish()
    self.pair_value, self.pair_index = old.pair_value, old.pair_index
    self.pair_off = old.pair_off
    if old.pieces:
        self.pieces = old.pieces
    self.char, self.text = old.char, old.text
    self.committed = old.committed
    return self


def clone(state: TypeState) -> TypeState:
    """Return a type as `contents` has it: the same in all but its handle and attributes."""
    cdef TypeState old = state
    cdef TypeState self = duplicate(old, old.combiner, old.decoded)
    self.ints, self.addrs, self.counts, self.types = old.ints, old.addrs, old.counts, old.types
    return self
