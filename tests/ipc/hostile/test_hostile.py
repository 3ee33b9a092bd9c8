# SPDX-License-Identifier: Apache-2.0
"""A process of the same user that scribbles over all that it can write: no crash, no hang."""

import json
import math
import multiprocessing
import os
import struct
import threading
import time
import warnings
from typing import Any

import pytest

from ipc import hostile_players
from shmnd import ipc
from shmnd.status import NdError

FORK = multiprocessing.get_context("fork")
SEED = int(os.environ.get("SHMND_SEED", str(int(time.time()))))
PATIENCE = 100.0


def run(target: Any, *args: Any) -> None:
    """Run in a child, whose crash or hang is not this process's."""
    print("seed", SEED)
    child = FORK.Process(target=target, args=args)
    child.start()
    child.join(PATIENCE)
    hangs = child.is_alive()
    child.kill()
    child.join()
    assert not hangs, "a call did not end at its time-out"
    assert child.exitcode == 0


def test_each_word_of_a_queue() -> None:
    run(hostile_players.every_word, SEED)


def test_a_queue_that_another_member_scribbles_over() -> None:
    for number in range(3):
        q = ipc.JoinableQueue(16)
        hostile = FORK.Process(target=hostile_players.scribble_for_ever, args=(q, SEED + number))
        hostile.start()
        try:
            run(hostile_players.use_for, q, SEED + number, 2.0)
        finally:
            hostile.kill()
            hostile.join()
            q.close()


@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        (hostile_players.call_while_hostile, 300),
        (hostile_players.listen_while_hostile, 1500),
        (hostile_players.read_while_hostile, 150),
    ],
    ids=["service", "event", "blackboard"],
)
def test_overwritten_memory(target: Any, rounds: int) -> None:
    out = FORK.SimpleQueue()
    run(target, "hostile", SEED, rounds, out)
    assert out.get() > 10  # one page that is damaged does not silence the others
    out.close()


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [0, 2**80], [1] * 100], ids=len)
def test_a_key_of_a_shape_that_no_array_has(shape: list[int]) -> None:
    """A dimension of 0 makes any number of bytes of the others."""
    entry, nbytes = 64, 8 * math.prod(shape)
    with ipc.Blackboard("b", {"a": "f8", "b": "u1"}) as board, ipc.BlackboardReader("b") as reader:
        board["a"] = 5
        assert reader["a"] == 5
        board.add("c", "100u1")
        memory = memoryview(board._map)
        third = memory[entry + 2 * 32 : entry + 3 * 32]
        offset, _, at, _ = struct.unpack("QQQQ", third)
        text = json.dumps({"key": "c", "dtype": "<f8", "shape": shape}).encode()
        memory[at : at + len(text)] = text
        third[:] = struct.pack("QQQQ", offset, nbytes, at, len(text))
        for call in (lambda: reader["c"], lambda: reader.wait("c", timeout=60), reader.keys):
            with pytest.raises(NdError, match=f"process {os.getpid()} wrote keys that make no"):
                call()
        assert reader["a"] == 5
        del memory, third


def test_a_server_survives_malformed_requests() -> None:
    told = FORK.Event()
    with ipc.Server("s") as server, ipc.Client("s") as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        serving = threading.Thread(target=server.serve, args=(lambda request: request.value + 1,))
        serving.start()
        hostile = FORK.Process(target=hostile_players.send_nonsense, args=("s", told))
        hostile.start()
        assert told.wait(PATIENCE)
        assert client.call(41, timeout=60).value == 42
        hostile.kill()
        hostile.join()
        server.close()
        serving.join()


def test_an_unreadable_request_is_reported_and_left_out() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        lost = client.send(Unreadable())
        serving = threading.Thread(target=server.serve, args=(lambda request: request.value + 1,))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            serving.start()
            assert client.call(1, timeout=60).value == 2
        assert ["could not be read" in str(each.message) for each in told] == [True]
        with pytest.raises(ipc.RemoteError, match=r"cannot unpickle the request: ValueError"):
            lost.result(60)
        server.close()
        serving.join()


class Unreadable:
    def __reduce__(self) -> Any:
        return (int, ("no number",))
