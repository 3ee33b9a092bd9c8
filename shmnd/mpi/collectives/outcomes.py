# SPDX-License-Identifier: Apache-2.0
"""What ranks send in collectives of objects: pickles, or the news that there is none.

Where an object cannot be pickled or an operation of the program raises, the others would wait for
ever. So the rank takes part all the same: instead of a pickle it sends what went wrong, each
receiver raises ERR_OTHER with the text, and the rank itself raises its own error last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from shmnd.mpi import constants
from shmnd.mpi.buffers.pickle import pickle
from shmnd.mpi.collectives.op import Op
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.transport.outer_call import place_of

_FAILED: Final = b"\0shmnd.mpi: no object, but an error\0"
"""The first bytes of such news. No pickle begins with a zero byte."""
_MOST: Final = 1000
"""Characters of an error that travel."""


def dump(obj: Any) -> bytes:
    """Return the pickle of an object."""
    return bytes(pickle.dumps(obj))


def failed(data: bytes) -> bool:
    """Return whether bytes are the news of an error."""
    return data.startswith(_FAILED)


def reason(data: bytes) -> str:
    """Return the rank and the text of the news of an error."""
    return data[len(_FAILED) :].decode("utf-8", "replace")


def load(comm: Any, data: bytes, call: str) -> Any:
    """Return the object of a pickle; raise ERR_OTHER if another rank sent an error instead."""
    if failed(data):
        state = comm.ob
        at = place_of(state.context, call, state.title())
        raise_error(comm, constants.ERR_OTHER, f"{at}: it failed at {reason(data)}")
    return pickle.loads(data)


def _news(rank: int, error: BaseException) -> bytes:
    try:
        text = str(error)
    except Exception:
        text = "an error without a text"
    return _FAILED + f"rank {rank}: {type(error).__name__}: {text}"[:_MOST].encode(
        "utf-8", "replace"
    )


def dump_parts(given: Any, count: int, call: str) -> list[bytes]:
    """Return the pickles of the objects for `count` ranks; None stands for as many None."""
    if given is None:
        given = [None] * count
    if not isinstance(given, Iterable):
        raise TypeError(f"Comm.{call}: expected a sequence of {count} objects, not {given!r}")
    parts = list(given)
    if len(parts) != count:
        raise ValueError(f"Comm.{call}: expecting {count} items, got {len(parts)}")
    return [dump(part) for part in parts]


class Outgoing:
    """The pickles that a rank sends, or the news of what went wrong with them."""

    def __init__(self, rank: int, make: Callable[[], list[bytes]]) -> None:
        """Make them."""
        self._errors: list[BaseException] = []  # one at most
        self._news = b""
        try:
            self._made = make()
        except BaseException as error:
            self._errors.append(error)
            self._news = _news(rank, error)

    def data(self, place: int) -> bytes:
        """Return what to send to the rank at a place."""
        return self._news or self._made[place]

    def check(self) -> None:
        """Raise the error, after the others have its news.

        No frame of its traceback has it then, which would keep all that they hold.
        """
        if self._errors:
            raise self._errors.pop()


class Partial:
    """The reduction of the objects of some ranks."""

    def __init__(self, comm: Any, op: Any, call: str) -> None:
        """Begin with nothing."""
        self.value: Any = None
        self._comm = comm
        self._op = op
        self._call = call
        self._errors: list[BaseException] = []  # one at most
        self._news = b""

    def _guarded(self, step: Callable[[], Any]) -> Any:
        if self._news:
            return None
        try:
            return step()
        except BaseException as error:
            self._errors.append(error)
            self._news = _news(self._comm.ob.rank, error)
            return None

    def begin(self, obj: Any) -> None:
        """Take the object of this rank, as a copy that the operation may change."""
        self._guarded(self._check_op)
        self.value = self._guarded(lambda: pickle.loads(dump(obj)))

    def _check_op(self) -> None:
        op = self._op
        if isinstance(op, Op) and op.ob is None:
            raise_error(self._comm, constants.ERR_OP, f"Comm.{self._call}: the operation is null")
        if not callable(op):
            raise TypeError(
                f"Comm.{self._call}: op {op!r} is neither an operation of MPI nor a function"
            )

    def combine(self, data: bytes, left: bool = False) -> Any:
        """Combine it with a pickle of the ranks to the right or left; return that object."""
        if failed(data) and not self._news:
            self._news = data
        return self._guarded(lambda: self._combined(data, left))

    def _combined(self, data: bytes, left: bool) -> Any:
        other = pickle.loads(data)
        if left:
            self.value = self._op(pickle.loads(data), self.value)
        else:
            self.value = self._op(self.value, other)
        return other

    def data(self) -> bytes:
        """Return what to send: the pickle of the reduction, or the news of an error."""
        made: bytes | None = self._guarded(lambda: dump(self.value))
        return self._news if made is None else made

    def check(self) -> None:
        """Raise the error of this rank, or else that of another one."""
        if self._errors:
            raise self._errors.pop()
        if self._news:
            load(self._comm, self._news, self._call)
