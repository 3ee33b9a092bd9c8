# SPDX-License-Identifier: Apache-2.0
"""The named datatypes: of what kind each is, and the codes that Python knows it by.

The codes are those of the modules `array` and `struct` and of numpy: a letter, and a kind with a
size in bytes. Types of Fortran have the sizes that GNU Fortran gives them.
"""

from typing import Final

from shmnd.mpi import constants

COMBINERS: Final = (
    constants.COMBINER_F90_INTEGER,
    constants.COMBINER_F90_REAL,
    constants.COMBINER_F90_COMPLEX,
)
"""How predefined types are made that have no name."""

NAMED: Final = {
    # name: (kind, letter, string)
    "PACKED": ("BYTE", "B", "u1"),
    "BYTE": ("BYTE", "B", "u1"),
    "AINT": ("I64", "p", "i8"),
    "OFFSET": ("I64", "l", "i8"),
    "COUNT": ("I64", "l", "i8"),
    "CHAR": ("CHAR", "c", "S1"),
    "WCHAR": ("WCHAR", "U", "U1"),
    "SIGNED_CHAR": ("I8", "b", "i1"),
    "SHORT": ("I16", "h", "i2"),
    "INT": ("I32", "i", "i4"),
    "LONG": ("I64", "l", "i8"),
    "LONG_LONG": ("I64", "q", "i8"),
    "UNSIGNED_CHAR": ("U8", "B", "u1"),
    "UNSIGNED_SHORT": ("U16", "H", "u2"),
    "UNSIGNED": ("U32", "I", "u4"),
    "UNSIGNED_LONG": ("U64", "L", "u8"),
    "UNSIGNED_LONG_LONG": ("U64", "Q", "u8"),
    "FLOAT": ("F32", "f", "f4"),
    "DOUBLE": ("F64", "d", "f8"),
    "LONG_DOUBLE": ("F80", "g", "f16"),
    "C_BOOL": ("BOOL", "?", "b1"),
    "INT8_T": ("I8", "b", "i1"),
    "INT16_T": ("I16", "h", "i2"),
    "INT32_T": ("I32", "i", "i4"),
    "INT64_T": ("I64", "l", "i8"),
    "UINT8_T": ("U8", "B", "u1"),
    "UINT16_T": ("U16", "H", "u2"),
    "UINT32_T": ("U32", "I", "u4"),
    "UINT64_T": ("U64", "L", "u8"),
    "FLOAT16_T": ("F16", "e", "f2"),
    "FLOAT32_T": ("F32", "f", "f4"),
    "FLOAT64_T": ("F64", "d", "f8"),
    "BFLOAT16_T": ("BF16", "V", "V2"),
    "C_COMPLEX": ("C32", "F", "c8"),
    "C_FLOAT_COMPLEX": ("C32", "F", "c8"),
    "C_DOUBLE_COMPLEX": ("C64", "D", "c16"),
    "C_LONG_DOUBLE_COMPLEX": ("C80", "G", "c32"),
    "CXX_BOOL": ("BOOL", "?", "b1"),
    "CXX_FLOAT_COMPLEX": ("C32", "F", "c8"),
    "CXX_DOUBLE_COMPLEX": ("C64", "D", "c16"),
    "CXX_LONG_DOUBLE_COMPLEX": ("C80", "G", "c32"),
    "CHARACTER": ("CHAR", "c", "S1"),
    "LOGICAL": ("L32", "i", "i4"),
    "INTEGER": ("I32", "i", "i4"),
    "REAL": ("F32", "f", "f4"),
    "DOUBLE_PRECISION": ("F64", "d", "f8"),
    "COMPLEX": ("C32", "F", "c8"),
    "DOUBLE_COMPLEX": ("C64", "D", "c16"),
    "LOGICAL1": ("L8", "b", "i1"),
    "LOGICAL2": ("L16", "h", "i2"),
    "LOGICAL4": ("L32", "i", "i4"),
    "LOGICAL8": ("L64", "l", "i8"),
    "LOGICAL16": ("L128", "?", "b16"),
    "INTEGER1": ("I8", "b", "i1"),
    "INTEGER2": ("I16", "h", "i2"),
    "INTEGER4": ("I32", "i", "i4"),
    "INTEGER8": ("I64", "l", "i8"),
    "INTEGER16": ("I128", "V", "i16"),
    "REAL2": ("F16", "e", "f2"),
    "REAL4": ("F32", "f", "f4"),
    "REAL8": ("F64", "d", "f8"),
    "REAL16": ("F128", "g", "f16"),
    "COMPLEX4": ("C16", "E", "c4"),
    "COMPLEX8": ("C32", "F", "c8"),
    "COMPLEX16": ("C64", "D", "c16"),
    "COMPLEX32": ("C128", "G", "c32"),
}

PAIRS: Final = {
    "SHORT_INT": "SHORT",
    "INT_INT": "INT",
    "LONG_INT": "LONG",
    "FLOAT_INT": "FLOAT",
    "DOUBLE_INT": "DOUBLE",
    "LONG_DOUBLE_INT": "LONG_DOUBLE",
}
"""Values with an INT as their index."""

ALIASES: Final = {
    "TWOINT": "INT_INT",
    "UNSIGNED_INT": "UNSIGNED",
    "SIGNED_SHORT": "SHORT",
    "SIGNED_INT": "INT",
    "SIGNED_LONG": "LONG",
    "SIGNED_LONG_LONG": "LONG_LONG",
    "BOOL": "C_BOOL",
    "SINT8_T": "INT8_T",
    "SINT16_T": "INT16_T",
    "SINT32_T": "INT32_T",
    "SINT64_T": "INT64_T",
    "F_BOOL": "LOGICAL",
    "F_INT": "INTEGER",
    "F_FLOAT": "REAL",
    "F_DOUBLE": "DOUBLE_PRECISION",
    "F_COMPLEX": "COMPLEX",
    "F_FLOAT_COMPLEX": "COMPLEX",
    "F_DOUBLE_COMPLEX": "DOUBLE_COMPLEX",
}

CODES_C: Final = {
    "c": "CHAR",
    "S": "CHAR",
    "s": "CHAR",
    "S1": "CHAR",
    "U": "WCHAR",
    "u": "WCHAR",
    "w": "WCHAR",
    "U1": "WCHAR",
    "?": "C_BOOL",
    "b1": "C_BOOL",
    "b": "SIGNED_CHAR",
    "h": "SHORT",
    "i": "INT",
    "l": "LONG",
    "q": "LONG_LONG",
    "B": "UNSIGNED_CHAR",
    "H": "UNSIGNED_SHORT",
    "I": "UNSIGNED",
    "L": "UNSIGNED_LONG",
    "Q": "UNSIGNED_LONG_LONG",
    "p": "AINT",
    "n": "AINT",
    "P": "UINT64_T",
    "N": "UINT64_T",
    "e": "FLOAT16_T",
    "f": "FLOAT",
    "d": "DOUBLE",
    "g": "LONG_DOUBLE",
    "F": "C_FLOAT_COMPLEX",
    "D": "C_DOUBLE_COMPLEX",
    "G": "C_LONG_DOUBLE_COMPLEX",
    "Zf": "C_FLOAT_COMPLEX",
    "Zd": "C_DOUBLE_COMPLEX",
    "Zg": "C_LONG_DOUBLE_COMPLEX",
    "i1": "INT8_T",
    "i2": "INT16_T",
    "i4": "INT32_T",
    "i8": "INT64_T",
    "u1": "UINT8_T",
    "u2": "UINT16_T",
    "u4": "UINT32_T",
    "u8": "UINT64_T",
    "f2": "FLOAT16_T",
    "f4": "FLOAT",
    "f8": "DOUBLE",
    "f16": "LONG_DOUBLE",
    "c8": "C_FLOAT_COMPLEX",
    "c16": "C_DOUBLE_COMPLEX",
    "c32": "C_LONG_DOUBLE_COMPLEX",
    "V1": "BYTE",
}

CODES_F: Final = {
    "?1": "LOGICAL1",
    "?2": "LOGICAL2",
    "?4": "LOGICAL4",
    "?8": "LOGICAL8",
    "b16": "LOGICAL16",
    "i16": "INTEGER16",
    "c4": "COMPLEX4",
}
"""Codes of types that only Fortran has."""

F90_INTEGERS: Final = ((2, "INTEGER1"), (4, "INTEGER2"), (9, "INTEGER4"), (18, "INTEGER8"))
"""The digits that an integer of Fortran has at most, and its type."""

F90_REALS: Final = (
    (6, 37, "REAL4", "COMPLEX8"),
    (15, 307, "REAL8", "COMPLEX16"),
    (33, 4931, "REAL16", "COMPLEX32"),
)
"""Digits and decimal exponent that a real of Fortran has at most, its type and the complex one."""

MATCHES: Final = {
    1: {1: "INTEGER1", 2: "INTEGER2", 4: "INTEGER4", 8: "INTEGER8", 16: "INTEGER16"},
    2: {2: "REAL2", 4: "REAL4", 8: "REAL8", 16: "REAL16"},
    3: {4: "COMPLEX4", 8: "COMPLEX8", 16: "COMPLEX16", 32: "COMPLEX32"},
    4: {1: "LOGICAL1", 2: "LOGICAL2", 4: "LOGICAL4", 8: "LOGICAL8", 16: "LOGICAL16"},
}
"""For each TYPECLASS the type of a size."""
