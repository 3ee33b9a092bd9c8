# SPDX-License-Identifier: Apache-2.0

class Sentinel:
    _number: int
    _name: str
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __repr__(self) -> str: ...
    def __reduce__(self) -> str: ...

class BottomType(Sentinel):
    _name: str
    def __index__(self) -> int: ...

class InPlaceType(Sentinel):
    _number: int
    _name: str

class BufferAutomaticType(Sentinel):
    _number: int
    _name: str

BOTTOM: BottomType
IN_PLACE: InPlaceType
BUFFER_AUTOMATIC: BufferAutomaticType
