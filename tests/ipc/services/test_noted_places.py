# SPDX-License-Identifier: Apache-2.0
"""A client notes where each of its requests lies, whatever it sends besides: so it learns that the
server of one died, which had taken it and not said so.
"""

import os
import sys
import traceback
from types import FrameType
from typing import Any

import pytest

from interrupting import handled_where, inside
from shmnd import ipc
from shmnd.ipc import service

PATIENCE = 30.0


def taken_by_one_that_dies(name: str) -> str:
    """Have a server take the first request and die at once; return the request."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            server = ipc.Server(name)
            os.write(writes, server._requests.get(timeout=PATIENCE)[-1].encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    os.close(writes)
    try:
        assert os.waitpid(child, 0)[1] == 0
        return os.read(reads, 100).decode()
    finally:
        os.close(reads)


def attempt(at: int) -> bool:
    """Send a request and, at the `at`-th place of that, another one."""
    name = f"noted-{os.getpid()}-{at}"
    with ipc.Client(name) as client:
        sent: dict[str, Any] = {}

        def send() -> None:
            sent["first"] = client.send("first", PATIENCE)

        def second() -> None:
            sent["second"] = client.send("second", PATIENCE)

        places = inside(service)

        def place(frame: FrameType, event: str) -> bool:
            return event in ("call", "c_return") and places(frame.f_code.co_filename)

        came = handled_where(at, send, place, second)
        if came:
            lost = taken_by_one_that_dies(name)
            with pytest.raises(ipc.PeerLost):
                sent[lost].result(PATIENCE)
            (other,) = {"first", "second"} - {lost}
            with pytest.raises(TimeoutError):
                sent[other].result(0.01)
        return came


def test_a_request_that_a_handler_sends_within_a_send() -> None:
    at = 0
    while attempt(at):
        at += 1
    assert at > 3
