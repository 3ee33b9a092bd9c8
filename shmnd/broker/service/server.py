# SPDX-License-Identifier: Apache-2.0
"""The broker's sockets and its loop: one thread, one epoll, nothing that ever blocks.

Every request of a client is answered, or the client is dropped. While a client does not read,
messages to it wait in a bounded queue of its own, and nothing more is read from it: a client that
only sends delays no other one. A client whose queue overflows is dropped; it connects again and
reports what it holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shmnd.broker.access import caller_at
from shmnd.broker.place import Place
from shmnd.broker.protocol import BadMessage, Fields, decode, encode, receive, send
from shmnd.broker.service.client_queues import Client, Clients, ServerLimits
from shmnd.broker.service.descriptor_limit import Reserve, limit_of_broker, raise_limit
from shmnd.broker.service.records import Limits
from shmnd.broker.service.rendezvous import Rendezvous
from shmnd.broker.service.scheduling import Scheduling
from shmnd.broker.service.validation import request_id
from shmnd.common.steps import step
from shmnd.status import Status

__all__ = ["Server", "ServerLimits"]

Log = Callable[[str], None]

_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PLACE_CHECK_SECONDS: Final = 5.0
"""Seconds between checks whether lock and socket are still the ones that clients find."""
_FIRST_CLIENT: Final = 1.0
"""Seconds that the process that started it has at least to connect."""
_DESCRIPTORS_PER_CLIENT: Final = 8
"""A socket, a pidfd, and some segments; more clients than fit are turned away."""


class Server:
    """A broker at its place; the caller holds the lock and passes it."""

    def __init__(
        self,
        place: Place,
        lock: int,
        *,
        idle: float = 10.0,
        limits: ServerLimits | None = None,
        state_limits: Limits | None = None,
        log: Log = lambda text: None,
    ) -> None:
        self._place = place
        self._lock = lock
        self._idle = idle
        self._limits = limits or ServerLimits()
        self._log = log
        descriptors = raise_limit()
        self._max_clients = min(self._limits.clients, descriptors // _DESCRIPTORS_PER_CLIENT)
        own = state_limits or Limits()
        if descriptors // 4 < own.segments:
            own = replace(own, segments=descriptors // 4, why_segments=limit_of_broker())
        self._state = Rendezvous(limits=own, place=str(place.directory))
        self._state.take_from = self._take_from
        self._is_taking = False
        self._sockets: Counter[int] = Counter()
        self._greeting: dict[int, Client] = {}
        self._next_number = 1
        self._stop_reason = ""
        self._accept_again_at = 0.0
        self._empty_since = time.monotonic()
        self._next_check = self._empty_since + _PLACE_CHECK_SECONDS
        self._selector = selectors.EpollSelector()
        self._clients = Clients(self._limits)
        self._scheduling = Scheduling()
        self._reserve = Reserve()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._listener = place.listen()
        self._socket_stat = place.socket.lstat()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._selector.register(self._clients, selectors.EVENT_READ)

    # --- life ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until `stop`, or until no client was connected for a while."""
        try:
            while not self._stop_reason:
                self._turn()
        finally:
            self._log(f"leaving: {self._stop_reason or 'failed'}")
            self._close()

    def stop(self, reason: str) -> None:
        """Leave at the next turn; may be called from a signal handler or another thread."""
        self._stop_reason = self._stop_reason or reason
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            pass  # it is full, so the loop wakes anyway; or closed, so there is no loop

    def catch_signals(self) -> None:
        """Leave in order at SIGTERM and SIGINT; main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda n, _: self.stop(signal.Signals(n).name))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(4096)
            else:
                self._serve_all()
        now = time.monotonic()
        self._timers(now)
        self._drop_doomed()
        connections = self._state.connections
        self._scheduling.follow(len(connections.undecided), connections.changes, now)
        if self._clients:
            self._empty_since = now
        elif self._idle and now >= self._leave_at():
            self._leave_if_no_client_comes()

    def _leave_at(self) -> float:
        patience = self._idle if self._next_number > 1 else max(self._idle, _FIRST_CLIENT)
        return self._empty_since + patience

    def _timeout(self) -> float:
        """Return the seconds until the server must act by itself."""
        moments = [self._next_check, self._clients.next_retry()]
        if self._scheduling.until:
            moments.append(self._scheduling.until)
        if self._accept_again_at:
            moments.append(self._accept_again_at)
        if self._greeting:  # in order of arrival, so the first is the first due
            moments.append(next(iter(self._greeting.values())).hello_before)
        if self._idle and not self._clients:
            moments.append(self._leave_at())
        return max(0.0, min(moments) - time.monotonic())

    def _timers(self, now: float) -> None:
        for client in list(self._greeting.values()):
            if client.hello_before > now:
                break
            self._clients.doom(client.number, "it did not say hello in time")
        self._clients.retry(now)
        if self._accept_again_at and now >= self._accept_again_at:
            self._accept_again_at = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        if now >= self._next_check:
            self._next_check = now + _PLACE_CHECK_SECONDS
            os.utime(self._lock)  # shows programs that remove old files that it is in use
            if not self._at_home():
                # Clients reconnect to the broker found there now, and replay their state.
                self.stop("the lock or the socket was removed")

    def _at_home(self) -> bool:
        return self._place.holds(self._lock) and self._owns_socket()

    def _owns_socket(self) -> bool:
        try:
            return os.path.samestat(self._socket_stat, self._place.socket.lstat())
        except OSError:
            return False

    def _leave_if_no_client_comes(self) -> None:
        """Leave, unless a client waits to be accepted.

        A client that connects between this check and the removal of the socket finds its
        connection closed without a reply to hello, and tries again.
        """
        self._accept()
        if not self._clients:
            self.stop(f"no client for {self._idle:g} s")

    def _close(self) -> None:
        # As long as the lock is ours, no other process can have made a socket there.
        if self._place.holds(self._lock) and self._owns_socket():
            self._place.socket.unlink(missing_ok=True)
            step("broker-socket-removed")
            with contextlib.suppress(OSError):
                self._place.remove(self._lock)
        self._listener.close()
        for number in self._clients.close():
            self._state.leave(number)  # which also releases its descriptors
        self._state.outbox.items.clear()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        self._reserve.close()
        os.close(self._lock)

    # --- clients come and go -------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(self._limits.batch):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError as exc:
                if exc.errno not in _NO_DESCRIPTOR:
                    raise
                now = time.monotonic()
                if not self._reserve.met(exc, now):
                    self._accept_later(exc, now)
                    return
                if not self._reserve.accept_with_it(self._listener, self._turn_away_poor):
                    self._accept_later(exc, now)
                    return
                continue
            self._reserve.over()
            step("broker-has-a-client")
            self._welcome(sock)

    def _accept_later(self, failure: OSError, now: float) -> None:
        self._log(f"no new clients for now: {failure.strerror}")
        if not self._accept_again_at:
            self._selector.unregister(self._listener)
        self._accept_again_at = now + 0.1

    def _turn_away_poor(self, sock: socket.socket) -> None:
        caller = caller_at(sock)
        why = f"the broker has no descriptor for another client: {limit_of_broker()}"
        who = f"uid {caller.uid} pid {caller.pid}"
        self._turn_away(sock, Status.INSUFFICIENT_RESOURCES, why, who)

    def _welcome(self, sock: socket.socket) -> None:
        caller = caller_at(sock)
        pid, uid = caller.pid, caller.uid
        if not self._place.access.admits(caller):
            status, why = Status.ACCESS_VIOLATION, f"this broker serves {self._place.access}"
        elif len(self._clients) >= self._max_clients:
            status = Status.INSUFFICIENT_RESOURCES
            why = f"{len(self._clients)} processes are here already; that is the broker's limit"
            if self._max_clients < self._limits.clients:
                why = f"{why}: {limit_of_broker()}"
        elif pid and self._sockets[pid] >= self._limits.sockets_per_process:
            status = Status.INSUFFICIENT_RESOURCES
            why = f"process {pid} has {self._sockets[pid]} connections to the broker already"
        else:
            sock.setblocking(False)
            hello_before = time.monotonic() + self._limits.hello_seconds
            client = Client(self._next_number, pid, sock, hello_before)
            self._next_number += 1
            self._sockets[pid] += 1
            self._greeting[client.number] = client
            self._state.admit(client.number, pid, uid)
            self._clients.add(client)
            self._log(f"client {client.number}: came, pid {pid}")
            return
        self._turn_away(sock, status, why, f"uid {uid} pid {pid}")
        sock.close()

    def _turn_away(self, sock: socket.socket, status: Status, why: str, who: str) -> None:
        self._log(f"turned away {who}: {why}")
        try:
            send(sock, encode({"re": 0, "status": int(status), "message": why}))
        except OSError:
            pass  # it did not wait for the answer

    def _drop_doomed(self) -> None:
        """Remove the doomed clients and send what follows from their end, which may doom others."""
        while (doomed := self._clients.take_doomed()) is not None:
            client, why = doomed
            number = client.number
            self._greeting.pop(number, None)
            self._sockets[client.pid] -= 1
            if not self._sockets[client.pid]:
                del self._sockets[client.pid]
            self._log(f"client {number}: {why}")
            step("broker-has-lost-a-client")
            self._leave(number)
            self._clients.send_gathered()

    def _leave(self, number: int) -> None:
        """Forget a client, and send the messages that follow from that."""
        try:
            self._state.leave(number)
        except Exception as exc:
            self._log(f"internal error: {exc!r}")  # a bug of ours; the others must continue
        self._deliver()

    # --- messages ------------------------------------------------------------------------------

    def _serve_all(self) -> None:
        """Serve the clients that are ready, and those that come meanwhile, up to a batch."""
        left = self._limits.batch
        while left > 0:
            turns = self._clients.ready()
            if not turns:
                break
            left -= len(turns)
            for client, room in turns:
                self._serve(client, room)
        self._clients.send_gathered()

    def _serve(self, client: Client, room: bool) -> None:
        """Serve one client once: take a message of it, or send what waits for it."""
        if not self._clients.serves(client.number):
            return
        if not client.queue:
            self._take(client)
        elif room:
            self._clients.flush(client)
        self._clients.watch(client)

    def _take_from(self, number: int) -> None:
        """Take what a client has sent by now, and its end, before the request of another one."""
        client = self._clients.client(number)
        if self._is_taking or client is None:
            return
        self._is_taking = True
        try:
            for _ in range(self._limits.batch):
                if client.queue or not self._clients.serves(number) or not self._take(client):
                    break
        finally:
            self._is_taking = False
        if not self._clients.serves(number):
            self._leave(number)

    def _take(self, client: Client) -> bool:
        """Receive and answer one request; return False if there is none."""
        try:
            datagram = receive(client.sock)
        except (BlockingIOError, ConnectionResetError):
            # The second is reported once, where a client has closed with unread messages. Its own
            # messages can still be read.
            return False
        except OSError as exc:
            self._clients.doom(client.number, f"its socket failed: {exc.strerror}")
            return False
        step("broker-has-read")
        if not datagram.data:
            self._clients.doom(client.number, "went")
            return False
        try:
            message = decode(datagram.data)
            if datagram.cut:
                self._report_cut(client, message)
            else:
                self._state.handle(client.number, message, datagram.fds)
        except BadMessage as exc:
            self._clients.doom(client.number, f"dropped: {exc}")
        except Exception as exc:
            # A mistake of ours: it must not end the other clients.
            self._log(f"internal error: {exc!r}")
            self._clients.doom(client.number, "dropped after an internal error")
        step("broker-has-decided")
        self._deliver()
        if (
            self._greeting
            and client.number in self._greeting
            and self._state.greeted(client.number)
        ):
            del self._greeting[client.number]
        return True

    def _report_cut(self, client: Client, message: Fields) -> None:
        text = f"descriptors were lost: too many of them, or none was free: {limit_of_broker()}"
        ident = request_id(message)
        if ident is not None:
            status = int(Status.INSUFFICIENT_RESOURCES)
            self._clients.push(client.number, {"re": ident, "status": status, "message": text})

    def _deliver(self) -> None:
        """Send the messages that the state has queued."""
        items = self._state.outbox.items
        while items:
            number, message, fds, later = items.popleft()
            if message is None:
                self._clients.doom(number, "came back on another socket")
            else:
                self._clients.push(number, message, fds, later)
