# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, Self

from shmnd.mpi.constants import ORDER_C
from shmnd.mpi.datatypes.type_state import TypeState
from shmnd.mpi.objects.keyed import Keyed

def wrapped(state: TypeState) -> Datatype: ...

class Datatype(Keyed):
    _family: str
    _null_error: int
    def __reduce__(self) -> str | tuple[Any, ...]: ...
    def Get_size(self) -> int: ...
    @property
    def size(self) -> int: ...
    def Get_extent(self) -> tuple[int, int]: ...
    @property
    def extent(self) -> int: ...
    @property
    def lb(self) -> int: ...
    @property
    def ub(self) -> int: ...
    def Get_true_extent(self) -> tuple[int, int]: ...
    @property
    def true_extent(self) -> int: ...
    @property
    def true_lb(self) -> int: ...
    @property
    def true_ub(self) -> int: ...
    def Dup(self) -> Self: ...
    Create_dup = Dup
    def Create_contiguous(self, count: int) -> Self: ...
    def Create_vector(self, count: int, blocklength: int, stride: int) -> Self: ...
    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Self: ...
    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self: ...
    def Create_hindexed(
        self, blocklengths: Sequence[int], displacements: Sequence[int]
    ) -> Self: ...
    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self: ...
    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self: ...
    @classmethod
    def Create_struct(
        cls,
        blocklengths: Sequence[int],
        displacements: Sequence[int],
        datatypes: Sequence[Datatype],
    ) -> Self: ...
    def Create_subarray(
        self,
        sizes: Sequence[int],
        subsizes: Sequence[int],
        starts: Sequence[int],
        order: int = ORDER_C,
    ) -> Self: ...
    def Create_darray(
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = ORDER_C,
    ) -> Self: ...
    def Create_resized(self, lb: int, extent: int) -> Self: ...
    Resized = Create_resized
    @classmethod
    def Get_value_index(cls, value: Datatype, index: Datatype) -> Self: ...
    @classmethod
    def Create_f90_integer(cls, r: int) -> Self: ...
    @classmethod
    def Create_f90_real(cls, p: int, r: int) -> Self: ...
    @classmethod
    def Create_f90_complex(cls, p: int, r: int) -> Self: ...
    @classmethod
    def Match_size(cls, typeclass: int, size: int) -> Self: ...
    def Commit(self) -> Self: ...
    def Free(self) -> None: ...
    def Get_envelope(self) -> tuple[int, int, int, int, int]: ...
    @property
    def envelope(self) -> tuple[int, int, int, int, int]: ...
    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]: ...
    @property
    def contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]: ...
    @property
    def combiner(self) -> int: ...
    @property
    def is_named(self) -> bool: ...
    @property
    def is_predefined(self) -> bool: ...
    def decode(self) -> tuple[Datatype, str, dict[str, Any]]: ...
    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int: ...
    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int: ...
    def Pack_size(self, count: int, comm: Any) -> int: ...
    def Pack_external(self, datarep: str, inbuf: Any, outbuf: Any, position: int) -> int: ...
    def Unpack_external(self, datarep: str, inbuf: Any, position: int, outbuf: Any) -> int: ...
    def Pack_external_size(self, datarep: str, count: int) -> int: ...
    @property
    def typechar(self) -> str: ...
    @property
    def typestr(self) -> str: ...
    def tocode(self) -> str: ...
    @classmethod
    def fromcode(cls, code: str) -> Datatype: ...

def _datatype_create(
    datatype: Datatype,
    combiner: str,
    params: dict[str, Any],
    free: bool = False,
    cls: Any = Datatype,
) -> Datatype: ...

DATATYPE_NULL: Datatype

def _typealign(datatype: Datatype) -> int | None: ...

PACKED: Datatype
BYTE: Datatype
AINT: Datatype
OFFSET: Datatype
COUNT: Datatype
CHAR: Datatype
WCHAR: Datatype
SIGNED_CHAR: Datatype
SHORT: Datatype
INT: Datatype
LONG: Datatype
LONG_LONG: Datatype
UNSIGNED_CHAR: Datatype
UNSIGNED_SHORT: Datatype
UNSIGNED: Datatype
UNSIGNED_LONG: Datatype
UNSIGNED_LONG_LONG: Datatype
FLOAT: Datatype
DOUBLE: Datatype
LONG_DOUBLE: Datatype
C_BOOL: Datatype
INT8_T: Datatype
INT16_T: Datatype
INT32_T: Datatype
INT64_T: Datatype
UINT8_T: Datatype
UINT16_T: Datatype
UINT32_T: Datatype
UINT64_T: Datatype
FLOAT16_T: Datatype
FLOAT32_T: Datatype
FLOAT64_T: Datatype
BFLOAT16_T: Datatype
C_COMPLEX: Datatype
C_FLOAT_COMPLEX: Datatype
C_DOUBLE_COMPLEX: Datatype
C_LONG_DOUBLE_COMPLEX: Datatype
CXX_BOOL: Datatype
CXX_FLOAT_COMPLEX: Datatype
CXX_DOUBLE_COMPLEX: Datatype
CXX_LONG_DOUBLE_COMPLEX: Datatype
CHARACTER: Datatype
LOGICAL: Datatype
INTEGER: Datatype
REAL: Datatype
DOUBLE_PRECISION: Datatype
COMPLEX: Datatype
DOUBLE_COMPLEX: Datatype
LOGICAL1: Datatype
LOGICAL2: Datatype
LOGICAL4: Datatype
LOGICAL8: Datatype
LOGICAL16: Datatype
INTEGER1: Datatype
INTEGER2: Datatype
INTEGER4: Datatype
INTEGER8: Datatype
INTEGER16: Datatype
REAL2: Datatype
REAL4: Datatype
REAL8: Datatype
REAL16: Datatype
COMPLEX4: Datatype
COMPLEX8: Datatype
COMPLEX16: Datatype
COMPLEX32: Datatype
SHORT_INT: Datatype
INT_INT: Datatype
LONG_INT: Datatype
FLOAT_INT: Datatype
DOUBLE_INT: Datatype
LONG_DOUBLE_INT: Datatype
TWOINT: Datatype
UNSIGNED_INT: Datatype
SIGNED_SHORT: Datatype
SIGNED_INT: Datatype
SIGNED_LONG: Datatype
SIGNED_LONG_LONG: Datatype
BOOL: Datatype
SINT8_T: Datatype
SINT16_T: Datatype
SINT32_T: Datatype
SINT64_T: Datatype
F_BOOL: Datatype
F_INT: Datatype
F_FLOAT: Datatype
F_DOUBLE: Datatype
F_COMPLEX: Datatype
F_FLOAT_COMPLEX: Datatype
F_DOUBLE_COMPLEX: Datatype
_typedict: dict[str, Datatype]
_typedict_c: dict[str, Datatype]
_typedict_f: dict[str, Datatype]
