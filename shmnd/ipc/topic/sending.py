# SPDX-License-Identifier: Apache-2.0
"""Sending of values that take more than a copy of their bytes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd.common.deadline import end_of, left_until
from shmnd.common.interruption import is_interruption
from shmnd.ipc.common.limits import number
from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.topic.loan import Lender, Loan
from shmnd.ipc.topic.writer_board import MOST_SEATS
from shmnd.ipc.types import forms, objects
from shmnd.ipc.types.plain_values import as_array, as_bytes, is_plain_array
from shmnd.status import NdError

if TYPE_CHECKING:
    from shmnd.ipc.topic.seats import Seats
    from shmnd.waiter import Waiter

__all__ = ["Sender", "SenderInLoops"]

_SHORT: Final = 64 << 10
"""Pickles of fewer bytes are copied once more: that takes less than to fill a slot in steps."""


class Sender(Lender):
    """A publisher, as far as it puts values into samples."""

    @property
    def type(self) -> forms.TopicType:
        """The type of the topic, as another end is opened with."""
        return self._form

    def _send_other(self, value: Any, header: Any, timeout: float | None) -> int:
        """Send a value that takes more than a copy of its bytes; return as `send` does."""
        call = "Publisher.send"
        form = self._form
        if isinstance(value, Loan):
            raise TypeError(f"{call}: a loan sends itself: loan.send()")
        if isinstance(value, objects.PackedObject):
            return self._send_packed(value, header, timeout)
        if form.is_record and (form.shape is not None or not _has_rows(value)):
            array = np.zeros((), form.dtype)
            form.fill(array, value, call)
            return self._put_array(array, None, header, timeout)
        if form.kind == forms.FIXED:  # also rows of a structured type
            return self._send_array(as_array(value, form, call), header, timeout)
        if form.kind == forms.BYTES:
            return self._put_bytes(as_bytes(value, call), forms.BYTES, None, header, timeout)
        if form.kind == forms.DESCRIBED:
            if is_plain_array(value):
                array = np.require(value, requirements="C")
                return self._put_array(array, forms.description(array, call), header, timeout)
            if isinstance(value, (bytes, bytearray, memoryview)):
                return self._put_bytes(as_bytes(value, call), forms.BYTES, None, header, timeout)
        return self._send_object(value, header, timeout)

    def _send_array(self, array: Any, header: Any, timeout: float | None) -> int:
        described = not self.fixed and (
            array.ndim > 4 or (array.ndim > 1 and max(array.shape) >= 1 << 32)
        )
        meta = forms.description(array, "Publisher.send") if described else None
        return self._put_array(array, meta, header, timeout)

    def _send_object(self, value: Any, header: Any, timeout: float | None) -> int:
        try:
            stream, views, table = objects.packed(value)
        except (pickle.PicklingError, AttributeError, TypeError) as exc:
            if is_interruption(exc):
                raise
            raise TypeError(
                f"Publisher.send: the value cannot be pickled: {exc}; send numbers, text, arrays, "
                "or objects of classes that a module defines"
            ) from exc
        if not views and len(stream) < _SHORT:
            return self._put_bytes(objects.alone(stream), forms.OBJECT, None, header, timeout)
        loaned = self._loan(
            objects.object_bytes(stream, views, table), 0 if header is None else len(header)
        )
        try:
            objects.write_object(memoryview(loaned), stream, views, table)
            return self._send_loan(loaned, forms.OBJECT, (), None, header, timeout)
        finally:
            loaned.drop()

    def _send_packed(self, value: objects.PackedObject, header: Any, timeout: float | None) -> int:
        if self._form.kind not in (forms.OBJECT, forms.DESCRIBED):
            raise TypeMismatch(
                f"Publisher.send: a packed object, and the topic has type {self._form!r}; "
                "open it with type object or None"
            )
        return self._put_bytes(value.data, forms.OBJECT, None, header, timeout)


class _Once(float):
    """The time-out of one attempt to send, which differs from each other one by identity."""


class _NoRoom(TimeoutError):
    """What refuses such an attempt: its sample was not published."""

    def __init__(self, text: str, attempt: _Once) -> None:
        super().__init__(text)
        self.attempt: Final = attempt


class SenderInLoops(Sender):
    """A publisher, as far as it waits in event loops."""

    name: str
    _waiter: Waiter
    _arrivals: Waiter
    _seats: Seats
    _wanted: int

    def _check_members(self) -> None:
        raise NotImplementedError

    def _no_room(self, timeout: float | None, call: str) -> TimeoutError:
        slow = [seat for seat in self._slow() if self._seats.blocks(seat)]
        text = f"{call}: {self._seats.names(slow)} after {timeout} s"
        return _NoRoom(text, timeout) if isinstance(timeout, _Once) else TimeoutError(text)

    def _too_few(self, n: int, timeout: float | None, call: str) -> TimeoutError:
        return TimeoutError(
            f"{call}: topic {self.name!r} has {self._seats.count} subscribers after "
            f"{timeout} s, {n} wanted{self._seats.unreached}"
        )

    async def asend(self, value: Any, header: Any = None, timeout: float | None = None) -> int:
        """Send as `send` does. Other tasks run while a subscriber that blocks has no room."""
        call = "Publisher.asend"
        end = end_of(timeout, call)
        while True:
            await self._await_room(end, timeout, call)
            attempt = _Once()
            try:
                return self.send(value, header, attempt)
            except _NoRoom as exc:  # another thread or task has taken the room
                # Any other TimeoutError is of `on_slow`, perhaps after the sample was published.
                if exc.attempt is not attempt:
                    raise

    async def await_room(self, timeout: float | None = None) -> None:
        """Wait until each subscriber that blocks has room. Other tasks run; TimeoutError names it.

        A `send` or `Loan.send` that follows does not wait, unless another one comes before it.
        """
        call = "Publisher.await_room"
        await self._await_room(end_of(timeout, call), timeout, call)

    async def _await_room(self, end: float, timeout: float | None, call: str) -> None:
        self._require_open(call)
        while True:
            self._check_members()
            self._require_open(call)
            if self._has_room():
                return
            left = left_until(end)
            if left == 0:
                raise self._no_room(timeout, call)
            await self._sleep_in_loop(self._waiter, left, call)

    async def await_subscribers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until there are `n` subscribers, as `wait_for_subscribers`. Other tasks run."""
        call = "Publisher.await_subscribers"
        self._require_open(call)
        end = end_of(timeout, call)
        while True:
            self._wanted = number(call, "n", n, 0, MOST_SEATS)
            self._check_members()
            if self._seats.count >= n:
                return
            left = left_until(end)
            if left == 0:
                raise self._too_few(n, timeout, call)
            await self._sleep_in_loop(self._arrivals, self._seats.unreached.longest(left), call)

    async def _sleep_in_loop(self, waiter: Waiter, left: float | None, call: str) -> None:
        try:
            await waiter.wait_in_loop(left)
        except NdError:
            self._require_open(call)  # another thread has closed it
            raise
        self._require_open(call)


def _has_rows(value: Any) -> bool:
    """Return whether a value of a structured type is more than one record."""
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)
