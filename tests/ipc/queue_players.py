# SPDX-License-Identifier: Apache-2.0
"""What the processes of the queue tests do; importable by those that are spawned."""

import os
import signal
import time
from typing import Any

import numpy as np

from shmnd import ipc


def echo(there: Any, back: Any) -> None:
    while (item := there.get()) is not None:
        back.put(item)
    back.put(None)


def put_and_end(q: Any, count: int) -> None:
    for number in range(count):
        q.put((number, np.full(40_000, number % 251, np.uint8)))


def put_and_die(q: Any, count: int) -> None:
    put_and_end(q, count)
    os.kill(os.getpid(), signal.SIGKILL)


def take_and_die(q: Any, count: int) -> None:
    kept = [q.get() for _ in range(count)]
    assert len(kept) == count
    os.kill(os.getpid(), signal.SIGKILL)


def produce(q: Any, who: int, seed: int) -> None:
    """Put for ever, with sizes of every kind, until it is killed."""
    chance = np.random.default_rng(seed)
    number = 0
    while True:
        size = int(chance.choice([10, 3_000, 20_000, 300_000], p=[0.5, 0.3, 0.15, 0.05]))
        q.put((who, number, np.full(size, (who + number) % 251, np.uint8)))
        number += 1


def consume(q: Any, out: Any) -> None:
    """Check and report for ever, until it is killed."""
    kept: list[Any] = []
    while True:
        who, number, array = q.get()
        good = bool((array == (who + number) % 251).all())
        out.put((who, number, good))
        kept = [*kept[-3:], array]  # some of it stays in use


def work(q: Any) -> None:
    while q.get() is not None:
        q.task_done()
    q.task_done()


def open_and_put(name: str, number: int, done: Any) -> None:
    q = ipc.Queue(name=name)
    q.put(number)
    done.wait()


def sleep_in_get(q: Any, out: Any) -> None:
    began = time.process_time()
    q.get()
    out.put(time.process_time() - began)


def listen(name: str, out: Any, rounds: int) -> None:
    with ipc.Listener(name) as listener:
        out.put("ready")
        for _ in range(rounds):
            out.put(listener.wait(60))


def notify_for_ever(name: str) -> None:
    with ipc.Notifier(name) as notifier:
        while True:
            notifier.notify(7)


def write_for_ever(name: str, size: int) -> None:
    with ipc.Blackboard(name, {"value": ipc_type(size)}) as board:
        number = 0
        while True:
            number += 1
            board["value"] = np.full(size, number, np.uint64)


def ipc_type(size: int) -> Any:
    return np.dtype(("u8", (size,)))


def serve_sums(name: str, out: Any) -> None:
    with ipc.Server(name) as server:
        out.put(os.getpid())
        server.serve(lambda request: float(np.sum(request.value)))


def take_one_and_hang(name: str, out: Any) -> None:
    with ipc.Server(name) as server:
        out.put(os.getpid())
        request = server.receive(60)
        out.put("taken")
        time.sleep(600)
        request.respond(None)
