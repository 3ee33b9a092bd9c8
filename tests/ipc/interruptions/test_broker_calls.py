# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals that raise while an end asks the broker: its session does not end."""

import itertools
import subprocess
import sys
import time
import uuid

import shmnd.broker
import shmnd.runtime.broker
from interrupting import inside, interrupted
from shmnd import ipc

PATIENCE = 60.0
_BROKER = inside(shmnd.broker, shmnd.runtime.broker)
_PUBLISHER = """
import sys
from shmnd import ipc
with ipc.Publisher(sys.argv[1], "i8") as pub:
    pub.wait_for_subscribers(1, 60)
    for line in sys.stdin:
        pub.send(int(line), timeout=60)
        print(pub.subscribers, flush=True)
"""


def test_a_subscriber_that_blocks_keeps_its_seat() -> None:
    """At every third of the places where a function of the calls begins or has returned."""
    topic = f"seat-{uuid.uuid4().hex[:12]}"
    publisher = subprocess.Popen(
        [sys.executable, "-c", _PUBLISHER, topic],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with ipc.Subscriber(topic, "i8", overflow="block") as sub:
            assert publisher.stdin is not None
            assert publisher.stdout is not None
            end = time.monotonic() + PATIENCE
            while not sub.publishers:
                assert time.monotonic() < end
                time.sleep(0.01)
            for at in itertools.count(step=3):
                was = interrupted(at, lambda: sub.publishers, _BROKER)
                publisher.stdin.write(f"{at}\n")
                publisher.stdin.flush()
                assert publisher.stdout.readline() == "1\n"
                assert int(sub.receive(PATIENCE).value) == at
                assert sub.lost == 0
                if not was:
                    break
            assert at > 50
    finally:
        publisher.kill()
        publisher.communicate()
