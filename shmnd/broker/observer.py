# SPDX-License-Identifier: Apache-2.0
"""A read-only connection to a broker: it starts none, declares nothing, and holds nothing."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from shmnd.broker.access import caller_at
from shmnd.broker.place import Place, no_answer
from shmnd.broker.protocol import PassedFd, decode, encode, receive, send
from shmnd.status import Status, error

__all__ = ["LIMIT", "Observer", "facts", "stop", "visit"]

LIMIT: Final = 5.0
"""Seconds for an answer, and for an end."""
_POLL_SECONDS: Final = 0.0002
"""Seconds between two checks of the condition that ends a wait."""


class Observer:
    """A connection to the broker that is there now."""

    def __init__(self, sock: socket.socket, path: str, limit: float | None = None) -> None:
        self._sock = sock
        self._path = path
        self._limit = LIMIT if limit is None else limit
        self.pid: int = caller_at(sock).pid
        """The broker's process id, as the kernel reports it; 0 where it is not visible."""

    def counts(self) -> dict[str, int]:
        """Return how many processes, adapters, listeners and connections there are."""
        return self._ask(kind="none", after=0)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, requested page by page."""
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            reply = self._ask(kind=kind, after=after)
            found += reply["page"]
            after = reply["next"]
            if not after:
                return found

    def counter_segments(self) -> Iterator[tuple[dict[str, Any], PassedFd]]:
        """Yield the segments in which adapters publish their counters."""
        after = 0
        while True:
            reply, fds = self._exchange(kind="counters", after=after)
            yield from zip(reply["page"], fds, strict=False)  # fewer, where none is free here
            after = reply["next"]
            if not after:
                return

    def _ask(self, **fields: object) -> dict[str, Any]:
        return self._exchange(**fields)[0]

    def _exchange(self, **fields: object) -> tuple[dict[str, Any], list[PassedFd]]:
        send(self._sock, encode({"op": "status", "id": 1, **fields}))
        reply, fds = self._receive()
        status, message = reply.pop("status"), reply.pop("message")
        if status != Status.SUCCESS:
            raise error(status, "broker status", message)
        del reply["re"]
        return reply, fds

    def _receive(self) -> tuple[dict[str, Any], list[PassedFd]]:
        deadline = time.monotonic() + self._limit
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                raise no_answer("broker status", self._path, self.pid, self._limit)
            with contextlib.suppress(BlockingIOError):
                datagram = receive(self._sock)
                if not datagram.data:
                    raise error(
                        Status.CONNECTION_ABORTED,
                        "broker status",
                        f"the broker at {self._path} (pid {self.pid}) closed the connection",
                    )
                return decode(datagram.data), datagram.fds

    def end(self, enough: Callable[[], bool] = lambda: False) -> bool:
        """End the broker, also one that is stopped; return False when it continues nevertheless.

        `enough` is called repeatedly; when it returns true, the wait ends and this returns True.
        """
        if not self.pid:
            raise OSError(f"the broker at {self._path} runs in another PID namespace; end it there")
        try:
            # It holds the connection, so this cannot be a later process of the same number.
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):  # a stopped one handles only the second
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
                deadline = time.monotonic() + LIMIT
                while time.monotonic() < deadline:
                    if enough() or select.select([handle], [], [], _POLL_SECONDS)[0]:
                        return True
            return False
        finally:
            os.close(handle)


@contextlib.contextmanager
def visit(place: Place, limit: float | None = None) -> Iterator[Observer | None]:
    """Connect to the broker of a place; None when there is none, or it accepts no client now.

    It has `limit` seconds for each answer.
    """
    sock = place.connect()
    if sock is None:
        yield None
        return
    with sock:
        yield Observer(sock, os.fspath(place.socket), limit)


def facts(place: Place, observer: Observer | None) -> dict[str, Any]:
    """Return whether a broker runs, which, and how many processes it has."""
    found = {"namespace": place.directory.name, "running": observer is not None}
    return found if observer is None else {**found, "pid": observer.pid, **observer.counts()}


def as_words(value: object) -> str:
    """Return a fact as people write it: a truth as yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def stop(place: Place) -> tuple[bool, str]:
    """End the broker of a place; return whether none is left, and a message."""
    name = place.directory.name
    with visit(place) as observer:
        if observer is None:
            return True, f"no broker runs in namespace {name!r}"
        if not observer.end():
            return False, f"the broker (pid {observer.pid}) does not end"
        return True, f"ended the broker of namespace {name!r} (pid {observer.pid})"
