# SPDX-License-Identifier: Apache-2.0
"""The channel of a message-passing library on version 1, in two processes.

Receives are posted in a batch before the connection; large data is announced by a descriptor, bound
and sent in one batch, and fetched with Reads; the notice that it was fetched carries READ_FENCE;
the window's result is also the result of its Invalidate; the remaining requests are flushed at the
end.
"""

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any, Final

import pytest

import shmnd.nd1 as nd
from nd1.ends import End, Pair
from shmnd import NdError, Status
from spi.harness import WAIT, Late, outcome

RECEIVES: Final = 64
SENDS: Final = 16
PROTOCOL: Final = 123
READ_FENCE: Final = 0x2
ALLOW_READ: Final = 0x8
LARGE: Final = 3 << 20
ROUNDS: Final = 6
EAGER: Final = 256


class Channel:
    """One side: an adapter, one queue for both directions, an endpoint with its Receives."""

    def __init__(self) -> None:
        self.adapter = nd.Provider().open_adapter("127.0.0.1")
        info = nd.AdapterInfo.unpack(self._info())
        self.read_limit = min(16, info.max_outbound_read_limit)
        self.cq = self.adapter.create_completion_queue(info.max_cq_entries)
        self.array = self.adapter.allocate((RECEIVES + SENDS) * EAGER)
        self.handle, registered = self.adapter.register_memory(self.array)
        assert self.adapter.get_overlapped_result(registered, wait=True) is Status.SUCCESS
        self.base = int(self.array.ctypes.data)
        self.connector = self.adapter.create_connector()
        self.sends = {nd.Result(): slot for slot in range(SENDS)}
        self.free = list(self.sends)
        self.receives = {nd.Result(): slot for slot in range(RECEIVES)}
        self.order = list(self.receives)  # in which they must complete
        self.others: list[nd.Result] = []

    def _info(self) -> bytearray:
        packed = bytearray(128)
        assert self.adapter.query_into(1, packed) == 128
        return packed

    def create_endpoint(self) -> None:
        limit = self.read_limit
        self.endpoint = self.connector.create_endpoint(
            self.cq, self.cq, RECEIVES, RECEIVES, 1, 1, limit, limit
        )
        self.endpoint.start_request_batch()
        for result in self.order:
            self._post(result)
        self.endpoint.submit_request_batch()

    def _post(self, result: nd.Result) -> None:
        sge = nd.Sge(self.base + self.receives[result] * EAGER, EAGER, self.handle)
        self.endpoint.receive(result, [sge])

    def send(self, data: bytes) -> None:
        while not self.free:
            self.others += self.poll()
        result = self.free.pop()
        offset = (RECEIVES + self.sends[result]) * EAGER
        self.array[offset : offset + len(data)] = list(data)
        self.endpoint.send(result, [nd.Sge(self.base + offset, len(data), self.handle)], READ_FENCE)

    def poll(self) -> list[nd.Result]:
        """Results one at a time; those of Sends are put back."""
        found = []
        for result in self.cq.wait(max=1, timeout=WAIT) or [None]:
            if result is None:
                raise Late("nothing completes")
            assert result.status == Status.SUCCESS, result
            if result in self.sends:
                self.free.append(result)
            else:
                found.append(result)
        return found

    def other(self) -> nd.Result:
        """The next result that is of no Send."""
        while not self.others:
            self.others += self.poll()
        return self.others.pop(0)

    def message(self) -> bytes:
        """The next message; its Receive is posted anew, and was the oldest."""
        result = self.other()
        assert result is self.order[0], "Receives complete in the order of posting"
        self.order.append(self.order.pop(0))
        offset = self.receives[result] * EAGER
        data = bytes(self.array[offset : offset + result.bytes_transferred])
        self._post(result)
        return data

    def end(self) -> None:
        """Disconnect, flush, and take the Receives that are left: all canceled."""
        outcome(self.connector.disconnect)
        self.endpoint.flush()
        left: list[nd.Result] = []
        while len(left) < RECEIVES:
            taken = self.cq.wait(timeout=WAIT)
            assert taken, "the flush is incomplete"
            left += [result for result in taken if result in self.receives]
        assert {result.status for result in left} == {Status.CANCELED}
        assert left == self.order
        self.adapter.deregister_memory(self.handle).result(WAIT)
        self.adapter.close()


def pattern(number: int) -> bytes:
    return bytes([number * 37 % 256]) * LARGE


def offer_large(channel: Channel) -> None:
    """Side A: bind, tell, wait until it was fetched, invalidate; again and again."""
    window_result = nd.Result()
    window = channel.adapter.create_memory_window(window_result)
    array = channel.adapter.allocate(LARGE)
    handle, _ = channel.adapter.register_memory(array)
    for number in range(ROUNDS):
        array[:] = pattern(number)[0]
        bound = nd.Result()
        descriptor = channel.endpoint.bind(
            bound, handle, window, int(array.ctypes.data), LARGE, ALLOW_READ
        )
        channel.send(b"large" + descriptor.pack())
        assert channel.other() is bound
        assert channel.message() == b"done"
        channel.endpoint.invalidate(window_result, window)
        assert channel.other() is window_result
        assert window_result.status is Status.SUCCESS
    with pytest.raises(NdError) as caught:
        channel.adapter.deregister_memory(handle ^ 1)
    assert caught.value.status is Status.INVALID_HANDLE
    channel.adapter.deregister_memory(handle).result(WAIT)
    window.close()


def fetch_large(channel: Channel) -> None:
    """Side B: read in pieces, then say so behind the Reads."""
    array = channel.adapter.allocate(LARGE)
    handle, _ = channel.adapter.register_memory(array)
    piece = LARGE // 4
    for number in range(ROUNDS):
        told = channel.message()
        assert told[:5] == b"large"
        descriptor = nd.MwDescriptor.unpack(told[5:])
        reads = [nd.Result() for _ in range(4)]
        for at, result in enumerate(reads):
            sge = nd.Sge(int(array.ctypes.data) + at * piece, piece, handle)
            channel.endpoint.read(result, [sge], descriptor, at * piece)
        channel.send(b"done")
        assert [channel.other() for _ in reads] == reads
        assert {result.bytes_transferred for result in reads} == {piece}
        assert bytes(array) == pattern(number)
    channel.adapter.deregister_memory(handle).result(WAIT)


def passive_side(pipe: Connection, environment: dict[str, str]) -> None:
    """The process that listens: takes the request, answers with one byte, fetches."""
    os.environ.update(environment)
    channel = Channel()
    listen = channel.adapter.listen(0, PROTOCOL)
    request = listen.get_connection_request(channel.connector)
    pipe.send(listen.assigned_port)
    request.result(WAIT)
    assert len(channel.connector.get_connection_data()[2]) == 28
    channel.connector.get_peer_address()
    channel.create_endpoint()
    channel.connector.accept(channel.endpoint, b"\x01").result(WAIT)
    fetch_large(channel)
    for number in range(200):
        assert channel.message() == number.to_bytes(2, "big")
        channel.send(number.to_bytes(2, "big") * 2)
    listen.close()
    channel.end()
    pipe.send("over")


def test_a_channel_between_two_processes() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    environment = {k: v for k, v in os.environ.items() if k.startswith("SHMND_")}
    child = context.Process(target=passive_side, args=(there, environment), daemon=True)
    child.start()
    there.close()
    try:
        assert here.poll(4 * WAIT)
        port = here.recv()
        channel = Channel()
        channel.create_endpoint()
        address = ("127.0.0.1", port)
        connecting = channel.connector.connect(
            channel.endpoint, address, PROTOCOL, private_data=bytes(28)
        )
        connecting.result(WAIT)
        assert channel.connector.get_connection_data()[2] == b"\x01"
        channel.connector.complete_connect().result(WAIT)
        offer_large(channel)
        for number in range(200):
            channel.send(number.to_bytes(2, "big"))
            assert channel.message() == number.to_bytes(2, "big") * 2
        channel.end()
        assert here.poll(4 * WAIT)
        assert here.recv() == "over"
        child.join(WAIT)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
        here.close()


def test_connects_that_cross(make_pair: Any) -> None:
    """Both sides connect at the same time; one attempt wins, the other is refused quietly."""
    pair = make_pair()
    ends: tuple[End, End] = (pair.active, pair.passive)
    attempts = []
    for end in ends:
        waiting = end.listen.get_connection_request(end.connector)
        out = end.adapter.create_connector()
        endpoint = out.create_endpoint(end.cq, end.cq, 4, 4, 1, 1)
        attempts.append((waiting, out, endpoint))
        end.kept += [out, endpoint]
    connecting = [
        out.connect(endpoint, ("127.0.0.1", other.listen.assigned_port))
        for (_, out, endpoint), other in zip(attempts, ends[::-1], strict=True)
    ]
    for waiting, _, _ in attempts:
        waiting.result(WAIT)
    # The second gives way: it rejects what it was asked last, and takes the other's request.
    ends[0].connector.reject(b"crossed")
    accepting = ends[1].connector.accept(ends[1].endpoint)
    assert outcome(lambda: connecting[1]) is Status.CONNECTION_REFUSED
    assert attempts[1][1].get_connection_data()[2] == b"crossed"
    connecting[0].result(WAIT)
    attempts[0][1].complete_connect().result(WAIT)
    accepting.result(WAIT)
    received = nd.Result()
    ends[1].endpoint.receive(received, None)
    attempts[0][2].send(nd.Result(), None)
    assert ends[1].reap() == [received]


def test_a_channel_that_never_met_a_peer(make_pair: Any) -> None:
    """Its Receives come back from a flush, in order, and everything goes away."""
    pair: Pair = make_pair(inbound_entries=64)
    results = [nd.Result() for _ in range(64)]
    end = pair.active
    end.endpoint.start_request_batch()
    for result in results:
        end.endpoint.receive(result, None)
    end.endpoint.flush()
    assert end.reap(64) == results
    assert {result.status for result in results} == {Status.CANCELED}
