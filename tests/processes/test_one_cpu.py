# SPDX-License-Identifier: Apache-2.0
"""Two processes that share one CPU: the one that waits lets the other one run."""

import os

import pytest

from processes.kit import Child

SERVER = """
import os
os.sched_setaffinity(0, {CPU})
server = shmnd.listen()
say(server.address)
connection = server.accept(60)
connection.receive_cq.spin = SPIN
try:
    while True:
        connection.send_bytes(connection.recv_bytes(60))
except EOFError:
    pass
"""

WAITING = """
import os, time
os.sched_setaffinity(0, {CPU})
connection = shmnd.connect(tuple(hear()))
connection.receive_cq.spin = SPIN
for number in range(220):
    if number == 20:
        began = time.process_time()
    connection.send_bytes(b"40")
    connection.recv_bytes(60)
say(time.process_time() - began)
connection.close()
"""

AWAITING = """
import asyncio, os, time
os.sched_setaffinity(0, {CPU})
async def run():
    connection = await shmnd.aconnect(tuple(hear()))
    connection.receive_cq.spin = SPIN
    for number in range(220):
        if number == 20:
            began = time.process_time()
        await connection.asend_bytes(b"40")
        await connection.arecv_bytes(60)
    say(time.process_time() - began)
    connection.close()
asyncio.run(run())
"""


@pytest.mark.parametrize("program", [WAITING, AWAITING], ids=["wait", "asyncio"])
def test_a_waiter_leaves_the_cpu_of_both_to_its_peer(program: str) -> None:
    """Each of 200 waits may poll for 20 ms, in which the answer cannot come: 4 s of the CPU."""
    given = f"CPU, SPIN = {min(os.sched_getaffinity(0))}, 0.02\n"
    with Child(given + SERVER) as server, Child(given + program) as client:
        client.say(server.hear())
        used = client.hear()
        assert client.end() == 0
        assert server.end() == 0
    assert used < 0.2, "it polled while its peer could not run"
