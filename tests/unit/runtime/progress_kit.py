# SPDX-License-Identifier: Apache-2.0
"""A server in another process, and a client, that the tests of progress share."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmnd.address import Address
from shmnd.broker.client import BrokerClient
from shmnd.runtime.progress import ProgressEngine
from unit.fakes import FakeAdapter, FakeDataPlane

WAIT = 30.0


# -- the real broker ------------------------------------------------------------------------------
@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"hub-{os.getpid()}-{abs(hash(request.node.name)) % 10**6}"


def join(namespace: str) -> ProgressEngine:
    """A progress engine with the real broker and the fake data plane."""
    return ProgressEngine(
        lambda new: BrokerClient(
            namespace,
            key=new.key,
            on_reconnect=new.on_reconnect,
        ),
        FakeDataPlane(),
    )


SERVER = """
import os, sys
sys.path[:0] = [{tests!r}, {root!r}]
from unit.fakes import FakeAdapter
from unit.runtime.progress_kit import join
from shmnd.connector import Connector
from shmnd.listener import Listener
adapter = FakeAdapter(join({namespace!r}), host="127.0.0.2")
listener = Listener(adapter)
listener.bind(("127.0.0.2", 0))
listener.listen()
print(listener.get_local_address()[1], flush=True)
kept = []
while True:
    connector, qp = Connector(adapter), adapter.queue_pair()
    listener.get_connection_request(connector).result()
    private = connector.get_private_data()
    try:
        if private == b"reject":
            connector.reject(b"as you wish")
        elif private == b"die":
            os._exit(7)
        else:
            connector.accept(qp, 0, 0, private)
    except ConnectionAbortedError:
        pass
    kept.append((connector, qp))
"""


@pytest.fixture
def server(namespace: str) -> Iterator[tuple["subprocess.Popen[str]", Address]]:
    """A process with a listener, at the real broker."""
    tests = Path(__file__).parents[2]
    code = SERVER.format(tests=str(tests), root=str(tests.parent), namespace=namespace)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child, ("127.0.0.2", int(child.stdout.readline()))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def client(namespace: str) -> Iterator[FakeAdapter]:
    adapter = FakeAdapter(join(namespace))
    yield adapter
    adapter.close()
