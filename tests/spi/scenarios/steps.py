# SPDX-License-Identifier: Apache-2.0
"""What the programs of the scenarios have in common, in the words of the scenarios.

`wait` polls one result and sleeps in Notify when there is none, `connect` binds and ignores how
that ends, `shut` submits Disconnect and Deregister without waiting and releases everything in the
order that all of them use.
"""

import contextlib
from typing import Any

from shmnd import NdError, RequestType, Status
from spi.harness import WAIT, Buffer, End, outcome

HDR = 40
MAX = 4 << 20
PORT = 54350


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
