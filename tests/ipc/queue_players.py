# SPDX-License-Identifier: Apache-2.0
"""What the processes of the queue tests do; importable by those that are spawned."""

import gc
import itertools
import os
import signal
import time
from collections.abc import Iterator
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


def scribble(fd: int, seed: int, rounds: int) -> None:
    """Write anything into the memory of a queue but its shape, as a member could."""
    chance = np.random.default_rng(seed)
    places = [128, 256, 384, 448, 512, 576, 584]
    slots, table, chunks = (int.from_bytes(os.pread(fd, 8, at), "little") for at in (48, 56, 64))
    for _ in range(rounds):
        at = int(
            chance.choice([
                chance.choice(places),
                4096 + 4096 * int(chance.integers(4)) + 8 * int(chance.integers(512)),
                slots + 8 * int(chance.integers(20)),
                table + 8 * int(chance.integers(30)),
                chunks + 64 * int(chance.integers(3000)) + 8 * int(chance.integers(4)),
            ])
        )  # fmt: skip
        value = int(chance.choice([0, 1, 2**64 - 1, chance.integers(2**63), chance.integers(99)]))
        os.pwrite(fd, (value & (2**64 - 1)).to_bytes(8, "little"), at)


def use_scribbled(seed: int, rounds: int) -> None:
    """Put and get while the memory is damaged: errors may come, a crash or a hang must not."""
    for number in range(rounds):
        q = ipc.JoinableQueue(16)
        for step in range(40):
            scribble(q._core.fd, seed + 100 * number + step, 3)
            try:
                q.put_nowait(np.zeros(int(10 ** (step % 6)), np.uint8))
            except Exception:
                pass
            try:
                q.get_nowait()
            except Exception:
                pass
            try:
                q.qsize(), q.full(), q.empty(), q._core.unfinished(), q._core.reap()
            except Exception:
                pass
        q.close()


def leave_a_stream(name: str, go: Any) -> None:
    """Read three values of a stream, drop the client, and live on."""
    client = ipc.Client(name)
    values = iter(client.stream(None))
    for _ in range(3):
        next(values)
    client.close()
    del client, values
    gc.collect()
    go.get()


def serve_counts(name: str) -> None:
    """Serve by a function: a stream without an end, or the value itself."""

    def count() -> Iterator[int]:
        yield from itertools.count()

    with ipc.Server(name) as server:
        server.serve(lambda it: count() if it.value == "count" else it.value)


def raise_(exc: type[Exception]) -> None:
    """Raise an exception where a value is unpickled."""
    raise exc("unpickled")


def open_a_stream(name: str, value: Any, ready: Any) -> None:
    """Open a stream and read nothing of it, until killed."""
    with ipc.Client(name) as client:
        stream = client.stream(value)
        while client._answers.qsize() < 64:
            time.sleep(0.001)
        ready.send(None)
        time.sleep(1000)
        stream.close()


def publish(name: str, end: Any) -> None:
    """Publish for ever, when told to."""
    end.recv()
    with ipc.Publisher(name, "f8") as publisher:
        while True:
            publisher.send(0.5)
            time.sleep(0.005)


def receive_one(name: str, end: Any) -> None:
    """Subscribe when told to, and report a sample."""
    end.recv()
    with ipc.Subscriber(name, "f8") as subscriber, subscriber.receive() as sample:
        end.send(float(sample.array))
        end.recv()
