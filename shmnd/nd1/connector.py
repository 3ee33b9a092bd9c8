# SPDX-License-Identifier: Apache-2.0
"""The connector of version 1: makes an endpoint, and then the connection of it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from shmnd.address import family, into, pack_sockaddr, parse
from shmnd.common.arguments import all_within, within, wrong_kind
from shmnd.common.closing import Front, made_by, why_closed
from shmnd.connector import Connector as Connector2
from shmnd.handshake.attempt import ReadLimits
from shmnd.nd1.completion_queue import CompletionQueue
from shmnd.nd1.endpoint import Endpoint
from shmnd.nd1.translation import Overlapped, in_words_of_version_1
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.nd1.adapter_like import AdapterLike
    from shmnd.overlapped import Overlapped as Overlapped2

__all__ = ["Connector"]


class _Core(Connector2):
    _operation = Overlapped
    _title = "Connector"


@made_by("Adapter.create_connector")
class Connector(Front):
    """One connection from either side. Read limits are those of its endpoint."""

    def __init__(self, nd1_adapter: AdapterLike) -> None:
        self._nd1_adapter: Final = nd1_adapter
        self._core: Final = _Core(nd1_adapter._core, nd1_adapter._overlapped_file)
        self._endpoint: weakref.ref[Endpoint] | None = None

    # -- the endpoint --

    def create_endpoint(
        self,
        inbound_cq: CompletionQueue,
        outbound_cq: CompletionQueue,
        inbound_entries: int,
        outbound_entries: int,
        inbound_sge: int,
        outbound_sge: int,
        inbound_read_limit: int = 0,
        outbound_read_limit: int = 0,
    ) -> Endpoint:
        """Create the endpoint of this connector, which has one at a time."""
        call = "Connector.create_endpoint"
        self._nd1_adapter._core._check_open(call)
        self._check_queue(inbound_cq, Status.INVALID_PARAMETER_1, call)
        self._check_queue(outbound_cq, Status.INVALID_PARAMETER_2, call)
        limits = self._nd1_adapter._core._limits
        outbound = min(limits.max_initiator_sge, limits.max_read_sge)
        wanted = all_within(
            call,
            (3, "inbound_entries", inbound_entries, limits.max_receive_queue_depth),
            (4, "outbound_entries", outbound_entries, limits.max_initiator_queue_depth),
            (5, "inbound_sge", inbound_sge, limits.max_receive_sge),
            (6, "outbound_sge", outbound_sge, outbound),
            (7, "inbound_read_limit", inbound_read_limit, limits.max_inbound_read_limit),
            (8, "outbound_read_limit", outbound_read_limit, limits.max_outbound_read_limit),
        )
        living = None if self._endpoint is None else self._endpoint()
        if living is not None and living._alive:
            raise error(Status.NOT_SUPPORTED, call, "the connector has an endpoint; release it")
        with in_words_of_version_1(call):
            pair = self._nd1_adapter._core.create_queue_pair(
                inbound_cq,
                outbound_cq,
                receive_depth=wanted["inbound_entries"],
                initiator_depth=wanted["outbound_entries"],
                max_receive_sge=wanted["inbound_sge"],
                max_initiator_sge=wanted["outbound_sge"],
                inline_size=limits.max_inline_data_size,
            )
        reads = ReadLimits(wanted["inbound_read_limit"], wanted["outbound_read_limit"])
        endpoint = Endpoint(self._nd1_adapter, pair, reads, wanted["outbound_entries"])
        self._endpoint = weakref.ref(endpoint)
        return endpoint

    def _check_queue(self, queue: object, status: Status, call: str) -> None:
        if not isinstance(queue, CompletionQueue):
            raise error(status, call, wrong_kind(queue, "CompletionQueue"))
        if queue._nd1_adapter is not self._nd1_adapter:
            raise error(status, call, "the completion queue is of another adapter")
        if queue._closed:
            raise error(status, call, why_closed(self._nd1_adapter._core, "completion queue"))

    def _own(self, endpoint: object, call: str) -> Endpoint:
        if not isinstance(endpoint, Endpoint):
            raise error(Status.INVALID_PARAMETER_1, call, wrong_kind(endpoint, "Endpoint"))
        if self._endpoint is None or self._endpoint() is not endpoint:
            raise error(Status.INVALID_PARAMETER_1, call, "another connector made the endpoint")
        return endpoint

    # -- the active side --

    def connect(
        self,
        endpoint: Endpoint,
        address_of_peer: tuple[str, int],
        protocol: int = 6,
        local_port: int = 0,
        private_data: Buffer = b"",
    ) -> Overlapped2:
        """Ask the listen at an address for a connection with this connector's endpoint.

        The operation completes when the peer has accepted, or refused. After an accept,
        `complete_connect` comes next. After a failure the connector and the endpoint are as before.
        """
        call = "Connector.connect"
        own = self._own(endpoint, call)
        peer = self._peer(address_of_peer, call)
        protocol = within(call, 4, "protocol", protocol, 0, 255)
        local_port = within(call, 5, "local port", local_port, 0, 0xFFFF)
        with in_words_of_version_1(call):
            bound = self._bind(local_port, protocol)
            try:
                return self._core.connect(own._pair, peer, *own._limits, private_data)
            except BaseException:
                if bound:
                    self._core._unbind()
                raise

    def _peer(self, address: tuple[str, int], call: str) -> tuple[str, int]:
        try:
            peer = parse(address, call, 2)
        except NdError as exc:
            raise error(Status.INVALID_ADDRESS, call, detail_of(exc)) from None
        if family(peer[0]) != family(self._nd1_adapter._core._host):
            raise error(
                Status.INVALID_ADDRESS,
                call,
                f"{peer[0]} is of another family than "
                f"the adapter's {self._nd1_adapter._core._host}",
            )
        return peer

    def _bind(self, local_port: int, protocol: int) -> bool:
        """Bind the local port, if one was chosen; return whether it was bound here.

        A connector in use is not bound: the core refuses its Connect.
        """
        if not self._core._is_new:
            return False
        self._core._protocol = protocol
        if local_port == 0:
            return False
        self._core.bind((self._nd1_adapter._core._host, local_port))
        return True

    def complete_connect(self) -> Overlapped2:
        """Confirm the connection that the peer has accepted; both sides are then connected."""
        with in_words_of_version_1("Connector.complete_connect"):
            return self._core.complete_connect()

    # -- the passive side --

    def accept(self, endpoint: Endpoint, private_data: Buffer = b"") -> Overlapped2:
        """Accept the request that this connector holds, with its endpoint."""
        call = "Connector.accept"
        own = self._own(endpoint, call)
        with in_words_of_version_1(call):
            return self._core.accept(own._pair, *own._limits, private_data)

    def reject(self, private_data: Buffer = b"") -> None:
        """Reject a request in place of Accept, or an answer in place of CompleteConnect."""
        with in_words_of_version_1("Connector.reject"):
            self._core.reject(private_data)

    # -- the peer --

    def get_connection_data(self) -> tuple[int, int, bytes]:
        """Return (inbound read limit, outbound read limit, private data) of the peer.

        The limits are already exchanged: they fit this side's endpoint unchanged.
        CONNECTION_ABORTED when the active side has withdrawn its request.
        """
        limits, data = self._peer_data("Connector.get_connection_data")
        return *limits, data

    def get_connection_data_into(self, buffer: Buffer | None) -> tuple[int, int, int]:
        """Fill a buffer with the private data; return the read limits and its length.

        BUFFER_OVERFLOW when it does not fit: what fits is filled, `.required` is the length, and
        `.read_limits` the two limits.
        """
        call = "Connector.get_connection_data_into"
        limits, data = self._peer_data(call)
        try:
            return *limits, into(call, buffer, data, partial=True, parameter=3)
        except NdError as err:
            err.read_limits = limits  # type: ignore[attr-defined]  # of this call alone
            raise

    def _peer_data(self, call: str) -> tuple[tuple[int, int], bytes]:
        with in_words_of_version_1(call):
            data = self._core.get_private_data()
            if self._core._is_aborted:
                raise error(Status.CONNECTION_ABORTED, call, "the active side has given up")
            return self._core._received_limits, data

    def get_local_address(self) -> tuple[str, int]:
        """Return the address of this end, while it has a peer."""
        with in_words_of_version_1("Connector.get_local_address"):
            return self._core.get_local_address()

    def get_local_address_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with this end's sockaddr; return its size, or raise BUFFER_OVERFLOW."""
        call = "Connector.get_local_address_into"
        with in_words_of_version_1(call):
            return into(call, buffer, pack_sockaddr(self._core.get_local_address()))

    def get_peer_address(self) -> tuple[str, int]:
        """Return the address of the other end, from Connect or the request on."""
        with in_words_of_version_1("Connector.get_peer_address"):
            return self._core.get_peer_address()

    def get_peer_address_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with the peer's sockaddr; return its size, or raise BUFFER_OVERFLOW."""
        call = "Connector.get_peer_address_into"
        with in_words_of_version_1(call):
            return into(call, buffer, pack_sockaddr(self._core.get_peer_address()))

    # -- the end of a connection --

    def notify_disconnect(self) -> Overlapped2:
        """Request a notification of the end of the connection; at once when it has ended."""
        with in_words_of_version_1("Connector.notify_disconnect"):
            return self._core.notify_disconnect()

    def disconnect(self) -> Overlapped2:
        """End the connection; outstanding requests of the endpoint end with CANCELED."""
        with in_words_of_version_1("Connector.disconnect"):
            return self._core.disconnect()

    def cancel_overlapped_requests(self) -> None:
        """End every pending operation of this connector with CANCELED."""
        with in_words_of_version_1("Connector.cancel_overlapped_requests"):
            self._core.cancel_overlapped_requests()

    def get_overlapped_result(self, overlapped: Overlapped2, wait: bool = False) -> Status:
        """Return the final status of an operation; PENDING while it is not over."""
        return self._core.get_overlapped_result(overlapped, wait)

    def close(self) -> None:
        """Release it: it withdraws, ends the attempt, or disconnects, depending on its state."""
        self._core.close()

    def __repr__(self) -> str:
        endpoint = None if self._endpoint is None else self._endpoint()
        return repr(self._core) if endpoint is None else f"{self._core!r} with {endpoint!r}"
