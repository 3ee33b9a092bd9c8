# SPDX-License-Identifier: Apache-2.0
"""Nothing that Python can call ends the interpreter, whatever is called with whatever."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.worlds import STATES

PROGRAM = Path(__file__).with_name("every_call.py")


def run(state: str, seed: int) -> None:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), state, str(seed)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, f"state {state}, seed {seed}:\n{ended.stderr[-6000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_no_call_ends_the_interpreter(state: str) -> None:
    run(state, 1)


def passes(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_calls_that_once_crashed_are_refused() -> None:
    program = """
import shmnd
from shmnd.ring import Link, NotifyCore, QueuePair, ReceiveCore
from shmnd.ring.shared_memory.arena import Block
with shmnd.open_adapter() as adapter:
    queue = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(queue, queue)
    calls = [pair._open, pair._detach, QueuePair.__new__(QueuePair).flush,
             lambda: pair.__init__(None, None, None, None, None, None, None),
             lambda: NotifyCore.__new__(NotifyCore)._arm_for(1),
             NotifyCore.__new__(NotifyCore).wait, NotifyCore.__new__(NotifyCore)._end_turns,
             lambda: NotifyCore.__new__(NotifyCore)._add_notify(None, 1),
             lambda: ReceiveCore.__new__(ReceiveCore).receive(None),
             lambda: queue._free_place() or queue._set_depth(-1),
             lambda: Link.__new__(Link).close_fd(),
             lambda: memoryview(Block.__new__(Block)),
             lambda: adapter.attach("a\\0b"), lambda: adapter.attach("\\ud800"),
             lambda: adapter.allocate(8, name="/\\ud800")]
    for call in calls:
        try:
            call()
        except Exception as raised:
            assert str(raised)
"""
    passes(program)


PAIR = """
import numbers
import shmnd
from shmnd import NdError, OpFlag, Sge, Status
shared = None
connections = []

def connect(make_passive):
    left, right = shmnd.open_adapter(), shmnd.open_adapter()
    queues = [each.create_completion_queue(64) for each in (left, right)]
    active = left.create_queue_pair(queues[0], queues[0], inline_size=64)
    passive = make_passive(right, queues[1])
    listener = right.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    ends = left.create_connector(), right.create_connector()
    asked = listener.get_connection_request(ends[1])
    answer = ends[0].connect(active, listener.get_local_address())
    asked.result(9)
    accepted = ends[1].accept(passive)
    answer.result(9)
    ends[0].complete_connect().result(9)
    accepted.result(9)
    connections.append((left, right, listener, ends, queues))
    return active, passive, queues

def region(adapter):
    made = adapter.create_memory_region()
    made.register(adapter.allocate(4096), 1).result(9)
    return made

def status_of(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except NdError as refused:
        return refused.status

plain = lambda adapter, queue: adapter.create_queue_pair(queue, queue)
"""


def test_a_list_with_a_length_of_its_own_is_counted() -> None:
    passes(
        PAIR
        + """
class Longer(list):
    def __len__(self):
        return 1

active, passive, queues = connect(plain)
sges = Longer([region(connections[0][0]).sge(0, 8)] * 400)
receives = connections[0][0].create_shared_receive_queue(8)
for call in (active.send, active.receive, receives.receive,
             lambda sges: active.read(sges, 1, 1), lambda sges: active.write(sges, 1, 1)):
    assert status_of(call, sges) == Status.DATA_OVERRUN
"""
    )


def test_a_list_of_inline_data_is_read_once() -> None:
    """A second reading could give elements that nothing has checked."""
    passes(
        PAIR
        + """
class Changing(list):
    def __iter__(self):
        yield from self.pop()

active, passive, queues = connect(plain)
passive.receive(None)
sges = Changing([[Sge(16, 8, 0)], [Sge(b"checked!", 8, 0)]])
active.send(sges, flags=OpFlag.INLINE)
"""
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers in Python before")
def test_a_buffer_that_releases_inline_data_before_it_is_copied() -> None:
    passes(
        PAIR
        + """
from mmap import mmap
class Releasing:
    def __init__(self, freed):
        self.freed, self.own = freed, bytes(8)
    def __buffer__(self, flags):
        self.freed.close()
        return memoryview(self.own)

active, passive, queues = connect(plain)
mapping = mmap(-1, 8)
buffer = Releasing(mmap(-1, 8))
first, second = Sge(mapping, 8, 0), Sge(buffer, 8, 0)
buffer.freed = mapping
assert status_of(active.send, [first, second], flags=OpFlag.INLINE) == Status.ACCESS_VIOLATION
"""
    )


def test_a_finaliser_that_polls_while_a_shared_receive_queue_closes() -> None:
    passes(
        PAIR
        + """
class Polling:
    def __del__(self):
        taken.extend(queues[1].get_results())

def share(adapter, queue):
    global shared
    shared = adapter.create_shared_receive_queue(8)
    return adapter.create_queue_pair_with_srq(queue, queue, shared)

taken = []
active, passive, queues = connect(share)
into, source = region(connections[0][1]), region(connections[0][0])
for _ in range(8):
    shared.receive(into.sge(0, 64), Polling())
for number in range(5):
    active.send(source.sge(0, 8))
shared.close()
assert all(type(result.request_context) is Polling for result in taken)
taken.clear()
"""
    )


def test_a_region_that_is_used_while_its_buffer_is_read() -> None:
    """Nothing stays registered that no region names."""
    passes(
        PAIR
        + """
class Acting:
    def __init__(self, number, act):
        self.number, self.act = number, act
    def __int__(self):
        act, self.act = self.act, lambda: None
        act()
        return self.number

numbers.Integral.register(Acting)
with shmnd.open_adapter() as adapter:
    array = adapter.allocate(4096)
    address = array.ctypes.data
    made = adapter.create_memory_region()
    inner = Acting(address, lambda: made.register(array, 1))
    assert status_of(made.register, (inner, 64), 1) == Status.INVALID_DEVICE_STATE
    assert made.length == 4096
    tokens = {made.local_token}
    made.deregister().result(9)
    closing = Acting(address, made.close)
    assert status_of(made.register, (closing, 64), 1) == Status.INVALID_DEVICE_STATE
    first = made.local_token if status_of(lambda: made.local_token) is None else None
    assert first is None
"""
    )
