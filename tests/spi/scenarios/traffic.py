# SPDX-License-Identifier: Apache-2.0
"""The example programs of the interface: streams and ping-pongs, a function for each side."""

import itertools
import struct
from typing import Any

from shmnd import AdapterFlag, OpFlag, RequestType, Status
from spi.harness import LOCAL, WAIT, Buffer, End, nd_error
from spi.scenarios.steps import (
    HDR,
    MAX,
    accept,
    bind_window,
    complete_connect,
    connect,
    get_connection_request,
    listen,
    shut,
    wait,
)

_PEER_INFO = struct.Struct("<IIQ")  # token, read limit, address: 16 bytes

# ndping: a stream with credits


def pieces(buffer: Buffer, size: int, count: int) -> list[Any]:
    """Split a message as the programs do: 40 bytes each, and the rest added to the last."""
    count = min(count, max(size // 40, 1))
    cuts = [40 * number for number in range(count)] + [size]
    return [buffer.sge(a, b - a) for a, b in itertools.pairwise(cuts)]


def ndping_server(end: End, depth: int) -> int:
    """Count messages, re-post every Receive, and grant credits; ends when it is canceled."""
    buffer, grant = end.memory(MAX + HDR, LOCAL), end.memory(1, LOCAL)
    for _ in range(depth):
        end.qp.receive(buffer.sge(), "message")
    listen(end)
    get_connection_request(end)
    accept(end, 0, 0, struct.pack("<I", depth - 1))
    messages = uncredited = 0
    while True:
        result = wait_any(end)
        if result.status == Status.CANCELED:
            break
        assert result.status == Status.SUCCESS, result.status
        if result.request_type != RequestType.RECEIVE:
            continue
        messages += 1
        uncredited += 1
        end.qp.receive(buffer.sge(), "message")
        if not result.bytes_transferred:
            end.qp.send(None)
        if uncredited == depth // 2:
            end.qp.send(grant.sge())
            uncredited = 0
    shut(end, buffer, grant)
    return messages


def wait_any(end: End) -> Any:
    while not (results := end.cq.get_results(1)):
        end.cq.notify().result(timeout=WAIT)
    return results[0]


class _PingClient:
    """The sending side of ndping: credits, a pipeline, and a SYNC at the end of each round."""

    def __init__(self, end: End, depth: int) -> None:
        self.end = end
        self.depth = depth
        self.buffer = end.memory(MAX + HDR, LOCAL)
        self.in_flight = self.receives = self.sent = 0
        self.credits = 0
        self.answered = False

    def reap(self) -> None:
        result = wait(self.end)
        if result.request_type == RequestType.SEND:
            self.in_flight -= 1
            return
        self.receives -= 1
        if result.bytes_transferred:
            self.credits += self.depth // 2
            self.post_receives()
        else:
            self.answered = True

    def post_receives(self) -> None:
        while self.receives < 2:
            self.end.qp.receive(self.buffer.sge(0, 1))
            self.receives += 1

    def send(self, sge: Any, flags: int = 0) -> None:
        while not self.credits or self.in_flight == self.depth:
            self.reap()
        self.end.qp.send(sge, flags=flags)
        self.credits -= 1
        self.in_flight += 1
        self.sent += 1

    def round(self, size: int, iterations: int, sge_count: int) -> None:
        self.post_receives()
        self.answered = False
        flags = OpFlag.INLINE if size < self.end.options.inline else OpFlag(0)
        for _ in range(iterations):
            self.send(pieces(self.buffer, size, sge_count), flags)
        self.send(None)
        while not self.answered or self.in_flight:
            self.reap()


def ndping_client(end: End, depth: int, sizes: list[int], iterations: int, sge: int) -> int:
    client = _PingClient(end, depth)
    connect(end, 0, 0)
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        end.connector.get_private_data_into(None)
    room = bytearray(caught.value.required)
    assert end.connector.get_private_data_into(room) == 4
    client.credits = struct.unpack("<I", room)[0]
    complete_connect(end)
    for size in sizes:
        client.round(size, iterations, sge)
    shut(end, client.buffer)
    return client.sent


# ndpingpong: strict turns


def ndpingpong_server(end: End, sizes: list[int], rounds: int) -> None:
    buffer = end.memory(MAX + HDR, LOCAL)
    for _ in range(16):
        end.qp.receive(buffer.sge())
    listen(end)
    get_connection_request(end)
    accept(end, 0, 0)
    for size in sizes:
        for _ in range(rounds):
            assert turn(end, RequestType.RECEIVE).bytes_transferred == size
            end.qp.receive(buffer.sge())
            end.qp.send(buffer.sge(0, size))
            turn(end, RequestType.SEND)
    end.signal("played")
    wait(end, Status.CANCELED)
    shut(end, buffer)


def turn(end: End, kind: RequestType) -> Any:
    result = wait(end)
    assert result.request_type == kind
    return result


def ndpingpong_client(end: End, sizes: list[int], rounds: int) -> None:
    buffer = end.memory(MAX + HDR, LOCAL)
    for _ in range(16):
        end.qp.receive(buffer.sge())
    connect(end, 0, 0)
    complete_connect(end)
    for size in sizes:
        for _ in range(rounds):
            end.qp.send(buffer.sge(0, size))
            turn(end, RequestType.SEND)
            assert turn(end, RequestType.RECEIVE).bytes_transferred == size
            end.qp.receive(buffer.sge())
    end.await_signal("played")
    shut(end, buffer)


# ndrping: a stream of Reads or Writes; the passive side sends first


def ndrping_server(end: End, request: str) -> bytes:
    assert AdapterFlag.IN_ORDER_DMA_SUPPORTED in AdapterFlag(end.info.adapter_flags)
    buffer = end.memory(MAX + HDR, 0x3 if request == "read" else 0x5)
    buffer.put(b"the bytes to be read", 100)
    end.qp.receive(buffer.sge())
    listen(end)
    get_connection_request(end)
    limit = end.info.max_inbound_read_limit
    accept(end, limit, 0)
    right = OpFlag.ALLOW_READ if request == "read" else OpFlag.ALLOW_WRITE
    window = bind_window(end, buffer, MAX + HDR, right)
    info = _PEER_INFO.pack(window.remote_token, limit, buffer.address)
    buffer.put(info)
    end.qp.send(buffer.sge())
    turn(end, RequestType.SEND)
    turn(end, RequestType.RECEIVE)
    seen = buffer.get(20, 100)
    shut(end, buffer)
    return seen


def ndrping_client(
    end: End, request: str, sizes: list[int], iterations: int, depth: int, sge: int
) -> bytes:
    buffer = end.memory(MAX + HDR, LOCAL)
    end.qp.receive(buffer.sge())
    connect(end, 0, depth if request == "read" else 0)
    complete_connect(end)
    assert turn(end, RequestType.RECEIVE).bytes_transferred == MAX + HDR
    token, limit, address = _PEER_INFO.unpack(buffer.get(16))
    depth = min(depth, limit) if request == "read" else depth
    buffer.put(b"the written messages" if request == "write" else bytes(20), 100)
    for size in sizes:
        in_flight = 0
        inline = request == "write" and size < end.options.inline
        flags = OpFlag.INLINE if inline else OpFlag(0)
        for _ in range(iterations):
            if in_flight == depth:
                turn(end, RequestType[request.upper()])
                in_flight -= 1
            getattr(end.qp, request)(pieces(buffer, size, sge), address, token, flags=flags)
            in_flight += 1
        for _ in range(in_flight):
            turn(end, RequestType[request.upper()])
    seen = buffer.get(20, 100)
    end.qp.send(None)
    turn(end, RequestType.SEND)
    shut(end, buffer)
    return seen


# ndrpingpong: Writes that are seen by a target that makes no call


def ndrpingpong(end: End, *, first: bool, sizes: list[int], rounds: int) -> None:
    buffer = end.memory(MAX + HDR + 32, 0x5)
    at_info = MAX + HDR  # 16 bytes to send, 16 to receive
    end.qp.receive(buffer.sge(at_info + 16, 16))
    if first:
        connect(end, 0, 0)
        complete_connect(end)
    else:
        end.qp.receive(None)
        listen(end)
        get_connection_request(end)
        accept(end, 0, 0)
    window = end.adapter.create_memory_window()
    end.qp.bind(buffer.mr, window, buffer.address, buffer.length, flags=OpFlag.ALLOW_WRITE)
    buffer.put(_PEER_INFO.pack(window.remote_token, 0, buffer.address), at_info)
    end.qp.send(buffer.sge(at_info, 16))
    kinds = {wait(end).request_type for _ in range(3)}  # the peer's message may be the first
    assert kinds == {RequestType.BIND, RequestType.SEND, RequestType.RECEIVE}
    token, _, address = _PEER_INFO.unpack(buffer.get(16, at_info + 16))
    for size in sizes:
        for number in range(rounds):
            mine, theirs = (b"A", b"B") if first else (b"B", b"A")
            mine, theirs = (mine, theirs) if number % 2 else (mine.lower(), theirs.lower())
            if not first:
                buffer.spin_until(size - 1, theirs[0])
            buffer.put(mine, size - 1)
            end.qp.write(buffer.sge(0, size), address, token)
            assert wait(end).request_type == RequestType.WRITE
            if first:
                buffer.spin_until(size - 1, theirs[0])
    if first:
        end.qp.send(None)
        wait(end)
    else:
        wait(end)
    shut(end, buffer)


def ndrpingpong_server(end: End, sizes: list[int], rounds: int) -> None:
    ndrpingpong(end, first=False, sizes=sizes, rounds=rounds)


def ndrpingpong_client(end: End, sizes: list[int], rounds: int) -> None:
    ndrpingpong(end, first=True, sizes=sizes, rounds=rounds)
