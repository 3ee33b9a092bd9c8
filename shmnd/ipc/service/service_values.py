# SPDX-License-Identifier: Apache-2.0
"""What passes between clients and servers: values of a type, and failures."""

from __future__ import annotations

import builtins
import dataclasses
import pickle
import time
from typing import Any, Final, Self, SupportsIndex

import numpy as np

from shmnd.common.closing import refuse_copy
from shmnd.common.deadline import end_of
from shmnd.common.interruption import Ignoring, is_interruption, pass_on
from shmnd.ipc.common.limits import MOST_SAMPLE, number
from shmnd.ipc.errors import Closed, RemoteError, TypeMismatch
from shmnd.ipc.service.fields import Fields
from shmnd.ipc.topic.sample import Sample
from shmnd.ipc.types.filling import fields_of, fill_record
from shmnd.ipc.types.layouts import dtype_of
from shmnd.ipc.types.plain_values import array_of, as_dtype

__all__ = [
    "Answer",
    "Loan",
    "Unreadable",
    "conforming",
    "described",
    "failure_of",
    "in_part",
    "raised_from",
    "request_in_part",
    "require_same_types",
    "room_for",
    "unreadable_here",
]

_ANY: Final = "any"
_BYTE: Final[np.dtype[Any]] = np.dtype("u1")
_NO_SHAPE: Final[tuple[int, ...]] = ()
_RELEASED: Final = object()
"""In place of the value of an answer that was released."""


class Answer(Sample):
    """A value that came from a server: a sample whose memory is this process's own."""

    __slots__ = ("_value", "publisher", "sequence", "timestamp_ns")

    def __init__(
        self, value: Any, sequence: int, publisher: int, timestamp_ns: int | None = None
    ) -> None:
        self._value: Any = value
        self.sequence: Final[int] = sequence
        """Its number among the values of its request."""
        self.publisher: Final[int] = publisher
        """The process of the server."""
        self.timestamp_ns: Final[int] = (
            time.monotonic_ns() if timestamp_ns is None else timestamp_ns
        )
        """When it came."""

    @property
    def value(self) -> Any:
        """The value; its arrays are this process's own."""
        value = self._value
        if value is _RELEASED:
            raise Closed("Answer: it was released; take its value before, which keeps the memory")
        return value

    @property
    def array(self) -> Any:
        """The value as an array."""
        return np.asarray(self.value)

    @property
    def header(self) -> None:
        """None: an answer has no header."""
        _ = self.value  # Closed where it was released

    @property
    def kind(self) -> str:
        """What it holds: 'array' (also of a record), 'bytes' or 'object'."""
        value = self.value
        if isinstance(value, (np.ndarray, np.generic)):
            return "array"
        return "bytes" if isinstance(value, bytes) else "object"

    @property
    def nbytes(self) -> int:
        """The bytes of its array; of bytes, how many there are."""
        value = self.value
        return len(value) if isinstance(value, bytes) else int(self.array.nbytes)

    def release(self) -> None:
        """Release the value; its memory is used again when no view of it is left."""
        self._value = _RELEASED

    def close(self) -> None:
        """Release the value, as `release` does."""
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Answer, (self.value, self.sequence, self.publisher, self.timestamp_ns)

    def __repr__(self) -> str:
        text = "released" if self._value is _RELEASED else repr(self._value)
        return f"<Answer {self.sequence} of process {self.publisher}: {text}>"


class Loan:
    """Memory to compute an answer into."""

    def __init__(self, request: Any, array: Any, is_bytes: bool = False) -> None:
        self._request = request
        self._is_bytes = is_bytes
        self.array: Any = array

    def send(self, header: bytes | None = None, timeout: float | None = None) -> int:
        """Respond with the array; the loan is spent."""
        if header is not None:
            raise TypeError("Loan.send: an answer has no header; put it into the value")
        end_of(timeout, "Loan.send")  # checked alone: an answer waits for no subscriber
        request, self._request = self._request, None
        if request is None:
            raise RuntimeError("Loan.send: the loan was sent or dropped before; take a new one")
        request.respond(self.array.tobytes() if self._is_bytes else self.array)
        return 0

    def drop(self) -> None:
        """Drop the loan; the request is still to be answered."""
        self._request = None

    def close(self) -> None:
        """Drop the loan, as `drop` does."""
        self.drop()

    def __repr__(self) -> str:
        state = "spent" if self._request is None else "to be filled"
        parts = self.array.values() if isinstance(self.array, dict) else (self.array,)
        return f"<Loan of {sum(each.nbytes for each in parts)} bytes for an answer, {state}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        refuse_copy(self, "it is sent once; pass its array on")

    def __enter__(self) -> Loan:
        return self

    def __exit__(self, *exc: object) -> None:
        self.drop()


# -- types --


def described(type_: Any, call: str) -> str:
    """Return the text of a type, by which two ends compare it."""
    if type_ is None:
        return _ANY
    if _is_any(type_):
        return str(type_.__name__)
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        parts = ", ".join(f"{field.name}: {field.type}" for field in dataclasses.fields(type_))
        return f"{type_.__name__}({parts})"
    arrays = getattr(type_, "arrays", None)
    if isinstance(arrays, dict):
        return "Arrays(" + ", ".join(f"{k}={described(v, call)}" for k, v in arrays.items()) + ")"
    dtype, shape = _array_type(type_, call)
    return f"{dtype.str if dtype.names is None else dtype}{list(shape) if shape else ''}"


def _array_type(type_: Any, call: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    wanted = "a dtype, ipc.Array, ipc.Arrays, a dataclass, bytes, object or None"
    if hasattr(type_, "dtype") and hasattr(type_, "shape"):
        return dtype_of(type_.dtype, call, wanted), tuple(type_.shape)
    dtype = dtype_of(type_, call, wanted)
    return dtype.subdtype if dtype.subdtype is not None else (dtype, ())


def require_same_types(ours: dict[str, str], theirs: Any, peer: str, call: str) -> None:
    """Raise TypeMismatch, which shows both, unless both ends mean the same types."""
    for part, text in ours.items():
        other = str(theirs.get(part, _ANY))
        if _ANY not in (text, other) and text != other:
            raise TypeMismatch(
                f"{call}: the {part} has type {text} here, and {other} at {peer}; open both ends "
                "with one type"
            )


def conforming(value: Any, type_: Any, call: str) -> Any:
    """Return a value as its type wants it; TypeError or ValueError when it cannot be that."""
    if type_ is None or type_ is object:
        return value
    if type_ is bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            hint = "encode it first, text.encode()" if isinstance(value, str) else "pass bytes"
            raise TypeError(f"{call}: the value is not bytes, but {type(value).__name__}; {hint}")
        return bytes(value)
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        if not isinstance(value, type_):
            raise TypeError(
                f"{call}: the value is not a {type_.__name__}, but {type(value).__name__};"
                f" pass a {type_.__name__}"
            )
        return value
    arrays = getattr(type_, "arrays", None)
    if isinstance(arrays, dict):
        given = fields_of(value, tuple(arrays), call)
        return Fields(
            (name, conforming(given[name], each, f"{call}: field {name}"))
            for name, each in arrays.items()
        )
    dtype, shape = _array_type(type_, call)
    if dtype.names is not None and not shape and not isinstance(value, (list, np.ndarray)):
        array = np.zeros((), dtype)
        fill_record(array, value, call)
    else:
        found = array_of(value, dtype, shape or None, call)
        array = as_dtype(value, found, dtype, call)
    if shape and array.shape != shape:
        raise ValueError(f"{call}: an array of shape {array.shape}, not of {shape}; reshape it")
    return array


def room_for(type_: Any, shape: Any, dtype: Any, call: str) -> Any:
    """Return memory for a value: of a type, or an array of this shape or dtype."""
    arrays = getattr(type_, "arrays", None)
    if dtype is None and isinstance(arrays, dict):
        if shape is None:
            each_one = ((name, room_for(each, None, None, call)) for name, each in arrays.items())
            return Fields(each_one)
        raise TypeError(
            f"{call}: the response is {type_!r}, which has the shapes of its arrays; pass a dtype"
            " too, or neither"
        )
    if dtype is None and isinstance(type_, type) and dataclasses.is_dataclass(type_):
        raise TypeError(
            f"{call}: the response is a dataclass, which has no memory to compute into;"
            " respond with an object of it"
        )
    found, usual = _BYTE, _NO_SHAPE
    if dtype is None and not _is_any(type_):
        found, usual = _array_type(type_, call)
    elif shape is None:
        usual = getattr(type_, "shape", ())
    if dtype is not None:
        found = dtype_of(dtype, call, "a numpy dtype, as 'f4'")
    return np.empty(usual if shape is None else _shape_of(shape, call), found)


def _is_any(type_: Any) -> bool:
    """Return whether a type says nothing of a dtype: None, bytes or object."""
    # By identity: a dtype of float64 equals None, and one of objects equals `object`.
    return any(type_ is each for each in (None, bytes, object))


def _shape_of(shape: Any, call: str) -> tuple[int, ...]:
    """Return the shape that a program means: a whole number, or several."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(number(call, "shape", each, 0, MOST_SAMPLE) for each in given)


# -- failures --


def failure_of(exc: BaseException) -> tuple[str, tuple[Any, ...], str]:
    """Return the parts of an exception that are sent: its built-in type, arguments and text."""
    kind = type(exc)
    builtin = getattr(builtins, kind.__name__, None) is kind
    words = _text_of(exc)
    args: Any = exc.args
    if isinstance(exc, OSError):
        args = exc.__reduce__()[1]  # with the names of its files, unlike `args`
    try:
        pickle.dumps(args)
    except Exception as failure:
        if is_interruption(failure):
            raise
        args = (words,)
    text = f"{kind.__module__}.{kind.__qualname__}: {words}"
    return (kind.__name__ if builtin else ""), args, text


def _text_of(exc: BaseException) -> str:
    """Return the text of an exception, whose class may be the program's, with any `__str__`."""
    try:
        return str(exc)
    except Exception as failure:
        if is_interruption(failure):
            raise
        return f"<its __str__ raised {type(failure).__name__}>"


def raised_from(failure: Any, service: str) -> Exception:
    """Return the exception that a server sent: the same built-in type, else RemoteError."""
    name, args, text = failure if type(failure) is tuple and len(failure) == 3 else (0, (), 0)
    if type(name) is not str or type(text) is not str:
        return RemoteError(
            f"Client: a server of {service!r} sent an exception that makes no sense; end that"
            " server, which does not answer by this library"
        )
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(*args)
        except Exception as exc:  # of arguments that are not its own
            pass_on(exc)
    return RemoteError(text)


class Unreadable:
    """In place of the value of a message that cannot be unpickled here: the error."""

    def __init__(self, error: BaseException) -> None:
        self.error: Final = error


def in_part(pickled: bytes, error: BaseException) -> tuple[Any, ...] | None:
    """Return an answer without its value, which cannot be unpickled: it has to end its request.

    None for an item that names no request.
    """
    import pickletools  # few programs receive such an answer

    parts: list[Any] = []
    with Ignoring(ValueError):
        for opcode, arg, _ in pickletools.genops(pickled):
            if isinstance(arg, (int, str)) and opcode.name not in ("PROTO", "FRAME"):
                parts.append(arg)
            if len(parts) == 4:
                error.add_note("Client: the answer cannot be unpickled in this process")
                return (*parts, Unreadable(error))
    return None


def request_in_part(pickled: bytes, error: BaseException) -> tuple[Any, ...]:
    """Return a request without its value, which cannot be unpickled: its client gets an answer.

    The error of an item that names no client is raised.
    """
    import pickletools  # few programs receive such a request

    if not isinstance(error, Exception) or is_interruption(error):
        raise error
    origin: list[int] = []
    with Ignoring(ValueError):
        for opcode, arg, _ in pickletools.genops(pickled):
            if isinstance(arg, int) and opcode.name.startswith(("BININT", "LONG")):
                origin.append(arg)
            elif opcode.name not in ("PROTO", "FRAME", "MARK"):
                break
            if len(origin) == 8:
                error.add_note("Server: the request cannot be unpickled in this process")
                return (*origin, Unreadable(error))
    raise error


def unreadable_here(error: BaseException) -> RemoteError:
    """Return what a client gets whose request cannot be unpickled at the server."""
    words = f"{type(error).__name__}: {_text_of(error)}"
    return RemoteError(f"the server cannot unpickle the request: {words}")
