# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within `Server.accept` costs no connection that is complete."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import shmnd
from interrupting import inside, interrupted
from processes.messages.kit import LIMIT


@pytest.fixture
def server() -> Iterator[shmnd.Server]:
    with shmnd.listen() as server:
        yield server


def connected(server: shmnd.Server, pool: ThreadPoolExecutor) -> shmnd.Connection:
    """Return the client's end of a connection that the server has accepted and not returned."""
    connecting = pool.submit(shmnd.connect, server.address, timeout=LIMIT)
    while not server._arrivals:
        server._look("Server.accept")
        server.adapter._engine.progress()
    while not connecting.done():
        server.adapter._engine.progress()
    return connecting.result()


def accept_into(got: list[shmnd.Connection], server: shmnd.Server) -> None:
    """Accept in one step for handlers: the connection is in the list, or was not returned."""
    got.extend(map(server.accept, (LIMIT,)))


def test_a_connection_that_is_complete_outlives_a_handler_that_raises(
    server: shmnd.Server,
) -> None:
    within = inside(shmnd)
    with ThreadPoolExecutor(1) as pool:
        for at in range(10_000):
            with connected(server, pool) as near:
                got: list[shmnd.Connection] = []
                came = interrupted(at, partial(accept_into, got, server), within)
                with got[0] if got else server.accept(LIMIT) as far:
                    near.send_bytes(b"%d" % at, LIMIT)
                    assert far.recv_bytes(LIMIT) == b"%d" % at
            if not came:
                break
    assert 20 < at < 9_999, "it came to every place of the call"
    assert server._shared._users == 1, "none is counted twice, or not at all"


def test_a_close_ends_a_connection_that_was_made_and_not_returned(server: shmnd.Server) -> None:
    with ThreadPoolExecutor(1) as pool, connected(server, pool) as near:
        arrival, _ = server._look("Server.accept")
        assert arrival is not None
        assert arrival.made[0].connected
        server.close()
        with pytest.raises(EOFError):
            near.recv_bytes(LIMIT)
        assert arrival.made[0].closed
        assert server._shared._users == 0
