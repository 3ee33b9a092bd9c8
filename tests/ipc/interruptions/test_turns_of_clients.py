# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises in a thread whose answer another thread of the client takes."""

import itertools
import os
import threading
import time

from interrupting import interrupted
from shmnd import ipc
from shmnd.ipc.service import client as client_module

OTHER_THREAD = -1
FILES = (client_module.__file__, threading.__file__)


def test_a_wait_for_a_turn_that_is_interrupted_leaves_the_lock_free() -> None:
    with ipc.Client(f"turns-{os.getpid()}") as client:
        pending = client.send(1)
        client._busy = OTHER_THREAD

        def wait() -> None:
            client._wait(pending, time.monotonic() + 1e-3, "test")

        for at in itertools.count():
            more = interrupted(at, wait, lambda path: path in FILES)
            assert client._lock.acquire(blocking=False), f"interrupted at {at}"
            client._lock.release()
            assert client._busy == OTHER_THREAD
            if not more:
                break
        client._busy = 0
    assert at > 0, "there were places to interrupt"
