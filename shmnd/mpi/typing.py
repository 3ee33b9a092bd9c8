# SPDX-License-Identifier: Apache-2.0
"""Types for the annotations of programs, as `mpi4py.typing` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar

from shmnd.mpi.buffers.sentinels import BottomType, InPlaceType
from shmnd.mpi.datatypes.datatype import Datatype

__all__ = [
    "Aint",
    "Bottom",
    "BufSpec",
    "BufSpecB",
    "BufSpecV",
    "BufSpecW",
    "Buffer",
    "Count",
    "Displ",
    "InPlace",
    "Offset",
    "SupportsBuffer",
    "SupportsCAI",
    "SupportsDLPack",
    "TargetSpec",
    "TypeSpec",
]


class SupportsBuffer(Protocol):
    """Python buffer protocol."""


class SupportsDLPack(Protocol):
    """DLPack data interchange protocol."""

    def __dlpack__(self, /, *, stream: int | Any | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class SupportsCAI(Protocol):
    """CUDA Array Interface (CAI) protocol."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


Buffer: TypeAlias = SupportsBuffer | SupportsDLPack | SupportsCAI
Bottom: TypeAlias = BottomType | None
InPlace: TypeAlias = InPlaceType | None
Aint: TypeAlias = SupportsIndex
Count: TypeAlias = SupportsIndex
Displ: TypeAlias = SupportsIndex
Offset: TypeAlias = SupportsIndex
TypeSpec: TypeAlias = Datatype | str
BufSpec: TypeAlias = Buffer | Sequence[Any]
BufSpecB: TypeAlias = Buffer | Sequence[Any]
BufSpecV: TypeAlias = Buffer | Sequence[Any]
BufSpecW: TypeAlias = Sequence[Any]
TargetSpec: TypeAlias = Displ | Sequence[Any]
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
