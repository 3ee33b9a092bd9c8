# SPDX-License-Identifier: Apache-2.0
"""What the processes of the topic tests do, with the public names alone."""

import asyncio
import os
import select
import signal
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from shmnd import ipc
from shmnd.adapter import Adapter

PATIENCE = 60.0
WORDS = 5000


@dataclass
class State:
    """A record with numbers and arrays."""

    step: int
    time: float
    pose: Annotated[np.ndarray[Any, Any], ipc.Array("f8", 6)]
    ok: bool = True


PARTS = ipc.Arrays(image=ipc.Array("u1", (48, 64, 3)), depth=ipc.Array("f4", (48, 64)))


def numbered(number: int) -> np.ndarray[Any, Any]:
    """Return an array of which each element tells which sample it belongs to."""
    return np.arange(WORDS, dtype="i8") + number * WORDS


def is_numbered(array: Any, number: int) -> bool:
    return bool((array == numbered(number)).all())


def publish(name: str, count: int, options: dict[str, Any], subscribers: int = 1) -> None:
    with ipc.Publisher(name, "i8", **options) as pub:
        pub.wait_for_subscribers(subscribers, timeout=PATIENCE)
        for number in range(count):
            pub.send(numbered(number), header=str(number).encode(), timeout=PATIENCE)


def publish_and_die(name: str, count: int) -> None:
    pub = ipc.Publisher(name, "i8")
    pub.wait_for_subscribers(timeout=PATIENCE)
    for number in range(count):
        with pub.loan(WORDS) as loan:
            loan.array[:] = numbered(number)
            loan.send()
    os.kill(os.getpid(), signal.SIGKILL)


def publish_until(name: str, stop: Any, out: Any) -> None:
    """Send as fast as it goes until told to stop, and say how many samples there were."""
    with ipc.Publisher(name, "i8", history=20) as pub:
        pub.wait_for_subscribers(timeout=PATIENCE)
        count = 0
        while not stop.is_set():
            pub.send(numbered(count)[: 1 + count % WORDS], timeout=PATIENCE)
            count += 1
    out.put(count)


def publish_for_ever(name: str) -> None:
    with ipc.Publisher(name, "i8", history=4) as pub:
        number = 0
        while True:
            pub.send(numbered(number), timeout=PATIENCE)
            number += 1


def publish_every_form(prefix: str, go: Any) -> None:
    pose = np.arange(6.0)
    image = np.full((48, 64, 3), 7, "u1")
    with (
        ipc.Publisher(f"{prefix}-dtype", "f4", history=4) as plain,
        ipc.Publisher(f"{prefix}-array", ipc.Array("i2", (3, 4)), history=4) as fixed,
        ipc.Publisher(f"{prefix}-record", State, history=4) as record,
        ipc.Publisher(f"{prefix}-arrays", PARTS, history=4) as parts,
        ipc.Publisher(f"{prefix}-bytes", bytes, history=4) as raw,
        ipc.Publisher(f"{prefix}-object", object, history=4) as objects,
    ):
        plain.send(np.ones((2, 3), "f4"))
        fixed.send(np.arange(12, dtype="i2").reshape(3, 4), header=b"a header")
        record.send(State(5, 0.5, pose))
        with record.loan() as loan:
            loan.array.step = 6
            loan.array["time"] = 0.25
            loan.array.pose[:] = 2
            loan.array.ok = False
            loan.send()
        parts.send({"image": image, "depth": np.zeros((48, 64), "f4")})
        raw.send(b"x" * 100_000)
        objects.send({"text": "ü", "array": np.arange(100_000), "none": None})
        go.wait(PATIENCE)


def receive(name: str, options: dict[str, Any], count: int, out: Any) -> None:
    with ipc.Subscriber(name, "i8", **options) as sub:
        out.put("ready")
        for _ in range(count):
            with sub.receive(timeout=PATIENCE) as sample:
                out.put((sample.sequence, is_numbered(sample.array, sample.sequence)))


def hold_and_die(name: str, count: int, out: Any) -> None:
    sub = ipc.Subscriber(name, "i8", buffer=count, overflow="block")
    out.put("ready")
    held = [sub.receive(timeout=PATIENCE) for _ in range(count)]
    out.put(len(held))
    signal.pause()


def receive_in_loop(name: str, count: int, out: Any) -> None:
    async def main() -> None:
        with ipc.Subscriber(name, "i8", buffer=64) as sub:
            out.put("ready")
            seen = 0
            async for sample in sub:
                out.put((sample.sequence, is_numbered(sample.value, sample.sequence)))
                seen += 1
                if seen == count:
                    return

    asyncio.run(main())


def receive_by_select(name: str, count: int, out: Any) -> None:
    with ipc.Subscriber(name, "i8", buffer=64) as sub:
        number = sub.fileno()
        out.put("ready")
        seen = 0
        while seen < count:
            sample = sub.try_receive()
            if sample is None:
                assert select.select([number], [], [], PATIENCE)[0]
                continue
            seen += 1
            out.put((sample.sequence, is_numbered(sample.value, sample.sequence)))


def view_at_exit(name: str, out: Any) -> None:
    """Come to the end of the interpreter with views and samples alive."""
    global kept
    sub = ipc.Subscriber(name, "i8")
    out.put("ready")
    sample = sub.receive(timeout=PATIENCE)
    kept = [sub, sample, sample.array[::2], memoryview(sample)]
    out.put(int(kept[2][1]))


kept: list[Any] = []


def publish_anything(name: str, seed: int, count: int) -> None:
    """Publish, and overwrite whatever a publisher of this process can write."""
    memories: list[Any] = []
    allocate = Adapter.allocate_segment

    def watched(self: Adapter, nbytes: int, **options: Any) -> Any:
        memory = allocate(self, nbytes, **options)
        memories.append(np.frombuffer(memoryview(memory), np.uint64))
        return memory

    Adapter.allocate_segment = watched  # type: ignore[assignment, method-assign]
    chance = np.random.default_rng(seed)
    pub = ipc.Publisher(name, "i8", history=8)
    head, lines = memories[0], memories[1]
    pub.wait_for_subscribers(4, timeout=PATIENCE)
    for number in range(count):
        try:
            pub.send(numbered(number)[: 3 + number % 900], header=b"h" * (number % 50), timeout=0)
        except (ipc.LoanLimit, TimeoutError):
            pass  # by its own values
        words = head[8 : 8 + 12] if number % 5 == 0 else lines
        if number % 7 == 0 and len(memories) > 3:
            words = memories[int(chance.integers(3, len(memories)))]
        at = number % 64 * 8 if words is lines else int(chance.integers(0, len(words)))
        if words is lines:  # a part of the newest line, or any one
            at += int(chance.integers(1, 8)) if number % 3 else int(chance.integers(0, 500))
        at %= len(words)
        wild = int(chance.integers(0, 1 << 63)) * 2 + 1
        words[at] = wild >> int(chance.integers(0, 64))
    os._exit(0)
