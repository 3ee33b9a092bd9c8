# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within the `close` of a connection, or of a server.

The next `close` ends what the first one has left.
"""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import shmnd
from interrupting import Alarm, handled, inside, interrupted
from processes.messages.kit import LIMIT, accepted_unreturned

Close = Callable[[], None]
Within = Callable[[str], bool]
End = Callable[[int, Close, Within], bool]


def of_server(path: str) -> bool:
    """Return whether a file is of the close of a server, not of the parts that it closes."""
    return path.endswith(("server.py", "endpoints.py", "weak.py"))


def raising(at: int, close: Close, within: Within) -> bool:
    """Interrupt a close at a place, and close again; return whether it came there."""
    came = interrupted(at, close, within, Alarm)
    close()
    return came


def closing(at: int, close: Close, within: Within) -> bool:
    """Have a handler call the same close at a place of it; return whether it came there."""
    return handled(at, close, within, close)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def is_gone(adapter: shmnd.Adapter) -> bool:
    return adapter._closed and not adapter._half_closed


def check_connection(near: shmnd.Connection, far: shmnd.Connection, end: End, at: int) -> bool:
    """End a connection at a place, and check that all of it has ended."""
    far.send_bytes(b"unread", LIMIT)
    near.send_bytes(b"last", LIMIT)
    near.fileno()
    came = end(at, near.close, inside(shmnd))
    assert far.recv_bytes(LIMIT) == b"last"
    with pytest.raises(EOFError):
        far.recv_bytes(LIMIT)
    assert near.closed
    assert near._waiter is not None
    assert near._waiter._readiness is None, f"a descriptor is open, interrupted at {at}"
    parts = (near.cq, near.receive_cq, near.region)
    assert [each._closed for each in parts] == [True] * 3, f"interrupted at {at}"
    assert is_gone(near.adapter), f"interrupted at {at}"
    return came


@pytest.mark.slow
@pytest.mark.parametrize(("end", "step"), [(raising, 1), (closing, 3)])
def test_a_connection_whose_close_is_interrupted_ends(
    pool: ThreadPoolExecutor, end: End, step: int
) -> None:
    with shmnd.listen() as server:
        for at in itertools.count(0, step):
            asking = pool.submit(shmnd.connect, server.address, timeout=LIMIT)
            with server.accept(LIMIT) as far, asking.result(LIMIT) as near:
                came = check_connection(near, far, end, at)
            if not came:
                break
    assert at > 20, "there were places to interrupt"


def check_server(server: shmnd.Server, pool: ThreadPoolExecutor, end: End, at: int) -> bool:
    """End a server at a place, and check that all of it has ended."""
    server.fileno()
    with accepted_unreturned(server, pool) as near:
        arrival, _ = server._poll("Server.accept")
        assert arrival is not None, "the connection is made, and no call has returned it"
        came = end(at, server.close, of_server)
        with pytest.raises(EOFError):
            near.recv_bytes(LIMIT)
    assert arrival.made[0].closed
    assert server.closed
    assert server._waiting is None
    assert server._waiter is not None
    assert server._waiter._readiness is None, f"a descriptor is open, interrupted at {at}"
    assert is_gone(server.adapter), f"interrupted at {at}"
    return came


@pytest.mark.slow
@pytest.mark.parametrize(("end", "step"), [(raising, 2), (closing, 5)])
def test_a_server_whose_close_is_interrupted_ends(
    pool: ThreadPoolExecutor, end: End, step: int
) -> None:
    address = ("127.0.0.1", 0)
    for at in itertools.count(0, step):
        with shmnd.listen(address) as server:  # the one before has left the port
            address = server.address
            if not check_server(server, pool, end, at):
                break
    assert at > 20, "there were places to interrupt"
