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


def test_calls_that_once_crashed_are_refused() -> None:
    program = """
import shmnd
from shmnd.ring import CompletionCore, Link, QueuePair, ReceiveCore
from shmnd.ring.shared_memory.arena import Block
with shmnd.open_adapter() as adapter:
    queue = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(queue, queue)
    calls = [pair._open, pair._detach, QueuePair.__new__(QueuePair).flush,
             lambda: pair.__init__(None, None, None, None, None, None, None),
             lambda: CompletionCore.__new__(CompletionCore)._arm_for(1),
             CompletionCore.__new__(CompletionCore).wait,
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
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
