# SPDX-License-Identifier: Apache-2.0
"""Connections, from connect to the end of both sides, and their replay after a restart.

A connect waits in the listener's backlog (queued) until a connector asks for it. Then it is with
the passive side (offered) until the passive side accepts or rejects. From accept on the broker only
remembers which two ends form the connection: whether the active side has completed it, and which
side disconnects, the two read in the memory that they share.

A process that loses the broker while it holds an accepted connection leaves its end *vacant*: if
it comes back (or if the other side reports the connection to a new broker first), it claims
the end again. When it has reported everything it holds and did not name a connection, its end is
over, and an active end that is over after accept means to the passive side that it was abandoned.
"""

from __future__ import annotations

import random

from shmnd.broker.protocol import Fields, PassedFd, Refusal
from shmnd.broker.service.connection_records import Ends
from shmnd.broker.service.ports import covers
from shmnd.broker.service.records import (
    Adapter,
    Bound,
    Connection,
    End,
    Process,
    Stage,
    require_room,
)
from shmnd.status import Status

__all__ = ["Connections"]


class Connections(Ends):
    """All connections of the broker, and the requests of clients that change them."""

    # --- requests of the active side -----------------------------------------------------------

    def connect(self, process: Process, source: Bound, fields: Fields) -> int:
        """Queue a connect at its listener, or offer it; return the number of the connection."""
        listener = self._listener_for(source, fields)
        connection = Connection(
            number=_new_number(process, listener.adapter.process),
            stage=Stage.QUEUED,
            protocol=source.protocol,
            active=End(source.adapter.uid, fields["local"], process),
            passive=End(listener.adapter.uid, (fields["host"], fields["port"])),
            source=source,
            listener=listener,
            private=fields["private"],
            offer=fields["offer"],
        )
        connection.weight = len(connection.private) + len(connection.offer)
        self._check_room(process, connection)
        process.waiting_bytes += connection.weight
        source.connection = connection
        self.records[connection.identity] = connection
        self.undecided.add(connection)
        self.changes += 1
        self._tuples[connection.key] = connection
        self._occupy(connection, connection.active, source.adapter)
        listener.queue[connection.number] = connection
        self.match(listener)
        return connection.number

    def withdraw(self, process: Process, number: int, why: str) -> None:
        """Withdraw a connect whose answer was not taken; harmless when it is over already.

        The passive side receives the reason.
        """
        connection = process.connections.get(number)
        if connection is None or connection.active.process is not process:
            return
        if connection.active.over and connection.passive.process is process:
            # The passive side of the same process was quicker: its `closed` ended the active end.
            self._end(connection, connection.passive)
            return
        self._withdraw(connection, why)

    # --- requests of the passive side ----------------------------------------------------------

    def match(self, listener: Bound) -> None:
        """Pass the oldest requests of a listener to the connectors that wait for them."""
        numbers = listener.adapter.process.connections
        while listener.armed and listener.queue:
            connection = next(iter(listener.queue.values()))
            if numbers.get(connection.number, connection) is not connection:
                # Claimed meanwhile for another connection, which an honest process never does.
                self._refuse(connection, "")
                continue
            try:
                self.introduce(self._adapters[connection.active.adapter], listener.adapter.process)
            except Refusal as refusal:
                self._refuse(connection, "", refusal)
                continue
            connector = next(iter(listener.armed))
            del listener.armed[connector]
            self._offer(connection, listener, connector)

    def accept(self, process: Process, fields: Fields, link: PassedFd) -> None:
        """Bring the answer and the link to the active side."""
        connection = self._offered_to(process, fields["connection"])
        active = connection.active.process
        self.introduce(self._adapters[connection.passive.adapter], active)
        connection.stage = Stage.ACCEPTED
        self._decide(connection)
        self._outbox.event(
            active,
            "accepted",
            [link],
            connection=connection.number,
            peer_adapter=connection.passive.adapter,
            private=fields["private"],
            answer=fields["answer"],
            size=fields["size"],
        )

    def reject(self, process: Process, fields: Fields) -> None:
        """Bring the refusal, its private data and its reason to the active side."""
        connection, why = self._offered_to(process, fields["connection"]), fields["why"]
        refusal = None
        if why:
            refusal = Refusal(Status.CONNECTION_REFUSED, f"the peer could not accept: {why}")
        self._refuse(connection, fields["private"], refusal)

    def refuse_untaken(self, process: Process, connector: int) -> None:
        """Refuse a request whose offer is on its way to a connector that was released.

        Its process may make no call for long, and the active side waits.
        """
        for connection in list(process.connections.values()):
            if connection.connector == connector and connection.stage is Stage.OFFERED:
                self._refuse(connection, "")

    # --- both sides ----------------------------------------------------------------------------

    def closed(self, process: Process, number: int) -> None:
        """End one end; where a process has both, its first request ends the active one."""
        connection = process.connections.get(number)
        if connection is None:
            return
        for end in (connection.active, connection.passive):
            if end.process is process and not end.over:
                self._end(connection, end)
                return

    def forget_bound(self, bound: Bound) -> None:
        """End the undecided connections of a listener or connector that was closed."""
        for connection in list(bound.queue.values()):
            self._refuse(connection, "")
        begun, bound.connection = bound.connection, None
        if begun is not None:
            begun.source = None
            if begun.stage is not Stage.ACCEPTED:
                self._withdraw(begun)

    def forget_adapter(self, adapter: Adapter, *, lost: bool) -> None:
        """End the connections of an adapter that is closed, or `lost` together with its process."""
        for end, connection in list(adapter.ends.items()):
            if end not in adapter.ends:
                continue  # the other end of one connection within this adapter took it along
            if connection.stage is Stage.ACCEPTED and lost:
                self._vacate(connection, end)
            elif end is connection.active:
                self._withdraw(connection)
            elif connection.stage is Stage.ACCEPTED:
                self._end(connection, end)
            else:
                self._refuse(connection, "")

    def share_segment(self, adapter: Adapter) -> None:
        """Send a new segment to each process that has the adapter through a connection."""
        left = set(adapter.known_by)
        for end, connection in adapter.ends.items():
            other = connection.other(end)
            if other.process is not None and not other.over and other.process.uid in left:
                self.introduce(adapter, other.process)
                left.discard(other.process.uid)
                if not left:
                    return  # most adapters have many connections with few processes

    def introduce_again(self, process: Process) -> None:
        """Repeat lost introductions of adapters; keep those that cannot be sent yet."""
        for uid in list(process.unheard):
            adapter = self._adapters.get(uid)
            if adapter is not None:
                try:
                    self.introduce(adapter, process)
                except Refusal:
                    continue
            process.unheard.discard(uid)

    def renew_doorbell(self, process: Process, uid: str) -> None:
        """Make a new doorbell in place of a lost one."""
        for adapter in process.adapters.values():
            other = adapter.known_by.get(uid)
            if other is not None:
                try:
                    self._introduce_adapter(adapter, other)
                except Refusal:
                    self._outbox.doorbell(process, [], other)  # it may ask once more
                return

    # --- replay --------------------------------------------------------------------------------

    def hold(self, process: Process, held: Fields) -> None:
        """Take note of a connection that was made through an earlier broker.

        Only claims of the same two adapters meet in one record, and none can declare another's
        adapter: a false claim makes a record that concerns its author alone.
        """
        adapter = process.adapters.get(held["adapter"])
        if adapter is None:
            raise Refusal(
                Status.INVALID_HANDLE, f"adapter {held['adapter']} is none of this process"
            )
        claimed = _from_held(held)
        connection = self.records.get(claimed.identity, claimed)
        end = connection.active if held["role"] == "active" else connection.passive
        other = connection.other(end)
        if end.process is process:
            return  # reported twice
        known = process.connections.get(connection.number, connection)
        if connection.stage is not Stage.ACCEPTED or known is not connection:
            raise Refusal(
                Status.INVALID_PARAMETER,
                f"connection {held['connection']}: its {held['role']} end is not vacant for"
                f" adapter {adapter.uid} towards {held['peer_adapter']}",
            )
        self._require_room_for_one(process)
        if end.over:
            return  # settled already; the `closed` that follows finds it over
        self.records[connection.identity] = connection
        self._tuples.setdefault(connection.key, connection)
        self._occupy(connection, end, adapter)
        self._reunite(connection, other)

    def settle(self, process: Process) -> None:
        """End the vacant ends that a process did not name: it has reported everything it holds."""
        process.settled = True
        for uid in process.adapters:
            for connection in list(self._vacant.get(uid, {}).values()):
                for end in (connection.active, connection.passive):
                    if end.adapter == uid and end.process is None and not end.over:
                        self._end_unclaimed(connection, end)

    def _reunite(self, connection: Connection, other: End) -> None:
        """Introduce two ends that are both claimed; otherwise wait for the other one, or end it."""
        if other.over:
            return
        if other.process is not None:
            # Each may have declared segments while there was no broker: send all to both.
            for end in (connection.active, connection.passive):
                assert end.process is not None
                end.process.unheard.add(connection.other(end).adapter)
                self.introduce_again(end.process)
            return
        self._vacant.setdefault(other.adapter, {})[connection.identity] = connection
        owner = self._adapters.get(other.adapter)
        if owner is not None and owner.process.settled:
            self._end_unclaimed(connection, other)

    def _end_unclaimed(self, connection: Connection, end: End) -> None:
        """End a vacant end whose process does not claim it."""
        if end is connection.active:
            self._withdraw(connection)
        else:
            self._end(connection, end)

    # --- steps ---------------------------------------------------------------------------------

    def _listener_for(self, source: Bound, fields: Fields) -> Bound:
        """Return the listener of a connect that may go ahead."""
        if source.connection is not None:
            raise Refusal(
                Status.CONNECTION_ACTIVE,
                f"object {source.number} already has connection {source.connection.number}",
            )
        host, port = local = fields["local"]
        if port != source.port or not covers(source.host, host):
            raise Refusal(
                Status.INVALID_ADDRESS,
                f"local address {local} is not the bound one, {(source.host, source.port)}",
            )
        peer = (fields["host"], fields["port"])
        if fields["protocol"] != source.protocol:
            raise Refusal(
                Status.INVALID_PARAMETER,
                f"protocol {fields['protocol']}; object {source.number} is bound for"
                f" {source.protocol}",
            )
        if (source.protocol, local, peer) in self._tuples:
            raise Refusal(
                Status.ADDRESS_ALREADY_EXISTS, f"a connection from {local} to {peer} exists"
            )
        listener = self._ports.find(source.protocol, *peer)
        if listener is None or not listener.listening:
            raise Refusal(
                Status.CONNECTION_REFUSED,
                f"no listener at {peer} (among the processes that meet in {self._place}; those with"
                " another namespace, group, SHMND_RUNTIME_DIR or XDG_RUNTIME_DIR meet elsewhere)",
            )
        if not listener.armed and len(listener.queue) >= listener.backlog:
            raise Refusal(
                Status.CONNECTION_REFUSED,
                f"the backlog of {peer} is full ({listener.backlog} requests)",
            )
        return listener

    def _require_room_for_one(self, process: Process) -> None:
        require_room(len(process.connections), self._limits.connections, "connections of a process")

    def _check_room(self, process: Process, connection: Connection) -> None:
        self._require_room_for_one(process)
        if process.waiting_bytes + connection.weight > self._limits.waiting_bytes:
            raise Refusal(
                Status.INSUFFICIENT_RESOURCES,
                f"{process.waiting_bytes} bytes of private data and offers wait in backlogs;"
                f" the limit of a process is {self._limits.waiting_bytes}",
            )

    def _offered_to(self, process: Process, number: int) -> Connection:
        """Return a connection that waits for the answer of this process."""
        connection = process.connections.get(number)
        if (
            connection is None
            or connection.passive.process is not process
            or connection.stage is Stage.QUEUED
        ):
            raise Refusal(
                Status.CONNECTION_ABORTED, f"connection {number}: the active side has given up"
            )
        if connection.stage is not Stage.OFFERED:
            raise Refusal(
                Status.INVALID_DEVICE_STATE, f"connection {number} is {connection.stage.value}"
            )
        return connection

    def _offer(self, connection: Connection, listener: Bound, connector: int) -> None:
        self._unqueue(connection)
        connection.stage = Stage.OFFERED
        connection.connector = connector
        passive = listener.adapter.process
        self._occupy(connection, connection.passive, listener.adapter)
        self._outbox.event(
            passive,
            "offer",
            object=listener.number,
            connector=connector,
            connection=connection.number,
            local=list(connection.passive.address),
            peer=list(connection.active.address),
            peer_adapter=connection.active.adapter,
            private=connection.private,
            offer=connection.offer,
        )
        connection.private = connection.offer = ""  # delivered, and not needed again


def _new_number(*parties: Process) -> int:
    """Return a number that the parties do not use; the next broker can continue with it."""
    while True:
        number = random.getrandbits(62) | 1
        for party in parties:
            if number in party.connections:
                break
        else:
            return number


def _from_held(held: Fields) -> Connection:
    """Return a new record of a connection that one side alone has reported."""
    mine = End(held["adapter"], held["local"])
    theirs = End(held["peer_adapter"], held["peer"])
    active, passive = (mine, theirs) if held["role"] == "active" else (theirs, mine)
    return Connection(held["connection"], Stage.ACCEPTED, held["protocol"], active, passive)
