# SPDX-License-Identifier: Apache-2.0
"""The codes of Python for datatypes, both ways; and which type the format of a buffer means."""

import sys
from typing import Final

from shmnd.mpi.datatypes import predefined
from shmnd.mpi.datatypes.type_state import TypeState

_NATIVE: Final = "<" if sys.byteorder == "little" else ">"
_BY_SIZE: Final = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efdg", "f"),
}


def char(state: TypeState | None) -> str:
    """Return the letter of a type; V where it has none."""
    return "" if state is None else state.char or "V"


def text(state: TypeState | None) -> str:
    """Return the type string; V and the extent where it has none."""
    return "" if state is None else state.text or f"V{state.extent}"


def code(state: TypeState | None) -> str:
    """Return the code of a named type, from which `name` finds one that is alike.

    Raise ValueError where there is none.
    """
    if state is not None and state.char:
        letter = predefined.CODES_C.get(state.char)
        if letter is not None and state.text != "b16":
            return state.char
        if state.text in predefined.CODES_C or state.text in predefined.CODES_F:
            return state.text
    what = "DATATYPE_NULL" if state is None else state.name or "a derived datatype"
    raise ValueError(f"Datatype.tocode: {what} has no code")


def name(code: object) -> str | None:
    """Return the name of the type that has a code, or None."""
    if not isinstance(code, str):
        return None
    if len(code) > 1 and code[0] in "@=|" + _NATIVE:
        code = code[1:]
    return predefined.CODES_C.get(code) or predefined.CODES_F.get(code)


def name_of_format(letters: str, itemsize: int, call: str) -> str:
    """Return the name of the type of items with the format of a buffer, for a call.

    Raise BufferError for the other byte order, KeyError for items of no named type.
    """
    if letters[:1] in ("<", ">", "!") and letters[:1] != _NATIVE:
        raise BufferError(
            f"{call}: the items have the format {letters!r}: their byte order is not that of this "
            "machine; name a datatype in the message to send them as they are"
        )
    plain = letters[1:] if letters[:1] in "@=|" + _NATIVE and len(letters) > 1 else letters
    if plain != letters and plain in _BY_SIZE:
        plain = f"{_BY_SIZE[plain]}{itemsize}"
    if len(plain) == 2 and plain[0] == "1":
        plain = plain[1]
    found = predefined.CODES_C.get(plain)
    if found is None:
        raise KeyError(
            f"{call}: items of the format {letters!r} have no datatype of MPI: name one in the "
            "message ([array, MPI.BYTE] sends them as they are), derive one "
            "(util.dtlib.from_numpy_dtype), or send the object by a call in lower case"
        )
    return found
