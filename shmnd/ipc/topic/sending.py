# SPDX-License-Identifier: Apache-2.0
"""Sending of values that take more than a copy of their bytes."""

from __future__ import annotations

import pickle
from typing import Any, Final

import numpy as np

from shmnd.common.interruption import is_interruption
from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.topic.loan import Lender, Loan
from shmnd.ipc.types import forms, objects
from shmnd.ipc.types.plain_values import as_array, as_bytes, is_plain_array

__all__ = ["Sender"]

_SHORT: Final = 64 << 10
"""Pickles of fewer bytes are copied once more: that takes less than to fill a slot in steps."""


class Sender(Lender):
    """A publisher, as far as it puts values into samples."""

    @property
    def type(self) -> forms.TopicType:
        """The type of the topic, as another end is opened with."""
        return self._form

    def _send_other(self, value: Any, header: Any, timeout: float | None) -> int:
        """Send what takes more than a copy of its bytes."""
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


def _has_rows(value: Any) -> bool:
    """Return whether a value of a structured type is more than one record."""
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)
