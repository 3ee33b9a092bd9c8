# SPDX-License-Identifier: Apache-2.0
"""Two processes that talk for long over many connections, and what they take while they do.

`python tests/soak/driver.py --messages 1000000000` is the long run. While the streams run,
connections come and go in addition, and each process counts what it holds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np

import shmnd
from shmnd import MrFlag
from soak.build import build, load

WAIT: Final = 600.0
HEAD: Final = 40
"""Bytes of the first piece of a message in two."""
SLICE: Final = 0.25
"""Seconds of streaming between two counts of the held resources."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_M64: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Plan:
    """One run: so many messages, or so many seconds."""

    made: str
    seed: int
    connections: int = 64
    messages: int = 0
    seconds: float = 0.0
    progress: bool = False

    def largest(self, number: int) -> int:
        """Bytes of the longest message of a connection."""
        kind = number % 16
        return 1 << 20 if kind == 0 else 1 << 16 if kind < 4 else 4096 if kind < 8 else 1023

    def depth(self, number: int) -> int:
        """Messages in flight, each way."""
        return 4 + (self.seed + 7 * number) % 13

    def rate(self, number: int) -> int:
        """One turn of so many is one in which it sends."""
        return (1, 1, 2, 8)[(self.seed + number) % 4]

    def private(self, number: int, active: bool) -> bool:
        """Is this side's memory private?"""
        return number % 5 == 1 if active else number % 7 == 2

    def keys(self, number: int, active: bool) -> tuple[int, int]:
        """What the messages of both directions are made from, outbound first."""
        keys = [(self.seed * 1_000_003 + 2 * number + way << 40) & _M64 for way in (0, 1)]
        return (keys[0], keys[1]) if active else (keys[1], keys[0])

    def share(self) -> list[int]:
        """Messages of each connection and direction."""
        ways = 2 * self.connections
        return [self.messages // ways + 1] * self.connections


@dataclass
class Held:
    """What a process has taken from the system."""

    private: int
    """Bytes of resident memory that are not of a segment: those come with the first message that
    reaches a page, and stay."""
    descriptors: int
    mappings: int

    @classmethod
    def now(cls) -> Held:
        """Count."""
        proc = Path("/proc/self")
        _size, resident, shared, *_rest = map(int, (proc / "statm").read_text().split())
        return cls(
            (resident - shared) * _PAGE,
            len(list((proc / "fd").iterdir())),
            len((proc / "maps").read_text().splitlines()),
        )


@dataclass
class Totals:
    """What one process has to say at the end."""

    sent: int = 0
    received: int = 0
    bytes: int = 0
    seconds: float = 0.0
    churned: int = 0
    held: list[Held] = field(default_factory=list)


class End:
    """One process's end of everything."""

    def __init__(self, plan: Plan, pipe: Connection, active: bool) -> None:
        self.plan, self.pipe, self.active = plan, pipe, active
        self.totals = Totals()
        self.adapter = shmnd.open_adapter(rnr_timeout=1000.0)
        deep = sum(2 * plan.depth(number) for number in range(plan.connections))
        self.cq = self.adapter.create_completion_queue(deep)
        self.side = load(Path(plan.made)).Side(self.cq, plan.connections)
        self.regions: list[shmnd.MemoryRegion] = []
        self.connectors: list[shmnd.Connector] = []
        self.listener: shmnd.Listener | None = None
        self.address: tuple[str, int] = ("", 0)
        self.waiting: tuple[shmnd.Connector, shmnd.Overlapped] | None = None
        self.other_cq = self.adapter.create_completion_queue(16)

    # -- setting up --

    def memory(self, nbytes: int, private: bool) -> shmnd.Sge:
        """Registered memory for the messages of one direction."""
        buffer: Any = (
            np.ones(nbytes + 5, np.uint8)[5:] if private else self.adapter.allocate(nbytes)
        )
        region = self.adapter.create_memory_region()
        region.register(buffer, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        self.regions.append(region)
        return region.sge()

    def add(self, number: int) -> shmnd.QueuePair:
        """Make a queue pair, and give it to the loop with its Receives posted."""
        plan = self.plan
        depth, largest = plan.depth(number), plan.largest(number)
        pair = self.adapter.create_queue_pair(
            self.cq,
            self.cq,
            context=(number,),
            receive_depth=depth,
            initiator_depth=depth,
            max_receive_sge=2,
        )
        private = plan.private(number, self.active)
        stride = -(-max(largest, 64) // 64) * 64
        places = [self.memory(depth * stride, private) for _ in range(2)]
        places.append(self.memory(2 * depth * HEAD, True))
        keys = plan.keys(number, self.active)
        self.side.add(pair, pair.context, *places, largest, depth, plan.rate(number), *keys)
        return pair

    def meet(self) -> None:
        """Make all connections."""
        pairs = [self.add(number) for number in range(self.plan.connections)]
        if self.active:
            self.address = self.pipe.recv()
        else:
            self.listener = self.adapter.create_listener()
            self.listener.bind(("127.0.0.1", 0))
            self.listener.listen()
            self.pipe.send(self.listener.get_local_address())
        for pair in pairs:
            self.connectors.append(self.connect(pair) if self.active else self.accept(pair))

    def connect(self, pair: shmnd.QueuePair) -> shmnd.Connector:
        """Make a connection from the active side."""
        connector = self.adapter.create_connector()
        connector.connect(pair, self.address).result(WAIT)
        connector.complete_connect().result(WAIT)
        return connector

    def accept(self, pair: shmnd.QueuePair) -> shmnd.Connector:
        """Make a connection from the passive side."""
        assert self.listener is not None
        connector = self.adapter.create_connector()
        self.listener.get_connection_request(connector).result(WAIT)
        connector.accept(pair).result(WAIT)
        return connector

    # -- connections that come and go --

    def churn(self) -> None:
        """One connection more, with a message through it, and its end."""
        if self.active:
            pair = self.other_pair()
            connector = self.connect(pair)
            self.one_message(pair)
            connector.disconnect().result(WAIT)
            pair.close()
            self.totals.churned += 1
            return
        assert self.listener is not None
        if self.waiting is None:
            connector = self.adapter.create_connector()
            self.waiting = connector, self.listener.get_connection_request(connector)
        connector, request = self.waiting
        if not request.done():
            return
        self.waiting = None
        request.result(WAIT)
        pair = self.other_pair()
        connector.accept(pair).result(WAIT)
        self.one_message(pair)
        connector.notify_disconnect().result(WAIT)
        connector.disconnect().result(WAIT)
        pair.close()
        self.totals.churned += 1

    def other_pair(self) -> shmnd.QueuePair:
        """Make a queue pair in addition to the streams."""
        pair = self.adapter.create_queue_pair(self.other_cq, self.other_cq)
        self.buffer = self.adapter.allocate(4096)
        self.region = self.adapter.create_memory_region()
        self.region.register(self.buffer, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        if not self.active:
            pair.receive(self.region.sge())
        return pair

    def one_message(self, pair: shmnd.QueuePair) -> None:
        """Send it, or wait for it."""
        if self.active:
            self.buffer[:] = self.totals.churned % 251
            pair.send(self.region.sge())
        (result,) = self.other_cq.wait(1, WAIT)
        assert result.status is shmnd.Status.SUCCESS, result
        if not self.active:
            assert (self.buffer == self.totals.churned % 251).all(), (
                "a message in addition to the streams"
            )
        self.other_cq.get_results()
        self.region.deregister().result(WAIT)

    # -- the run --

    def stream(self) -> None:
        """Send and receive as much as the plan wants."""
        plan, started = self.plan, time.monotonic()
        timed = not plan.messages
        endless = [_M64 >> 1] * plan.connections
        sends = receives = endless if timed else plan.share()
        self.side.expect(sends, receives)
        while True:
            complete = self.side.run(SLICE)
            if timed and sends is endless and time.monotonic() - started > plan.seconds:
                sends = self.side.counts()[0]
                self.pipe.send(sends)
                self.side.expect(sends, receives)
            if timed and receives is endless and sends is not endless and self.pipe.poll():
                receives = self.pipe.recv()
                self.side.expect(sends, receives)
            if complete and sends is not endless and receives is not endless:
                break
            self.look()
        self.totals.seconds = time.monotonic() - started

    def look(self) -> None:
        """Count, and have a connection come and go."""
        self.churn()
        self.totals.held.append(Held.now())
        if self.plan.progress and len(self.totals.held) % 100 == 0:
            received = sum(self.side.counts()[1])
            side = "active" if self.active else "passive"
            print(f"{side}: {received} received, {self.totals.held[-1]}", file=sys.stderr)

    def finish(self) -> Totals:
        """Wait for the end of the other side, and report it."""
        sent, received, nbytes = self.side.counts()
        self.totals.sent, self.totals.received, self.totals.bytes = sum(sent), sum(received), nbytes
        self.pipe.send("through")
        while not self.pipe.poll(0.01):
            if not self.active:
                self.churn()  # the other side may wait for it
        assert self.pipe.recv() == "through"
        return self.totals


def run_end(plan: Plan, pipe: Connection, active: bool) -> None:
    """One of the two processes."""
    try:
        end = End(plan, pipe, active)
        with end.adapter:
            end.meet()
            end.stream()
            totals = end.finish()
        pipe.send(totals)
    except BaseException as exc:
        pipe.send(exc)
        raise


def run(plan: Plan) -> list[Totals]:
    """Both processes; what each has to say."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes: list[Any] = []
    for active in (False, True):
        here, there = context.Pipe()
        process = context.Process(target=run_end, args=(plan, there, active), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    totals: list[Totals | None] = [None, None]
    try:
        while None in totals:
            # A process that has reported is gone; the end of its pipe says nothing.
            talking = [pipe for pipe, one in zip(pipes, totals, strict=True) if one is None]
            for ready in multiprocessing.connection.wait(talking, 5.0):
                at = pipes.index(ready)  # type: ignore[arg-type]
                said = pipes[at].recv()
                if isinstance(said, BaseException):
                    raise AssertionError(_both(said, at, pipes)) from said
                if isinstance(said, Totals):
                    totals[at] = said
                else:
                    pipes[1 - at].send(said)
        for process in processes:
            process.join(WAIT)
            assert process.exitcode == 0
        return [each for each in totals if each is not None]
    finally:
        for process in processes:
            process.kill()
            process.join(WAIT)
            process.close()
        for pipe in pipes:
            pipe.close()


def _both(said: BaseException, at: int, pipes: list[Connection]) -> str:
    """Return what one side met, and the other, whose end may be what this one met."""
    words = {at: repr(said), 1 - at: "nothing"}
    while pipes[1 - at].poll(5.0):
        try:
            other = pipes[1 - at].recv()
        except EOFError:
            break
        if isinstance(other, BaseException):
            words[1 - at] = repr(other)
            break
    return f"the passive side: {words[0]}; the active side: {words[1]}"


def settled(totals: Totals) -> tuple[Held, Held]:
    """The resources held when everything was warm (after a quarter of the time), and at the end."""
    return totals.held[len(totals.held) // 4], totals.held[-1]


def figures(totals: list[Totals]) -> dict[str, Any]:
    """What there is to say about a run."""
    seconds = max(each.seconds for each in totals)
    messages = sum(each.received for each in totals)
    return {
        "messages": messages,
        "gigabytes": round(sum(each.bytes for each in totals) / 1e9, 3),
        "seconds": round(seconds, 1),
        "messages_per_second": round(messages / seconds),
        "connections_made_beside": totals[1].churned,
        "looks": min(len(each.held) for each in totals),
        "held": [
            {"warm": asdict(warm), "end": asdict(end)} for warm, end in map(settled, totals)
        ],
    }  # fmt: skip


def main() -> int:
    """Run once, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(24))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shmnd-soak-") as folder:
        made = str(build(Path(folder)))
        plan = Plan(
            made,
            options.seed,
            options.connections,
            options.messages,
            options.seconds,
            progress=bool(options.messages),
        )
        print(json.dumps({"seed": plan.seed, **figures(run(plan))}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
