# SPDX-License-Identifier: Apache-2.0
"""Daemon threads that use a connection when the interpreter ends."""

import os
import subprocess
import sys

import pytest

WAYS = {
    "waits": "target = connection.recv_bytes",
    "asks": """
def target():
    while True:
        connection.poll()
""",
    "sends and receives": """
def target():
    while True:
        connection.send_bytes(b"x" * 5000)
        connection.recv_bytes()
""",
    "runs an event loop": """
async def echo():
    while True:
        await connection.asend_bytes(b"x")
        await connection.arecv_bytes()
def target():
    asyncio.run(echo())
""",
}

PROGRAM = """
import asyncio, atexit, threading, time
@atexit.register  # first, so it runs last: the connections are closed by then
def after():
    time.sleep(0.2)  # in which the threads may print
import shmnd

with shmnd.listen() as server:
    made = []
    connecting = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
    connecting.start()
    other = server.accept(timeout=20)
    connecting.join()
connection = made.pop()
def answer():
    for message in other:
        other.send_bytes(message)
"""

LAST = """
for function in (answer, target):
    threading.Thread(target=function, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_daemon_thread_prints_nothing_when_the_interpreter_ends(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + WAYS[way] + LAST],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
        cwd="/",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
