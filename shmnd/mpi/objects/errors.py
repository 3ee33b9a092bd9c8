# SPDX-License-Identifier: Apache-2.0
"""Error classes, error codes and their strings, and the exception that carries one.

An error code belongs to a class; the classes of the standard are codes themselves. A program may
add classes, codes and strings of its own, numbered from `ERR_LASTCODE` up.
"""

from typing import Final

from shmnd.mpi import constants

REMEDY_OF_MEMORY: Final = (
    "see the memory of the machine, and the limits of the control group and of the address space "
    "(ulimit -v)"
)
"""What limits the memory that a message takes."""

_TEXTS: Final = {
    "SUCCESS": "no error",
    "ERR_BUFFER": "invalid buffer pointer",
    "ERR_COUNT": "invalid count argument",
    "ERR_TYPE": "invalid datatype",
    "ERR_TAG": "invalid tag",
    "ERR_COMM": "invalid communicator",
    "ERR_RANK": "invalid rank",
    "ERR_REQUEST": "invalid request",
    "ERR_ROOT": "invalid root",
    "ERR_GROUP": "invalid group",
    "ERR_OP": "invalid reduce operation",
    "ERR_TOPOLOGY": "invalid communicator topology",
    "ERR_DIMS": "invalid topology dimension",
    "ERR_ARG": "invalid argument of some other kind",
    "ERR_UNKNOWN": "unknown error",
    "ERR_TRUNCATE": "message truncated",
    "ERR_OTHER": "known error not in list",
    "ERR_INTERN": "internal error",
    "ERR_IN_STATUS": "error code in status",
    "ERR_PENDING": "pending request",
    "ERR_PROC_FAILED": "process failed",
    "ERR_PROC_FAILED_PENDING": "process failed while a wildcard receive was pending",
    "ERR_REVOKED": "communication object revoked",
}


def _standard() -> dict[int, str]:
    """Return the string of each class of the standard: its name, and its meaning in words."""
    strings = {}
    for name, code in vars(constants).items():
        if name == "SUCCESS" or (name.startswith("ERR_") and name != "ERR_LASTCODE"):
            words = _TEXTS.get(name, name.removeprefix("ERR_").replace("_", " ").lower())
            strings[code] = f"MPI_{name}: {words}"
    return strings


_STANDARD: Final = _standard()
_class_of: Final[dict[int, int]] = {}
_strings: Final[dict[int, str]] = {}
_last = constants.ERR_LASTCODE


def Get_error_class(errorcode: int) -> int:
    """Convert an error code into an error class.

    Return the class that a code belongs to; a class belongs to itself.
    """
    if errorcode in _STANDARD or errorcode == constants.ERR_LASTCODE:
        return errorcode
    return _class_of.get(errorcode, constants.ERR_UNKNOWN)


def Get_error_string(errorcode: int) -> str:
    """Return the error string for a class or code.

    Codes that a program has added have an empty one until it sets another.
    """
    if errorcode in _class_of:
        return _strings.get(errorcode, "")
    return _STANDARD.get(errorcode, _STANDARD[constants.ERR_UNKNOWN])


def last_used_code() -> int:
    """Return the value of the attribute `LASTUSEDCODE`."""
    return max(_class_of, default=_last)


def _added(call: str, code: int) -> None:
    if code not in _class_of:
        raise Exception(constants.ERR_ARG, f"{call}({code}): the program has not added this code")


def Add_error_class() -> int:
    """Add an error class to those that are known.

    Return its number, which is larger than all before.
    """
    global _last
    _last += 1
    _class_of[_last] = _last
    return _last


def Remove_error_class(errorclass: int) -> None:
    """Remove an error class that the program has added.

    Raise Exception(ERR_ARG) where the class is not of the program, has codes, or has a string.
    """
    call = "Remove_error_class"
    _added(call, errorclass)
    codes = [code for code, of in _class_of.items() if of == errorclass and code != errorclass]
    if _class_of[errorclass] != errorclass or codes or errorclass in _strings:
        raise Exception(
            constants.ERR_ARG,
            f"{call}({errorclass}): it has codes {codes} or a string; remove those first",
        )
    del _class_of[errorclass]


def Add_error_code(errorclass: int) -> int:
    """Add an error code to an error class.

    Return its number, which is larger than all before.
    """
    global _last
    if Get_error_class(errorclass) != errorclass:
        raise Exception(constants.ERR_ARG, f"Add_error_code({errorclass}): this is not a class")
    _last += 1
    _class_of[_last] = errorclass
    return _last


def Remove_error_code(errorcode: int) -> None:
    """Remove an error code that the program has added.

    Raise Exception(ERR_ARG) where the code is not of the program, is a class, or has a string.
    """
    call = "Remove_error_code"
    _added(call, errorcode)
    if _class_of[errorcode] == errorcode or errorcode in _strings:
        raise Exception(
            constants.ERR_ARG,
            f"{call}({errorcode}): it is a class, or has a string",
        )
    del _class_of[errorcode]


def Add_error_string(errorcode: int, string: str) -> None:
    """Set the error string of a class or code that the program has added.

    Raise Exception(ERR_ARG) for a class of the standard.
    """
    _added("Add_error_string", errorcode)
    _strings[errorcode] = string[: constants.MAX_ERROR_STRING]


def Remove_error_string(errorcode: int) -> None:
    """Remove the error string of a class or code that the program has added.

    Raise Exception(ERR_ARG) where there is none.
    """
    _added("Remove_error_string", errorcode)
    if _strings.pop(errorcode, None) is None:
        raise Exception(constants.ERR_ARG, f"Remove_error_string({errorcode}): it has no string")


class Exception(RuntimeError):
    """Exception class for errors of MPI, comparable to its code."""

    def __init__(self, ierr: int = constants.SUCCESS, detail: str = "", /) -> None:
        """Keep the code, and the words of the call that failed."""
        if ierr < constants.SUCCESS:
            ierr = constants.ERR_UNKNOWN
        super().__init__(ierr, *([detail] if detail else []))
        self._code = int(ierr)
        self._detail = detail

    def __eq__(self, other: object, /) -> bool:
        if isinstance(other, Exception):
            return self._code == other._code
        return self._code == other if isinstance(other, int) else NotImplemented

    def __ne__(self, other: object, /) -> bool:
        return not self == other

    def __lt__(self, other: "Exception | int", /) -> bool:
        return self._code < int(other)

    def __le__(self, other: "Exception | int", /) -> bool:
        return self._code <= int(other)

    def __gt__(self, other: "Exception | int", /) -> bool:
        return self._code > int(other)

    def __ge__(self, other: "Exception | int", /) -> bool:
        return self._code >= int(other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __bool__(self) -> bool:
        return self._code != constants.SUCCESS

    def __int__(self) -> int:
        return self._code

    def __repr__(self) -> str:
        return f"MPI.Exception({self._code})"

    def __str__(self) -> str:
        # The string of the code and, where a call here raised it, the call with its arguments.
        string = Get_error_string(self._code)
        return f"{string}: {self._detail}" if self._detail else string

    def __reduce__(self) -> tuple[type["Exception"], tuple[int, str]]:
        return (type(self), (self._code, self._detail))

    def Get_error_code(self) -> int:
        """Return the error code.

        Get_error_class(code) returns its class.
        """
        return self._code

    def Get_error_class(self) -> int:
        """Return the error class.

        Classes are comparable to the constants ERR_*.
        """
        return Get_error_class(self._code)

    def Get_error_string(self) -> str:
        """Return the error string.

        It is that of the code, without the call that failed.
        """
        return Get_error_string(self._code)

    @property
    def detail(self) -> str:
        """The call that failed with its arguments, or '' where none is known."""
        return self._detail

    @property
    def error_code(self) -> int:
        """The error code."""
        return self._code

    @property
    def error_class(self) -> int:
        """The error class."""
        return Get_error_class(self._code)

    @property
    def error_string(self) -> str:
        """The error string."""
        return Get_error_string(self._code)
