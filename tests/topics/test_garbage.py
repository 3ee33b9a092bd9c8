# SPDX-License-Identifier: Apache-2.0
"""Objects that end as garbage, in cycles with what they gave out: no crash, and nothing is kept."""

import subprocess
import sys
from typing import Final

import pytest

from topics.taking import PATIENCE

HEAD: Final = """
import gc
import numpy as np
import shmnd
from shmnd import ipc

gc.disable()
"""

TOPICS: Final = """
def drop(how):
    pub, sub = ipc.Publisher("garbage", "u1"), ipc.Subscriber("garbage", "u1")
    kept = []
    for _ in range(3):
        pub.send(np.zeros(50_000, "u1"))
        sample = sub.receive(timeout=30)
        kept.append(sample)
        if how & 1:
            kept.append(sample.array)
    kept.append(sub)
    if how & 2:
        kept.append(pub)
    if how & 4:
        kept.append(pub.loan(100_000))
    if how & 8:
        kept.reverse()
    kept.append(kept)

for how in range(16):
    drop(how)
    gc.collect()
"""

HELD: Final = """
pub, sub = ipc.Publisher("garbage", "u1", slots=8), ipc.Subscriber("garbage", "u1")
for turn in range(100):
    pub.send(np.zeros(50_000, "u1"))
    cycle = [sub.receive(timeout=30), pub.loan(50_000)]
    if turn % 2:
        cycle.insert(0, cycle[0].array)
    cycle.append(cycle)
    del cycle
    gc.collect()
assert sub.held == 0
"""

KEPT: Final = """
import weakref

def publisher(how, kept):
    pub = ipc.Publisher("garbage", "u1")
    loan = pub.loan(50_000)
    array = loan.array
    array[:] = 7
    if how == "sent":
        loan.send()
    elif how == "dropped":
        loan.drop()
    else:
        loan.send(header=bytes(100_000))  # in another slot
    pub.on_slow = lambda slow: array
    kept.append(array)
    return weakref.ref(pub)

for how in ("sent", "dropped", "moved"):
    kept = []
    gone = publisher(how, kept)
    assert gone() is None, how
    assert kept[0].sum() == 350_000
    assert ipc.topics() == ()
"""

QUEUES: Final = """
def drop(how):
    queue = ipc.Queue()
    kept = [queue]
    for _ in range(5):
        queue.put({"array": np.zeros(30_000)})
        kept.append(queue.get(timeout=30))
    if how:
        kept.reverse()
    kept.append(kept)

for how in (0, 1):
    drop(how)
    gc.collect()
"""

OTHERS: Final = """
def drop(how):
    server, client = ipc.Server("garbage"), ipc.Client("garbage")
    board = ipc.Blackboard("garbage", {"pose": "6f8"})
    reader = ipc.BlackboardReader("garbage")
    notifier, listener = ipc.Notifier("garbage"), ipc.Listener("garbage")
    waits = ipc.WaitSet()
    waits.add(listener)
    waits.add(server)
    pending = client.send(np.zeros(50_000))
    request = next(iter(server))
    board["pose"] = np.arange(6.0)
    kept = [server, client, board, reader, notifier, listener, waits, pending, request]
    kept += [request.value, reader["pose"]]
    if how:
        kept.reverse()
    kept.append(kept)

for how in (0, 1):
    drop(how)
    gc.collect()
"""

CORE: Final = """
def drop(how):
    adapter = shmnd.open_adapter(memory_limit=100 << 20)
    queue = adapter.create_completion_queue(16)
    receives = adapter.create_shared_receive_queue(16)
    pair = adapter.create_queue_pair(queue, queue)
    memory = [adapter.allocate(4096), adapter.allocate(2 << 20), adapter.allocate(60 << 20)]
    region = adapter.create_memory_region()
    region.register(memory[1], 0)
    kept = [adapter, queue, receives, pair, memory, region]
    if how & 1:
        kept.reverse()
    if how & 2:
        kept.remove(adapter)
    kept.append(kept)

for how in range(4):
    drop(how)
    gc.collect()

adapter = shmnd.open_adapter(memory_limit=100 << 20)
for turn in range(10):
    cycle = [adapter.allocate(60 << 20)]
    if turn % 2:
        cycle.append(cycle[0][:5])
    cycle.append(cycle)
    del cycle
    gc.collect()
"""


@pytest.mark.parametrize("program", [TOPICS, HELD, KEPT, QUEUES, OTHERS, CORE])
def test_garbage_ends_in_any_order(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", HEAD + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
