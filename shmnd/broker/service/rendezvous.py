# SPDX-License-Identifier: Apache-2.0
"""Every request that the broker answers, without any socket.

`Rendezvous.handle` takes one decoded message and puts the reply and the events that follow from it
into the outbox; `leave` does the same for a client that is gone. The owner of the sockets sends
them. A request that is refused changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from shmnd.broker.protocol import VERSION, Fields, PassedFd, Refusal, channel, name_of
from shmnd.broker.service.adapters import AdapterRequests, own_adapter
from shmnd.broker.service.connections import Connections
from shmnd.broker.service.directory import Directory
from shmnd.broker.service.names import NameRequests
from shmnd.broker.service.ports import PortSpace
from shmnd.broker.service.records import (
    Adapter,
    Bound,
    Limits,
    Outbox,
    Outgoing,
    Process,
    require_room,
)
from shmnd.broker.service.report import report
from shmnd.broker.service.validation import read_request, request_id
from shmnd.status import Status

__all__ = ["Rendezvous"]

Handler = Callable[[Process, Fields, Sequence[PassedFd]], Fields]

_PIDFD_KINDS = ("anon_inode:[pidfd]", "pidfd:")


class Rendezvous:
    """The whole state of a broker, and the requests that change it."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        first_port: int | None = None,
        channel: Callable[[], tuple[PassedFd, PassedFd]] = channel,
        place: str,
    ) -> None:
        """Begin without clients. `place` is the directory by which they find the broker."""
        self.uid = os.urandom(16).hex()
        self.outbox = Outbox()
        self.processes: dict[str, Process] = {}
        self.adapters: dict[str, Adapter] = {}
        self.take_from: Callable[[int], None] = _take_nothing
        """Takes what a client has sent by now; it calls `handle`."""
        self._limits = limits or Limits()
        self._pid_space = _own_pid_space()
        self._ports: PortSpace[Bound] = PortSpace(first=first_port)
        self._clients: dict[int, Process] = {}
        self._callers: dict[int, tuple[int, int]] = {}
        self.connections = Connections(
            self._ports, self.adapters, self.outbox, self._limits, channel, place
        )
        self.directory = Directory(
            self.adapters, self.outbox, self._limits, self.connections.introduce
        )
        self._adapter_requests = AdapterRequests(
            self.adapters,
            self.outbox,
            self._limits,
            self.connections,
            self.directory,
            self._unbind,
        )
        self._handlers = self._handlers_of(self._adapter_requests, NameRequests(self.directory))

    def _handlers_of(self, adapters: AdapterRequests, names: NameRequests) -> dict[str, Handler]:
        """Return what handles each operation of a client that has introduced itself."""
        return {
            "adapter": adapters.open,
            "adapter_close": adapters.close,
            "segment": adapters.segment,
            "segment_close": adapters.segment_close,
            "bind": self._bind,
            "listen": self._listen,
            "request": self._request,
            "cancel_request": self._cancel_request,
            "connect": self._connect,
            "withdraw": self._withdraw,
            "accept": self._accept,
            "reject": self._reject,
            "close": self._close,
            "closed": self._closed,
            "holds": self._holds,
            "announce": names.announce,
            "retract": names.retract,
            "find": names.find,
            "watch": names.watch,
            "unwatch": names.unwatch,
            "meet": names.meet,
            "part": names.part,
            "sync": self._sync,
            "unheard": self._unheard,
            "doorbell_lost": self._doorbell_lost,
        }

    # --- clients -------------------------------------------------------------------------------

    def admit(self, client: int, trusted_pid: int, user: int) -> None:
        """Take note of a new client, with the process and user id that the kernel reports."""
        self._callers[client] = trusted_pid, user

    def greeted(self, client: int) -> bool:
        """Return whether a client has introduced itself."""
        return client in self._clients

    def leave(self, client: int) -> None:
        """Forget a client that is gone, and notify the clients that it concerns."""
        self._callers.pop(client, None)
        process = self._clients.pop(client, None)
        if process is None:
            return
        process.present = False
        del self.processes[process.uid]
        for bound in list(process.objects.values()):
            self._unbind(bound)
        for adapter in list(process.adapters.values()):
            self._adapter_requests.forget(adapter, lost=True)
        self.directory.leave(process)
        for uid in process.knows:
            self.adapters[uid].known_by.pop(process.uid, None)
        for other in list(process.met.values()):  # it may have met itself
            other.met.pop(process.uid, None)
            other.channels.pop(process.uid, None)
            self.outbox.event(other, "gone", process=process.uid)
        # Records refer to each other in circles; their descriptors are to be closed now.
        process.adapters.clear()
        process.objects.clear()
        process.met.clear()
        process.pidfd = PassedFd(-1)

    def handle(self, client: int, message: Fields, fds: Sequence[PassedFd]) -> None:
        """Answer one message. BadMessage when it cannot even be answered."""
        ident = request_id(message)
        self.outbox.begin()
        reply: Fields = {}
        status, text = Status.SUCCESS, ""
        reply_fds: list[PassedFd] = []
        later = False
        try:
            op, fields = read_request(message, len(fds))
            if op in ("bind", "connect"):
                self._take_from_holders(client, fields)
            if op == "status":  # for tools, which need not say hello
                reply = self._status(fields, reply_fds)
            else:
                reply = self._dispatch(client, op, fields, fds)
                later = fields.get("later", False)
        except Refusal as refusal:
            status, text = refusal.status, refusal.message
        if ident is not None:
            answer = {"re": ident, "status": int(status), "message": text, **reply}
            self.outbox.answer(client, answer, reply_fds, later)

    def _take_from_holders(self, client: int, fields: Fields) -> None:
        """Take what the other holders of an address have sent: it may be free by now.

        A process may close its listener and then have another process bind the same address, which
        asks by another socket: that request must not overtake the close. Each process counts once,
        whatever the number of its objects.
        """
        holders = self._ports.holders(fields["protocol"], fields["host"], fields["port"])
        for owner in {holder.adapter.process.client for holder in holders} - {client}:
            self.take_from(owner)
        self.outbox.begin()

    def _dispatch(self, client: int, op: str, fields: Fields, fds: Sequence[PassedFd]) -> Fields:
        if op == "hello":
            return self._hello(client, fields, fds)
        process = self._clients.get(client)
        if process is None:
            raise Refusal(Status.INVALID_DEVICE_STATE, f"{op}: hello must come first")
        return self._handlers[op](process, fields, fds)

    def _hello(self, client: int, fields: Fields, fds: Sequence[PassedFd]) -> Fields:
        if fields["version"] != VERSION:
            raise Refusal(
                Status.NOT_SUPPORTED,
                f"this broker (pid {os.getpid()}) speaks version {VERSION} of the protocol, the"
                f" client version {fields['version']}: they are of different releases of shmnd;"
                " 'python -m shmnd.broker --replace' of the newer one takes its place, and"
                " established connections continue",
            )
        if client in self._clients:
            raise Refusal(
                Status.INVALID_DEVICE_STATE, "hello: the client has introduced itself before"
            )
        _require_pidfd(fds[0])
        trusted_pid, user = self._callers[client]
        proven = trusted_pid > 0 and fds[0].process() == trusted_pid
        uid = name_of(fields["key"])
        self._replace(uid)
        process = Process(
            client=client,
            uid=uid,
            pid=fields["pid"],
            trusted_pid=trusted_pid,
            pid_space=self._pid_space if trusted_pid > 0 else 0,
            user=user,
            proven=proven,
            pidfd=fds[0],
            settled=not fields["holds"],
        )
        self._clients[client] = self.processes[process.uid] = process
        return {"version": VERSION, "broker": self.uid, "pid": os.getpid()}

    def _replace(self, uid: str) -> None:
        """Drop the old client of a process that comes back before its socket was seen closed."""
        old = self.processes.get(uid)
        if old is not None:
            client = old.client
            self.leave(client)
            self.outbox.items.append(Outgoing(client, None))

    # --- listeners and connectors --------------------------------------------------------------

    def _bind(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        adapter = own_adapter(process, fields["adapter"])
        number = fields["object"]
        if number in process.objects:
            raise Refusal(Status.ADDRESS_ALREADY_ASSOCIATED, f"object {number} is bound already")
        require_room(len(process.objects), self._limits.objects, "bound objects of a process")
        bound = Bound(
            number, adapter, fields["kind"], fields["protocol"], fields["host"], fields["port"]
        )
        bound.port = self._ports.bind(bound.protocol, bound.host, bound.port, bound)
        process.objects[number] = bound
        return {"port": bound.port}

    def _listen(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Begin to listen. Again, too: a process whose call was interrupted does not know of it."""
        listener = _own_object(process, fields["object"], "listener")
        limit = self._limits.backlog
        listener.backlog = min(fields["backlog"] or limit, limit)
        listener.listening = True
        return {}

    def _request(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        listener = _own_listening(process, fields["object"])
        connector = fields["connector"]
        if connector in listener.armed:
            raise Refusal(
                Status.INVALID_PARAMETER_1, f"connector {connector} waits for a request already"
            )
        require_room(len(listener.armed), self._limits.armed, "outstanding requests of a listener")
        listener.armed[connector] = None
        self.connections.match(listener)
        return {}

    def _cancel_request(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        listener = _own_listening(process, fields["object"])
        connector = fields["connector"]
        waiting = connector in listener.armed
        listener.armed.pop(connector, None)
        if fields["released"] and not waiting:
            self.connections.refuse_untaken(process, connector)
        return {"cancelled": waiting}

    def _close(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        bound = process.objects.get(fields["object"])
        if bound is not None:
            self._unbind(bound)
        return {}

    def _unbind(self, bound: Bound) -> None:
        bound.listening = False
        bound.armed.clear()
        self._ports.release(bound.protocol, bound.host, bound.port)
        del bound.adapter.process.objects[bound.number]
        self.connections.forget_bound(bound)

    # --- connections ---------------------------------------------------------------------------

    def _connect(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        host, port = fields["local"]
        if port == 0:  # bound together with the connect; undone when that is refused
            self._bind(process, {**fields, "kind": "connector", "host": host, "port": 0}, ())
        try:
            return self._connect_from(process, fields)
        except Refusal:
            if port == 0:
                self._unbind(process.objects[fields["object"]])
            raise

    def _connect_from(self, process: Process, fields: Fields) -> Fields:
        source = _own_object(process, fields["object"], "connector")
        fields["local"] = fields["local"][0], fields["local"][1] or source.port
        if source.adapter.uid != fields["adapter"]:
            raise Refusal(
                Status.INVALID_HANDLE,
                f"object {source.number} is of adapter {source.adapter.uid}, not"
                f" {fields['adapter']}",
            )
        connection = self.connections.connect(process, source, fields)
        return {"connection": connection, "port": source.port}

    def _withdraw(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        self.connections.withdraw(process, fields["connection"], fields["why"])
        return {}

    def _accept(self, process: Process, fields: Fields, fds: Sequence[PassedFd]) -> Fields:
        if not 0 < fields["size"] <= fds[0].size():
            raise Refusal(
                Status.INVALID_BUFFER_SIZE,
                f"link of {fields['size']} bytes, but its descriptor is of"
                f" {max(fds[0].size(), 0)} of sealed shared memory",
            )
        self.connections.accept(process, fields, fds[0])
        return {}

    def _reject(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        self.connections.reject(process, fields)
        return {}

    def _closed(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """End one end of a connection, and free the port that was bound for it alone, if any."""
        self.connections.closed(process, fields["connection"])
        return self._close(process, fields, ()) if fields["object"] else {}

    def _holds(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        refused = []
        for held in fields["connections"]:
            try:
                self.connections.hold(process, held)
            except Refusal as refusal:
                refused.append([held["connection"], refusal.message[:120]])
        if fields["done"]:
            self.connections.settle(process)
        return {"refused": refused}

    def _sync(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Repeat lost introductions; the reply names those that cannot be sent yet.

        The reply follows every earlier message to the client, and the repeated ones.
        """
        self.connections.introduce_again(process)
        self.outbox.begin()
        return {"unheard": list(process.unheard)}

    def _unheard(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Note that descriptors were lost: the introduction is repeated when it is needed.

        A lost segment is repeated alone. A whole introduction brings a doorbell for the owner, and
        only a few doorbells may wait for an owner that makes no call.
        """
        uid, segment = fields["adapter"], fields["seg"]
        if uid not in process.knows:
            return {}
        if segment < 0:
            del process.knows[uid]
            self.adapters[uid].known_by.pop(process.uid, None)
        else:
            process.knows[uid].discard(segment)
        process.unheard.add(uid)
        return {}

    def _doorbell_lost(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Send a new doorbell to a process that had no descriptor free for the last one."""
        self.connections.renew_doorbell(process, fields["process"])
        return {}

    def _status(self, fields: Fields, reply_fds: list[PassedFd]) -> Fields:
        found = report(self.processes, self.adapters, self.connections.records, fields, reply_fds)
        return {"broker": self.uid, "version": VERSION, "pid": os.getpid(), **found}


def _take_nothing(_client: int) -> None:
    """Take nothing: there are no sockets."""


def _own_pid_space() -> int:
    """Return the PID namespace of this process; 0 where /proc does not show it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _own_object(process: Process, number: int, kind: str) -> Bound:
    bound = process.objects.get(number)
    if bound is None or bound.kind != kind:
        raise Refusal(
            Status.INVALID_HANDLE, f"object {number} is not a bound {kind} of this process"
        )
    return bound


def _own_listening(process: Process, number: int) -> Bound:
    listener = _own_object(process, number, "listener")
    if not listener.listening:
        raise Refusal(Status.INVALID_DEVICE_STATE, f"object {number} does not listen")
    return listener


def _require_pidfd(fd: PassedFd) -> None:
    """Refuse another kind of descriptor: it would never report that the process has died."""
    kind = fd.kind()
    if kind and not kind.startswith(_PIDFD_KINDS):
        raise Refusal(
            Status.INVALID_PARAMETER, f"hello: the pidfd is a {kind}, not {_PIDFD_KINDS[0]}"
        )
