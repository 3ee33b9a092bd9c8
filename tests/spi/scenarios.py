# SPDX-License-Identifier: Apache-2.0
"""The programs of the conformance scenarios, one function for each side.

They follow the scenarios line by line, with the names of the harness they describe: `wait` polls
one result and sleeps in Notify when there is none, `connect` binds and ignores how that ends,
`shut` submits Disconnect and Deregister without waiting and releases everything in the order that
all of them use. Where a program sleeps for five seconds so that the other one can do its part,
these wait for a signal that it has.
"""

import contextlib
import itertools
import struct
from typing import Any

from shmnd import AdapterFlag, NdError, OpFlag, RequestType, Status
from spi.harness import LOCAL, REMOTE, WAIT, Buffer, End, final, nd_error, outcome

HDR = 40
MAX = 4 << 20
PORT = 54350

_DESCRIPTOR = struct.Struct("<QQI4x")  # base, length, token: 24 bytes
_PEER_INFO = struct.Struct("<IIQ")  # token, read limit, address: 16 bytes


# The words of the scenarios


def listen(end: End, port: int = PORT) -> None:
    end.listener.bind((end.host, port))
    end.listener.listen(0)
    end.signal("listening")


def get_connection_request(end: End) -> None:
    end.listener.get_connection_request(end.connector).result(timeout=2 * WAIT)


def connect(
    end: End,
    inbound: int,
    outbound: int,
    data: bytes = b"",
    expected: Status = Status.SUCCESS,
    *,
    signal: str = "listening",
    to: str = "",
) -> None:
    if signal:
        end.await_signal(signal)
    with contextlib.suppress(NdError):
        end.connector.bind((end.host, 0))
    address = (to or end.host, PORT)
    status = outcome(end.connector.connect, end.qp, address, inbound, outbound, data)
    assert status == expected, status.name


def complete_connect(end: End) -> None:
    end.connector.complete_connect().result(timeout=WAIT)


def accept(
    end: End,
    inbound: int,
    outbound: int,
    data: bytes = b"",
    expected: Status = Status.SUCCESS,
) -> None:
    status = outcome(end.connector.accept, end.qp, inbound, outbound, data)
    assert status == expected, status.name


def wait(end: End, expected: Status = Status.SUCCESS) -> Any:
    while not (results := end.cq.get_results(1)):
        end.cq.notify().result(timeout=WAIT)
    assert results[0].status == expected, results[0].status
    return results[0]


def bind_window(end: End, buffer: Buffer, length: int, flags: int) -> Any:
    window = end.adapter.create_memory_window()
    end.qp.bind(buffer.mr, window, buffer.address, length, flags=flags)
    assert wait(end).request_type == RequestType.BIND
    return window


def shut(end: End, *buffers: Buffer) -> None:
    with contextlib.suppress(NdError):
        end.connector.disconnect()
    for buffer in buffers:
        with contextlib.suppress(NdError):
            buffer.mr.deregister()
    release(end, *buffers)


def release(end: End, *buffers: Buffer) -> None:
    end.forget("listener")
    for buffer in buffers:
        buffer.mr.close()
    for name in ("cq", "qp", "connector", "file"):
        end.forget(name)
    end.adapter.close()


# 1 NdConnClose


def conn_close_server(end: End) -> None:
    buffer = end.memory(HDR + MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    accept(end, 0, 0, expected=Status.CONNECTION_REFUSED)
    end.signal("refused")
    shut(end, buffer)


def conn_close_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    end.connector.close()
    end.await_signal("refused")
    release(end, buffer)


# 2 NdConnReject


def conn_reject_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    assert end.connector.reject(b"") is None
    end.await_signal("refused")
    shut(end, buffer)


# 3 NdConnListenClosing


def listen_closing_server(end: End) -> None:
    end.memory(HDR + MAX + 1, LOCAL)
    assert end.qp is not None
    listen(end)
    end.listener.close()
    end.signal("closed")
    end.await_signal("refused")


def listen_closing_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1, expected=Status.CONNECTION_REFUSED, signal="closed")
    end.signal("refused")
    shut(end, buffer)


# 4 NdDualConnection


def dual_connection_server(end: End) -> None:
    buffer = end.memory(HDR + MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    accepting = end.connector.accept(end.qp, 1, 1)
    end.await_signal("checked")
    assert end.still_pending(accepting)
    end.signal("go")
    assert final(accepting) == Status.CONNECTION_REFUSED
    shut(end, buffer)


def dual_connection_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    status = outcome(end.connector.bind, (end.host, 0))
    assert status == Status.ADDRESS_ALREADY_ASSOCIATED
    status = outcome(end.connector.connect, end.qp, (end.host, PORT))
    assert status == Status.CONNECTION_ACTIVE
    end.signal("checked")
    end.await_signal("go")
    release(end, buffer)


# 7 NdInvalidRead, 8 NdInvalidWrite


def invalid_access_server(end: End, request: str) -> None:
    buffer = end.memory(HDR + MAX if request == "read" else MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(buffer.sge(0, 24))
    accept(end, 1, 1)
    wait(end)
    base, _, token = _DESCRIPTOR.unpack(buffer.get(24))
    end.await_signal("invalidated")
    getattr(end.qp, request)(buffer.raw_sge(0, HDR + MAX + 1), base, token)
    wait(end, Status.ACCESS_VIOLATION)
    shut(end, buffer)


def invalid_access_client(end: End) -> None:
    buffer = end.memory(HDR + MAX, REMOTE)
    connect(end, 1, 1)
    complete_connect(end)
    window = bind_window(end, buffer, MAX, OpFlag.ALLOW_WRITE | OpFlag.ALLOW_READ)
    buffer.put(_DESCRIPTOR.pack(buffer.address, MAX, window.remote_token))
    end.qp.receive(None)
    end.qp.send(buffer.sge(0, 24))
    assert wait(end).request_type == RequestType.SEND
    end.qp.invalidate(window)
    assert wait(end).request_type == RequestType.INVALIDATE
    end.signal("invalidated")
    assert wait(end, Status.CANCELED).request_type == RequestType.RECEIVE
    shut(end, buffer)


# 9 NdLargePrivateData


def large_private_data_server(end: End) -> None:
    buffer = end.memory(HDR + MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(None)
    limit = end.adapter.query().max_callee_data
    accept(end, 1, 1, bytes(limit + 1), Status.INVALID_BUFFER_SIZE)
    accept(end, 1, 1, bytes(limit))
    wait(end)
    shut(end, buffer)


def large_private_data_client(end: End) -> None:
    buffer = end.memory(MAX, REMOTE)
    limit = end.adapter.query().max_caller_data
    connect(end, 1, 1, bytes(limit + 1), Status.INVALID_BUFFER_SIZE)
    connect(end, 1, 1, bytes(limit), signal="")
    complete_connect(end)
    end.qp.send(None)
    wait(end)
    shut(end, buffer)


# 11 NdMRDeregister


def mr_deregister_server(end: End) -> None:
    buffer = end.memory(HDR + MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    accept(end, 1, 1)
    window = bind_window(end, buffer, MAX, 0)  # a dropped window is an unbound one
    assert outcome(buffer.mr.deregister) == Status.DEVICE_BUSY
    end.signal("busy")
    shut(end, buffer)
    window.close()


def mr_deregister_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    complete_connect(end)
    end.await_signal("busy")
    shut(end, buffer)


# 13 NdOverRead, 14 NdOverWrite


def over_access_server(end: End, request: str) -> None:
    buffer = end.memory(HDR + MAX + 1, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(buffer.sge(0, 24))
    accept(end, 1, 1)
    wait(end)
    base, _, token = _DESCRIPTOR.unpack(buffer.get(24))
    getattr(end.qp, request)(buffer.sge(), base, token)
    wait(end, Status.ACCESS_VIOLATION)
    end.signal("violated")
    shut(end, buffer)


def over_access_client(end: End) -> None:
    buffer = end.memory(MAX, REMOTE)
    connect(end, 1, 1)
    complete_connect(end)
    window = bind_window(end, buffer, MAX, OpFlag.ALLOW_WRITE | OpFlag.ALLOW_READ)
    buffer.put(_DESCRIPTOR.pack(buffer.address, MAX, window.remote_token))
    end.qp.send(buffer.sge(0, 24))
    wait(end)
    end.await_signal("violated")
    shut(end, buffer)


# 17 NdSendNoReceive


def send_no_receive_server(end: End) -> None:
    buffer = end.memory(HDR + MAX + 1, LOCAL)
    listen(end)
    get_connection_request(end)
    accept(end, 1, 1)
    end.await_signal("timed out")
    assert end.cq.get_results(1) == []
    shut(end, buffer)


def send_no_receive_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    complete_connect(end)
    end.qp.send(buffer.sge())
    wait(end, Status.IO_TIMEOUT)
    end.signal("timed out")
    shut(end, buffer)


# 18 NdReceiveConnClosed


def receive_conn_closed_server(end: End) -> None:
    buffer = end.memory(HDR + MAX + 1, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(buffer.sge(0, HDR + MAX))
    accept(end, 1, 1)
    wait(end, Status.CANCELED)
    shut(end, buffer)


def receive_conn_closed_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    complete_connect(end)
    shut(end, buffer)


# 19 NdWriteViolation


def write_violation_server(end: End) -> None:
    buffer = end.memory(HDR + MAX, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(buffer.sge(0, 24))
    accept(end, 1, 1)
    wait(end)
    base, _, token = _DESCRIPTOR.unpack(buffer.get(24))
    end.qp.write(buffer.sge(0, MAX), base, token)
    wait(end, Status.ACCESS_VIOLATION)
    shut(end, buffer)


def write_violation_client(end: End) -> None:
    buffer = end.memory(MAX, LOCAL)
    connect(end, 1, 1)
    complete_connect(end)
    window = bind_window(end, buffer, MAX, OpFlag.ALLOW_READ)
    buffer.put(_DESCRIPTOR.pack(buffer.address, MAX, window.remote_token))
    end.qp.receive(None)
    end.qp.send(buffer.sge(0, 24))
    assert wait(end).request_type == RequestType.SEND
    wait(end, Status.CANCELED)
    untouched = buffer.get(MAX - 24, 24)
    assert untouched == bytes([untouched[0]]) * len(untouched)
    shut(end, buffer)


# ndmval: undersized Receive


def ndmval_server(end: End) -> Status:
    buffer = end.memory(1023, LOCAL)
    listen(end)
    get_connection_request(end)
    end.qp.receive(buffer.sge())
    accept(end, 0, 0)
    (received,) = end.reap()
    return Status(received.status)


def ndmval_client(end: End) -> Status:
    buffer = end.memory(1024, LOCAL)
    connect(end, 0, 0)
    complete_connect(end)
    end.qp.send(buffer.sge())
    (sent,) = end.reap()
    shut(end, buffer)
    return Status(sent.status)


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
    window = bind_window(end, buffer, buffer.length, OpFlag.ALLOW_WRITE)
    buffer.put(_PEER_INFO.pack(window.remote_token, 0, buffer.address), at_info)
    end.qp.send(buffer.sge(at_info, 16))
    kinds = {wait(end).request_type for _ in range(2)}
    assert kinds == {RequestType.SEND, RequestType.RECEIVE}
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
