# SPDX-License-Identifier: Apache-2.0
"""The unit tests of the interface: which status ends which request, a function for each side.

They follow the scenarios line by line. Where a program sleeps for five seconds so that the other
one can do its part, these wait for a signal that it has.
"""

import struct

from shmnd import OpFlag, RequestType, Status
from spi.harness import LOCAL, REMOTE, End, final, outcome
from spi.scenarios.steps import (
    HDR,
    MAX,
    PORT,
    accept,
    bind_window,
    complete_connect,
    connect,
    get_connection_request,
    listen,
    release,
    shut,
    wait,
)

_DESCRIPTOR = struct.Struct("<QQI4x")  # base, length, token: 24 bytes

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
