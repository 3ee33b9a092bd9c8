# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Datatypes: the handle, its constructors, and what one may ask of it."""

from collections.abc import Sequence
from typing import Any, Self

from shmnd.mpi import constants
from shmnd.mpi.datatypes import constructors, packing, predefined, type_codes, type_state
from shmnd.mpi.constants import ORDER_C
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import constant

cdef dict _states = {}          # name -> state of a named type
cdef dict _pairs = {}           # (kind of the value, of the index) -> state
cdef dict _wrappers = {}        # label -> constant


cdef Datatype wrap(TypeState state):
    """Return a handle to a type: the constant, if it is one."""
    cdef Datatype self
    if state.label is not None:
        return _wrappers[state.label]
    self = Datatype.__new__(Datatype)
    self.ob = state
    return self


def wrapped(state: TypeState) -> Datatype:
    """Return a handle to a type: the constant, if it is one."""
    return wrap(state)


cdef Datatype _copy(TypeState state):
    """Return a type of the contents of another: a constant, or a handle that may be freed."""
    return wrap(state if state.predefined else type_state.clone(state))


cdef Datatype _new(object cls, object state):
    cdef Datatype self = cls()
    self.ob = <TypeState?> state
    return self


cdef class Datatype(Keyed):
    """Datatype object."""

    _family = "Datatype"
    _null_error = constants.ERR_TYPE

    cdef TypeState _state(self, str call):
        if self.ob is None:
            self._require(constants.ERR_TYPE, call)
        return <TypeState> self.ob

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.ob is None or self.ob.label is not None:
            return super().__reduce__()
        base, combiner, params = self.decode()
        return (_datatype_create, (base, combiner, params, False, type(self)))

    def Get_size(self) -> int:
        """Return the number of bytes occupied by entries in the datatype."""
        return self._state("Get_size").size

    @property
    def size(self) -> int:
        """Size (in bytes)."""
        return self._state("size").size

    def Get_extent(self) -> tuple[int, int]:
        """Return lower bound and extent of datatype."""
        cdef TypeState state = self._state("Get_extent")
        return (state.lb, state.extent)

    @property
    def extent(self) -> int:
        """Extent."""
        return self._state("extent").extent

    @property
    def lb(self) -> int:
        """Lower bound."""
        return self._state("lb").lb

    @property
    def ub(self) -> int:
        """Upper bound."""
        cdef TypeState state = self._state("ub")
        return state.lb + state.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Return the true lower bound and extent of datatype."""
        cdef TypeState state = self._state("Get_true_extent")
        return (state.true_lb, state.true_extent)

    @property
    def true_extent(self) -> int:
        """True extent."""
        return self._state("true_extent").true_extent

    @property
    def true_lb(self) -> int:
        """True lower bound."""
        return self._state("true_lb").true_lb

    @property
    def true_ub(self) -> int:
        """True upper bound."""
        cdef TypeState state = self._state("true_ub")
        return state.true_lb + state.true_extent

    # Constructors

    def Dup(self) -> Self:
        """Duplicate a datatype."""
        cdef Datatype new = _new(type(self), constructors.dup(self._state("Dup")))
        self._copy_attrs_to(new.ob)
        return new

    Create_dup = Dup

    def Create_contiguous(self, count: int) -> Self:
        """Create a contiguous datatype."""
        return _new(type(self), constructors.contiguous(self._state("Create_contiguous"), count))

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Self:
        """Create a vector (strided) datatype."""
        old = self._state("Create_vector")
        return _new(type(self), constructors.vector(old, count, blocklength, stride))

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Self:
        """Create a vector (strided) datatype with stride in bytes."""
        old = self._state("Create_hvector")
        return _new(type(self), constructors.hvector(old, count, blocklength, stride))

    def Create_indexed(
        self, blocklengths: Sequence[int], displacements: Sequence[int]
    ) -> Self:
        """Create an indexed datatype."""
        old = self._state("Create_indexed")
        return _new(type(self), constructors.indexed(old, blocklengths, displacements))

    def Create_hindexed(
        self, blocklengths: Sequence[int], displacements: Sequence[int]
    ) -> Self:
        """Create an indexed datatype with displacements in bytes."""
        old = self._state("Create_hindexed")
        return _new(type(self), constructors.hindexed(old, blocklengths, displacements))

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Create an indexed datatype with constant-sized blocks."""
        old = self._state("Create_indexed_block")
        return _new(type(self), constructors.indexed_block(old, blocklength, displacements))

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Create an indexed datatype with constant-sized blocks and displacements in bytes."""
        old = self._state("Create_hindexed_block")
        return _new(type(self), constructors.hindexed_block(old, blocklength, displacements))

    @classmethod
    def Create_struct(
        cls,
        blocklengths: Sequence[int],
        displacements: Sequence[int],
        datatypes: Sequence[Datatype],
    ) -> Self:
        """Create a general composite (struct) datatype."""
        states = tuple([(<Datatype?> old)._state("Create_struct") for old in datatypes])
        return _new(cls, constructors.struct(blocklengths, displacements, states))

    def Create_subarray(
        self,
        sizes: Sequence[int],
        subsizes: Sequence[int],
        starts: Sequence[int],
        order: int = ORDER_C,
    ) -> Self:
        """Create a datatype for a subarray of a multidimensional array."""
        old = self._state("Create_subarray")
        return _new(type(self), constructors.subarray(old, sizes, subsizes, starts, order))

    def Create_darray(
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = ORDER_C,
    ) -> Self:
        """Create a datatype for a distributed array on Cartesian process grids."""
        old = self._state("Create_darray")
        return _new(
            type(self),
            constructors.darray(old, size, rank, gsizes, distribs, dargs, psizes, order),
        )

    def Create_resized(self, lb: int, extent: int) -> Self:
        """Create a datatype with a new lower bound and extent."""
        return _new(type(self), constructors.resized(self._state("Create_resized"), lb, extent))

    Resized = Create_resized

    @classmethod
    def Get_value_index(cls, value: Datatype, index: Datatype) -> Self:
        """Return a predefined pair datatype."""
        cdef TypeState first = (<Datatype?> value)._state("Get_value_index")
        cdef TypeState second = (<Datatype?> index)._state("Get_value_index")
        if not constructors.are_value_and_index(first, second):
            return cls()
        known = _pairs.get((first.label, second.label))
        if known is not None:
            return _new(cls, known)
        return _new(cls, constructors.value_index(first, second))

    @classmethod
    def Create_f90_integer(cls, r: int) -> Self:
        """Return a bounded integer datatype."""
        return _new(cls, constructors.f90("INTEGER", constants.UNDEFINED, r, _states))

    @classmethod
    def Create_f90_real(cls, p: int, r: int) -> Self:
        """Return a bounded real datatype."""
        return _new(cls, constructors.f90("REAL", p, r, _states))

    @classmethod
    def Create_f90_complex(cls, p: int, r: int) -> Self:
        """Return a bounded complex datatype."""
        return _new(cls, constructors.f90("COMPLEX", p, r, _states))

    @classmethod
    def Match_size(cls, typeclass: int, size: int) -> Self:
        """Find a datatype matching a specified size in bytes."""
        name = predefined.MATCHES.get(typeclass, {}).get(size)
        if name is None:
            raise MPIException(
                constants.ERR_ARG,
                f"Datatype.Match_size: class {typeclass} has no type of {size} bytes",
            )
        return _new(cls, _states[name])

    def Commit(self) -> Self:
        """Commit the datatype."""
        self._state("Commit").commit()
        return self

    def Free(self) -> None:
        """Free the datatype."""
        self._require_own(constants.ERR_TYPE, "Free")
        self._drop_attrs()
        self._release()

    # How it was made

    def Get_envelope(self) -> tuple[int, int, int, int, int]:
        """Return the number of input arguments used to create a datatype."""
        cdef TypeState state = self._state("Get_envelope")
        return (
            len(state.ints), len(state.addrs), len(state.counts), len(state.types), state.combiner,
        )

    @property
    def envelope(self) -> tuple[int, int, int, int, int]:
        """Envelope."""
        return self.Get_envelope()

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]:
        """Return the input arguments used to create a datatype."""
        cdef TypeState state = self._state("Get_contents")
        if state.combiner == constants.COMBINER_NAMED:
            raise MPIException(
                constants.ERR_TYPE, f"Datatype.Get_contents: {state.name} is a named type"
            )
        types = [_copy(part) for part in state.types]
        return (list(state.ints), list(state.addrs), list(state.counts), types)

    @property
    def contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]:
        """Contents."""
        return self.Get_contents()

    @property
    def combiner(self) -> int:
        """Combiner."""
        return self._state("combiner").combiner

    @property
    def is_named(self) -> bool:
        """Is a named datatype."""
        return self.ob is None or self._state("is_named").combiner == constants.COMBINER_NAMED

    @property
    def is_predefined(self) -> bool:
        """Is a predefined datatype."""
        return self.is_named or self.combiner in predefined.COMBINERS

    def decode(self) -> tuple[Datatype, str, dict[str, Any]]:
        """Convenience method for decoding a datatype."""
        cdef TypeState state = self._state("decode")
        if state.combiner == constants.COMBINER_NAMED:
            return (self, "NAMED", {})
        if state.combiner == constants.COMBINER_VALUE_INDEX:
            value, index = [_copy(part) for part in state.types]
            return (Datatype(), "VALUE_INDEX", {"value": value, "index": index})
        name, params = state.decoded
        params = dict(params)
        if name == "STRUCT":
            params["datatypes"] = [_copy(part) for part in state.types]
            return (Datatype(), name, params)
        base = _copy(state.types[0]) if state.types else Datatype()
        return (base, name, params)

    # Packing

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Pack into contiguous memory according to datatype."""
        packing.require_comm(comm, "Pack")
        return packing.pack(self._state("Pack"), inbuf, outbuf, position)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        """Unpack from contiguous memory according to datatype."""
        packing.require_comm(comm, "Unpack")
        return packing.unpack(self._state("Unpack"), inbuf, position, outbuf)

    def Pack_size(self, count: int, comm: Any) -> int:
        """Determine the amount of space needed to pack a message."""
        packing.require_comm(comm, "Pack_size")
        return packing.size_of(self._state("Pack_size"), count)

    def Pack_external(self, datarep: str, inbuf: Any, outbuf: Any, position: int) -> int:
        """Pack into contiguous memory according to datatype, portably represented."""
        state = self._state("Pack_external")
        return packing.pack_external(state, datarep, inbuf, outbuf, position)

    def Unpack_external(self, datarep: str, inbuf: Any, position: int, outbuf: Any) -> int:
        """Unpack from contiguous memory according to datatype, portably represented."""
        state = self._state("Unpack_external")
        return packing.unpack_external(state, datarep, inbuf, position, outbuf)

    def Pack_external_size(self, datarep: str, count: int) -> int:
        """Determine the amount of space needed to pack a message portably represented."""
        return packing.external_size(self._state("Pack_external_size"), datarep, count)

    # Codes of Python

    @property
    def typechar(self) -> str:
        """Character code."""
        return type_codes.char(None if self.ob is None else <TypeState> self.ob)

    @property
    def typestr(self) -> str:
        """Type string."""
        return type_codes.text(None if self.ob is None else <TypeState> self.ob)

    def tocode(self) -> str:
        """Get character code or type string from predefined MPI datatype."""
        return type_codes.code(None if self.ob is None else <TypeState> self.ob)

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """Get predefined MPI datatype from character code or type string."""
        name = type_codes.name(code)
        if name is None:
            raise ValueError(f"Datatype.fromcode({code!r}): no datatype has this code")
        return _wrappers[name]


def _datatype_create(
    datatype: Datatype,
    combiner: str,
    params: dict[str, Any],
    free: bool = False,
    cls: Any = Datatype,
) -> Datatype:
    """Create a datatype from what `Datatype.decode` returned."""
    try:
        if combiner == "NAMED":
            return datatype
        if combiner == "VALUE_INDEX":
            new = Datatype.Get_value_index(**params)
        else:
            new = getattr(datatype, f"Create_{combiner.lower()}")(**params)
        return new if cls is Datatype else cls(new)
    finally:
        if free:
            datatype.free()


cdef Datatype _publish(str name, TypeState state):
    """Make a state the constant of a name."""
    cdef Datatype self = Datatype.__new__(Datatype)
    self.ob = state
    _wrappers[name] = self
    _states[name] = state
    globals()[name] = constant(self, name)
    return self


DATATYPE_NULL = constant(Datatype(), "DATATYPE_NULL")
for _name, (_kind, _letter, _text) in predefined.NAMED.items():
    _publish(_name, type_state.named(_name, _kind, _letter, _text))
for _name, _value in predefined.PAIRS.items():
    _pairs[_value, "INT"] = type_state.pair(_name, _states[_value], _states["INT"])
    _publish(_name, _pairs[_value, "INT"])
for _name, _value in predefined.ALIASES.items():
    globals()[_name] = _wrappers[_value]

_typedict_c = {code: _wrappers[name] for code, name in predefined.CODES_C.items()}
_typedict_f = {code: _wrappers[name] for code, name in predefined.CODES_F.items()}
_typedict = {**_typedict_c, **_typedict_f}


def _typealign(datatype: Datatype) -> int | None:
    """Return the alignment of a predefined datatype, or None."""
    return (<TypeState> datatype.ob).align if datatype and datatype.is_predefined else None
