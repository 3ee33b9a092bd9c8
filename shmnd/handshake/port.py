# SPDX-License-Identifier: Apache-2.0
"""Ports: what a listener or a connector is bound to, kept by the broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from shmnd.address import family, is_any, require_local
from shmnd.common.held import Attempted, Held
from shmnd.common.steps import step
from shmnd.overlapped import OverlappedFile, OverlappedObject
from shmnd.runtime.broker.state import Bound
from shmnd.runtime.polling import CallLock
from shmnd.status import Status, error

if TYPE_CHECKING:
    from shmnd.address import Address
    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.runtime.broker.events import EventTarget
    from shmnd.runtime.interfaces import Event
    from shmnd.runtime.progress import ProgressEngine

__all__ = ["TCP", "Port", "PortHolder", "source_address", "source_host"]

TCP: Final = 6
"""The protocol that everything of version 2 has; version 1 may use others."""
_RETRY: Final = 0.001
"""Seconds until the next poll when another thread is in a call of an object."""


class Port:
    """An address and port, held exclusively from `bind` or `note_bound` until `release`."""

    def __init__(self, adapter: AdapterLike, kind: str, wanted: Address, protocol: int) -> None:
        self._engine: Final[ProgressEngine] = adapter._engine
        self.object: Final = self._engine.new_number()
        """Its number at the broker."""
        self.address = wanted
        self.protocol: Final = protocol
        self._record = Bound(adapter.uid, kind, *wanted, protocol)

    def follow(self, owner: EventTarget) -> None:
        """Deliver events about it to its owner until `forget`."""
        self._engine.follow_object(self.object, owner)

    def bind(self, call: str) -> None:
        """Bind it at the broker, which chooses port 0. NdError has the reason of a refusal."""
        host, record = self.address[0], self._record
        if not is_any(host):
            require_local(host, call)
        with Held(self._engine.rpc):
            reply = self._engine.call(
                "bind",
                caller=call,
                adapter=record.adapter,
                object=self.object,
                kind=record.kind,
                host=host,
                port=record.port,
                protocol=record.protocol,
            )
            step("port-bound")
            self.note_bound(reply["port"])

    def note_bound(self, number: int) -> None:
        """Note the port that the broker has bound, also for a replay to the next broker."""
        self._record.port = number
        self.address = self.address[0], number
        self._engine.broker_state.bound[self.object] = self._record

    def listen(self, backlog: int, call: str) -> None:
        """Let the broker pass requests for this port to its listener."""
        with Held(self._engine.rpc):
            self._engine.call("listen", caller=call, object=self.object, backlog=backlog)
            step("listening")
            self._record.backlog = backlog

    def forget(self) -> int:
        """Drop its records in this process.

        Return the number by which the broker is to close it, or 0 if it was not bound.
        """
        self._engine.unfollow_object(self.object)
        bound = self._engine.broker_state.bound.pop(self.object, None)
        return 0 if bound is None else self.object

    def release(self) -> None:
        """Release it; it is free for others at once."""
        if self.forget():
            self.abandon()

    def abandon(self) -> None:
        """Release it also if the broker alone may know that it is bound."""
        self.forget()
        self._engine.post("close", object=self.object)


class PortHolder(OverlappedObject):
    """Base of what binds a port: connectors and listeners."""

    def __init__(
        self,
        adapter: AdapterLike,
        overlapped_file: OverlappedFile | None = None,
        *,
        protocol: int = TCP,
    ) -> None:
        super().__init__(adapter._engine, overlapped_file)
        self._adapter: Final = adapter
        self._protocol = protocol
        self._lock = CallLock(adapter._engine)
        self._port: Port | None = None
        self._closing = False
        """A close has been put off to the next poll."""

    def _check(self, call: str) -> None:
        self._engine.check(call)
        self._adapter._check_open(call)
        self._refuse_within_another(call)

    def _refuse_within_another(self, call: str) -> None:
        if self._lock.held_here:
            raise error(
                Status.INVALID_DEVICE_STATE,
                call,
                "this call interrupts another one of the same object, as a signal handler does;"
                " make it when that has returned",
            )

    def _puts_off_close(self) -> bool:
        """Postpone a close that interrupts a call to the next poll; return whether it does."""
        if not self._lock.held_here:
            return False
        self._closing = True
        self._engine.pending_operations.poll_soon(self)
        self._engine.ring()
        return True

    def _tick(self) -> None:
        """Poll for the progress engine. Never wait for a thread."""
        if self._closing:
            with Attempted(self._lock) as free:
                if free:
                    self._closing = False
                    self._close_now()
                else:
                    self._try_again()

    def _try_again(self) -> None:
        """Let this object be polled again soon, because another thread is in one of its calls."""
        self._engine.pending_operations.poll_soon(self)
        self._engine.wake_at(time.monotonic() + _RETRY)

    def _close_now(self) -> None:
        """Close, with the lock held."""
        raise NotImplementedError

    def _on_event(self, event: Event, fds: list[int]) -> None:
        """Take an event about the port, or about a connection."""
        raise NotImplementedError

    def _bind_port(self, kind: str, wanted: Address, call: str) -> None:
        """Bind a port for this object. A call that fails, or is interrupted, leaves none."""
        port = Port(self._adapter, kind, wanted, self._protocol)
        try:
            port.follow(self)
            port.bind(call)
            self._port = port
        except BaseException:  # of a handler of a signal: the broker may have bound it
            port.abandon()
            raise

    def _drop_port(self) -> None:
        if self._port is not None:
            self._port.release()
        self._port = None


def source_address(port: Port, adapter: AdapterLike, peer: Address, call: str) -> Address:
    """Return the local address of a connection from a bound port to a peer."""
    host, number = port.address
    if host == peer[0]:
        return host, number
    if is_any(host):
        host = source_host(adapter, peer[0]) if _covers(host, peer[0]) else host
    if family(host) != family(peer[0]):
        raise error(
            Status.NETWORK_UNREACHABLE,
            call,
            f"bound to {host}, from where no way leads to {peer[0]}; bind to its family",
        )
    return host, number


def source_host(adapter: AdapterLike, peer_host: str) -> str:
    """Return the local host of a connection without a chosen one: the adapter's own, if it fits."""
    own = adapter._host
    return own if own == peer_host or family(own) == family(peer_host) else peer_host


def _covers(any_host: str, host: str) -> bool:
    """Return whether `any_host` covers a host: `::` all, `0.0.0.0` those of its own family."""
    return any_host == "::" or family(any_host) == family(host)
