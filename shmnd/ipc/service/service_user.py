# SPDX-License-Identifier: Apache-2.0
"""What servers and clients of a name have in common: the queue of its requests, and their end."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar, Final

from shmnd.common.arguments import within
from shmnd.common.closing import Closing
from shmnd.ipc.common.closed import announce_closed
from shmnd.ipc.errors import unusable
from shmnd.ipc.naming.shared_name import SharedName
from shmnd.ipc.queue.parts import core_here, taken_over
from shmnd.ipc.queue.queue_file import make_file
from shmnd.ipc.queue.queueing import Queue
from shmnd.ipc.service.request import UnreadableRequest
from shmnd.ipc.service.service_values import described, request_in_part, require_same_types

__all__ = ["SERVICE", "ServiceUser"]

SERVICE: Final = "ipc.service"


class _Requests(Queue):
    """Requests of clients: what cannot be pickled is an error of the call that sends it."""

    @staticmethod
    def _on_queue_feeder_error(exc: Exception, obj: object) -> None:
        raise TypeError(
            f"Client: the request cannot be pickled: {exc}; send numbers, text, arrays, or "
            "objects of classes that a module defines"
        ) from exc


class ServiceUser(Closing):
    """A server or a client of a name. The first of them makes the queue of its requests."""

    _title: ClassVar[str]

    def __init__(
        self,
        name: str,
        request: Any,
        response: Any,
        buffer: int,
        namespace: str | None,
        group: int | str | None,
    ) -> None:
        """Open the queue of the requests. It counts as closed until all of it is opened."""
        self._closed = self._has_left = True
        self._pid = os.getpid()
        self._role: Final = self._title.lower()
        self.request: Final = request
        self.response: Any = response
        self.name: Final[str] = name
        types = {
            "request": described(request, self._title),
            "response": described(response, self._title),
        }
        slots = within(self._title, 3, "buffer", buffer, 1, 1 << 16)
        self._named = SharedName(
            self._title, SERVICE, name, role=self._role, namespace=namespace, group=group
        )
        try:
            self._requests = self._open(types, slots)
        except BaseException:
            self._named.close()
            raise

    def _open(self, types: dict[str, str], slots: int) -> Queue:
        """Return the queue of the requests, whose users have the same types."""
        for entry in self._named.every_entry():
            require_same_types(types, entry.data, f"process {entry.pid}", self._title)
        make = partial(make_file, slots, True)
        requests = _Requests.of_file(self._named.holder(make, core_here, taken_over, **types))
        requests._core.unreadable, requests._core.partly = UnreadableRequest, request_in_part
        requests._keep_from_children()
        return requests

    def _leave(self) -> None:
        """Close the queue of the requests, and what this user has besides."""
        raise NotImplementedError

    def _check(self, call: str) -> None:
        if self._closed or self._pid != os.getpid():
            raise unusable(call, self._role, closed=self._closed)

    def close(self) -> None:
        """Take no more requests, or wait for no more answers. Harmless when repeated."""
        if self._has_left:
            return
        self._closed = True
        if self._pid != os.getpid():
            return
        self._leave()
        self._named.close()
        announce_closed(self)
        self._has_left = True  # last: what a handler of a signal has interrupted is called again
