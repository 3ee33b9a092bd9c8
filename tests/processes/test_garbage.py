# SPDX-License-Identifier: Apache-2.0
"""Objects that are dropped without `close`, in cycles through the contexts of their requests.

Each program runs in an interpreter of its own, so that all that it holds can be counted.
"""

import json
import os
import subprocess
import sys
from typing import Final

import pytest

from processes.kit import KIT, PRELUDE

END: Final = """
import gc, weakref
from shmnd import MrFlag, OpFlag, Status

def held():
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("memfd" in line for line in maps)

class End:
    "An adapter with a queue pair of its own."
    def __init__(self, srq=False):
        self.adapter = shmnd.open_adapter()
        self.cq = self.adapter.create_completion_queue(256)
        self.srq = self.adapter.create_shared_receive_queue(64) if srq else None
        if srq:
            self.qp = self.adapter.create_queue_pair_with_srq(self.cq, self.cq, self.srq)
        else:
            self.qp = self.adapter.create_queue_pair(self.cq, self.cq)
        self.memory = self.adapter.allocate(1 << 21)
        self.region = self.adapter.create_memory_region()
        self.region.register(
            self.memory, MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ
            | MrFlag.ALLOW_REMOTE_WRITE).result(20)
        self.connector = self.adapter.create_connector()

def connect(active, passive):
    listener = listening(passive.adapter)
    request = listener.get_connection_request(passive.connector)
    answer = active.connector.connect(active.qp, listener.get_local_address(), 8, 8)
    request.result(20)
    accepted = passive.connector.accept(passive.qp, 8, 8)
    answer.result(20)
    active.connector.complete_connect().result(20)
    accepted.result(20)
    return active, passive
"""

COLLECTED: Final = """
gc.disable()
class Bytes(bytearray):
    "A buffer that can have attributes."
class Holder:
    def __init__(self, *held):
        self.held = held
    def call(self):
        pass
first = shmnd.open_adapter()
def drop():
    one, peers = End(srq=SRQ), []
    if CONNECTED:
        peers.append(End())
        connect(*((one, *peers) if SENDS else (*peers, one)))
    qp, cq, region = one.qp, one.cq, one.region
    context = CONTEXT
    DO
    del context
    if SRQ:
        del qp
    objects = [one.qp, one.cq, one.adapter, one.region]
    del one
    return peers, [weakref.ref(each) for each in objects]
before = held()
peers, gone = drop()
for _ in range(3):  # the end of a queue pair completes its requests, to a queue that is garbage too
    gc.collect()
    first._engine.progress()
assert [each() for each in gone] == [None] * len(gone), [each() for each in gone]
if not peers:
    assert held() == before, (held(), before)
peers.clear()
gc.collect()
first._engine.settle()  # their descriptors go when the broker says that the ends have gone
gc.collect()
after = held()
assert after[0] <= before[0] + 1 and after[1] <= before[1], (after, before)
assert not gc.garbage
"""

CONTEXTS: Final = {
    "a tuple": "(qp, one)",
    "an attribute": "Holder(qp)",
    "a closure": "lambda: qp",
    "a bound method": "Holder(qp, cq).call",
    "the queue pair": "qp",
}

STATES: Final = {
    "a Receive, not connected": "one.qp.receive(region.sge(), context)",
    "a Receive": "one.qp.receive(region.sge(), context)  # CONNECTED",
    "a Receive of a shared queue": "one.srq.receive(region.sge(), (one.srq, context))  # SRQ",
    "a Send that waits": "one.qp.send(region.sge(0, 64), context)  # CONNECTED SENDS",
    "a long Send that waits": "one.qp.send(region.sge(), context)  # CONNECTED SENDS",
    "a silent Send that waits": """
    one.qp.send(region.sge(0, 64), context, flags=OpFlag.SILENT_SUCCESS)  # CONNECTED SENDS""",
    "a Send in a batch": """
    one.qp._begin_batch()
    one.qp.send(region.sge(0, 64), context)  # CONNECTED SENDS""",
    "a Receive of an open message": """
    one.qp.receive(region.sge(), context)  # CONNECTED
    peers[0].qp.send(peers[0].region.sge(), "sent")
    first._engine.progress()
    one.cq._gather()""",
    "a Bind": """
    peers[0].qp.receive(peers[0].region.sge())  # CONNECTED SENDS
    one.qp.send(region.sge(0, 64), "before it")
    window = one.adapter.create_memory_window()
    one.qp.bind(region, window, region.address, 64, context, flags=OpFlag.ALLOW_READ)
    del window""",
    "a window": """
    window = one.adapter.create_memory_window()  # CONNECTED
    window._set_invalidate_context((context, window))
    one.qp.bind(region, window, region.address, 64, "bound", flags=OpFlag.ALLOW_READ)
    one.cq.get_results()
    del window""",
    "a window that the peer invalidated": """
    window = one.adapter.create_memory_window()  # CONNECTED
    window._set_invalidate_context((context, window))
    one.qp.bind(region, window, region.address, 64, "bound", flags=OpFlag.ALLOW_READ)
    one.qp.receive(region.sge(), context)
    peers[0].qp._send_and_invalidate(peers[0].region.sge(0, 8), window.remote_token)
    one.cq.get_results(1)
    one.cq._gather()
    del window""",
    "a completion": """
    one.qp.receive(region.sge(), context)  # CONNECTED
    peers[0].qp.send(peers[0].region.sge(0, 64), "sent")
    one.cq._gather()""",
    "a result": """
    one.qp.receive(region.sge(), context)
    one.qp.flush()
    one.cq.results = one.cq.get_results()
    assert one.cq.results[0].status is Status.CANCELED""",
    "a buffer with attributes": """
    buffer = Bytes(100)
    buffer.region = one.adapter.create_memory_region()
    buffer.region.register(buffer, MrFlag.ALLOW_LOCAL_WRITE).result(20)
    buffer.context = context
    del buffer""",
}

FORKED: Final = """
class Holder:
    def __init__(self, *held):
        self.held = held
one, two = connect(End(), End())
kept, shared = Holder(1), Holder(2)
one.qp.receive(one.region.sge(), kept)
one.qp.receive(one.region.sge(), (one.qp, one, shared))
two.qp.send(two.region.sge(), two)
two.qp.send(two.region.sge(0, 8), (two, shared))
gone = [weakref.ref(each) for each in (one.qp, two.qp, one.cq)]
child = os.fork()
if child == 0:
    del one, two
    gc.collect()
    # What only the cycles held is gone, and what the program holds as well is untouched.
    good = [each() for each in gone] == [None] * 3 and (kept.held, shared.held) == ((1,), (2,))
    os._exit(0 if good and (sys.getrefcount(kept), sys.getrefcount(shared)) == (2, 2) else 1)
assert os.waitpid(child, 0)[1] == 0
results = []
while len(results) < 4:
    results += one.cq.get_results() + two.cq.get_results()
assert [each.status for each in results] == [Status.SUCCESS] * 4
assert {id(each.request_context) for each in results} > {id(kept), id(two)}
"""

TAKEN: Final = """
class Context:
    "In a cycle with its queue pair."
gc.disable()
gc.set_threshold(1, 1, 1)
def drop():
    living, one, peers = End(), End(), [End(), End()]
    context = Context()
    context.word = "untouched"
    qp = living.adapter.create_queue_pair(living.cq, living.cq, context=context)
    context.held = one.qp, one.connector = qp, living.adapter.create_connector()
    connect(one, peers[0])
    connect(living, peers[1])
    for pair, peer in ((qp, peers[0]), (living.qp, peers[1])):
        for number in range(8):
            pair.receive(living.region.sge(8 * number, 8), number)
            peer.qp.send(peer.region.sge(0, 8), number)
    return living, peers
living, peers = drop()
living.cq.get_results(1)  # the next call begins with the other queue pair
take = living.cq.get_results
gc.enable()
results = take()  # collects the queue pair whose completions it holds
gc.disable()
gone = [each.queue_pair_context for each in results if each.queue_pair_context is not None]
assert [each.word for each in gone] == ["untouched"] * 7, results
"""

STRESS: Final = """
gc.set_threshold(1, 1, 1)
lost, number = [], 0
class Context:
    "In a cycle of its own, so that only the engine keeps it alive."
    __slots__ = ("me", "value", "known", "__weakref__")
    def __init__(self, value):
        self.me, self.value, self.known = self, value, False
    def __del__(self):
        if not self.known:
            lost.append(self.value)
import random
chance = random.Random(SEED)
outstanding = {}
def context():
    global number
    number += 1
    made = Context(number)
    outstanding[number] = weakref.ref(made)
    return made
def references_here():
    "Of a local variable and an argument; CPython 3.14 borrows one of the two."
    given = object()
    return sys.getrefcount(given)
HERE = references_here()
def take(results):
    for result in results:
        given = result.request_context
        if not isinstance(given, Context):
            continue
        assert outstanding.pop(given.value)() is given
        # Its own, the result's, and those here; the window has one, too.
        wanted = HERE + (3 if result.request_type is shmnd.RequestType.INVALIDATE else 2)
        assert sys.getrefcount(given) == wanted, (sys.getrefcount(given), result)
        given.known, given.me = True, None
silent = []
for turn in range(6):
    one, two = connect(End(srq=turn & 1), End())
    ends = [one, two]
    window = one.adapter.create_memory_window()
    window._set_invalidate_context(context())
    one.qp.bind(one.region, window, one.region.address, 64, context(), flags=OpFlag.ALLOW_READ)
    for step in range(150):
        end = chance.choice(ends)
        length = chance.choice((1, 100, 5000, 300_000))
        try:
            match chance.randrange(9):
                case 0 | 1 | 2:
                    (end.srq or end.qp).receive(end.region.sge(), context())
                case 3 | 4:
                    end.qp.send(end.region.sge(0, length), context())
                case 5:
                    silent.append(number + 1)
                    end.qp.send(end.region.sge(0, length), context(), flags=OpFlag.SILENT_SUCCESS)
                case 6:
                    other = two if end is one else one
                    end.qp.read(end.region.sge(0, length), other.region.address,
                                other.region.remote_token, context())
                case 7 if step > 100 and end is two:
                    two.qp._send_and_invalidate(
                        two.region.sge(0, 8), window.remote_token, context())
                case _:
                    take(end.cq.get_results(chance.randrange(9)))
        except shmnd.NdError:  # refused: its queue is full, or the connection has ended
            outstanding.pop(number)().known = True
        if step == 120 and turn % 3 == 1:
            end.qp.flush()
    if turn % 3 == 2:
        end.qp.close()
    else:
        one.connector.disconnect().result(20)
    for end in ends:
        take(end.cq.get_results(999))
    last = [reference() for reference in outstanding.values()]
    for made in last:  # those of silent Sends are gone, those of a shared queue end with it
        if made is not None:
            made.known = True
    del made, last, end, one, two, ends, window
    outstanding.clear()
gc.set_threshold(700, 10, 10)
assert set(lost) <= set(silent), (lost, silent)
gc.collect()
assert not gc.garbage
"""


def run(program: str) -> None:
    environment = {**os.environ, "KIT_PATH": json.dumps(sys.path), "PYTHONDEVMODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + KIT + END + program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def program(state: str, context: str) -> str:
    filled = COLLECTED.replace("DO\n", state.strip() + "\n").replace("CONTEXT", context)
    for choice in ("CONNECTED", "SENDS", "SRQ"):
        filled = filled.replace(f"if {choice}", f"if {choice in state}")
        filled = filled.replace(f"={choice}", f"={choice in state}")
    return filled


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_cycle_through_any_context_is_collected(context: str) -> None:
    run(program(STATES["a Receive"], CONTEXTS[context]))


@pytest.mark.parametrize("state", STATES)
def test_a_cycle_through_any_request_is_collected(state: str) -> None:
    run(program(STATES[state], CONTEXTS["a tuple"]))


def test_a_queue_pair_may_end_while_its_completions_are_taken() -> None:
    run(TAKEN)


def test_a_child_frees_a_cycle_and_nothing_that_is_in_use() -> None:
    run(FORKED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_context_is_freed_or_kept_while_the_collector_runs_all_the_time(seed: int) -> None:
    run(STRESS.replace("SEED", str(seed)))
