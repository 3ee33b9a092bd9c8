# SPDX-License-Identifier: Apache-2.0
"""Messages of `shmnd.connect` against the loop that programs write over the single objects.

Both carry bytes in and bytes out. First the processor time of a message, of its Send and its
Receive together, in one thread: that figure bears other work on the machine. Then one way of a
ping-pong between two processes, each pinned to a processor. Rounds alternate; ratios are those of
single rounds.

    .venv/bin/python -m tools.dev.message_speed
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Final

import shmnd
from shmnd import MrFlag, OpFlag

_DEPTH: Final = 8
_PIECE: Final = 1 << 16
_SILENT: Final = OpFlag.SILENT_SUCCESS

Round = Callable[[int], None]


class ByHand:
    """One end, made of single objects."""

    def __init__(self, adapter: shmnd.Adapter, nbytes: int) -> None:
        self.cq = adapter.create_completion_queue(64)
        self.qp = adapter.create_queue_pair(self.cq, self.cq)
        array = adapter.allocate((_DEPTH + 1) * _PIECE)
        self.memory = memoryview(array)
        self.region = adapter.create_memory_region()
        self.region.register(array, MrFlag.ALLOW_LOCAL_WRITE).result()
        self.connector = adapter.create_connector()
        self.receives = [self.region.sge(place * _PIECE, _PIECE) for place in range(_DEPTH)]
        for place, sge in enumerate(self.receives):
            self.qp.receive(sge, place)
        self.begin = _DEPTH * _PIECE
        self.outgoing = self.region.sge(self.begin, nbytes)

    def connect(self, address: tuple[str, int]) -> None:
        """Connect, as the active side."""
        self.connector.connect(self.qp, address).result(10)
        self.connector.complete_connect().result(10)

    def accept(self, listener: shmnd.Listener) -> None:
        """Take a request and accept it."""
        listener.get_connection_request(self.connector).result(10)
        self.connector.accept(self.qp).result(10)

    def send(self, data: bytes) -> None:
        """Copy bytes into registered memory, and send them."""
        self.memory[self.begin : self.begin + len(data)] = data
        self.qp.send(self.outgoing, flags=_SILENT)

    def receive(self) -> bytes:
        """Wait for a message, post its receive again, and return a copy of its bytes."""
        (result,) = self.cq.wait(1)
        place = result.request_context
        begin = place * _PIECE
        data = bytes(self.memory[begin : begin + result.bytes_transferred])
        self.qp.receive(self.receives[place], place)
        return data


def inlined(one: ByHand, other: ByHand, data: bytes) -> Round:
    """Return a round of the same loop without functions of its own, as fast as in Python."""

    def run(count: int) -> None:
        for _ in range(count):
            for here, there in ((one, other), (other, one)):
                here.memory[here.begin : here.begin + len(data)] = data
                here.qp.send(here.outgoing, flags=_SILENT)
                for result in there.cq.wait():
                    place = result.request_context
                    begin = place * _PIECE
                    bytes(there.memory[begin : begin + result.bytes_transferred])
                    there.qp.receive(there.receives[place], place)

    return run


def messages(one: shmnd.Connection, other: shmnd.Connection, data: bytes) -> Round:
    """Return a function that sends messages there and back."""

    def run(count: int) -> None:
        for _ in range(count):
            one.send_bytes(data)
            other.recv_bytes()
            other.send_bytes(data)
            one.recv_bytes()

    return run


def bounce(
    send: Callable[[bytes], None], receive: Callable[[], bytes], first: bool, data: bytes
) -> Round:
    """Return a round of one side of a ping-pong."""

    def run(count: int) -> None:
        for _ in range(count):
            if first:
                send(data)
                receive()
            else:
                receive()
                send(data)

    return run


def line_of(name: str, unit: str, by_hand: list[float], with_messages: list[float]) -> str:
    """Return one line: both medians, and the ratio with its spread."""
    ratios = sorted(one / two for one, two in zip(with_messages, by_hand, strict=True))
    return (
        f"{name:24} by hand {statistics.median(by_hand):6.3f} {unit}, messages "
        f"{statistics.median(with_messages):6.3f} {unit}, ratio {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f}..{ratios[-1]:.2f})"
    )


def measured(
    rounds: list[Round], count: int, times: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Return the microseconds one way of each, of alternating rounds; the first do not count."""
    found: list[list[float]] = [[] for _ in rounds]
    for number in range(times + 2):
        for run, taken in zip(rounds, found, strict=True):
            began = clock()
            run(count)
            if number > 1:
                taken.append((clock() - began) / count / 2 * 1e6)
    return found


def in_one_thread(nbytes: int, count: int, times: int) -> str:
    """Return the line with the processor time of a message."""
    data = bytes(nbytes)
    with shmnd.listen() as server:
        made: list[shmnd.Connection] = []
        asking = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
        asking.start()
        near = server.accept(10)
        asking.join()
        far = made.pop()
        adapter = server.adapter
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        one, other = ByHand(adapter, nbytes), ByHand(adapter, nbytes)
        asking = threading.Thread(target=one.connect, args=(listener.get_local_address(),))
        asking.start()
        other.accept(listener)
        asking.join()
        rounds = [inlined(one, other, data), messages(near, far, data)]
        found = measured(rounds, count, times, time.thread_time)
        near.close()
        far.close()
    return line_of(f"{nbytes} B, processor time", "µs", *found)


def between_processes(nbytes: int, count: int, times: int, cpus: list[int]) -> str:
    """Return the line with the time of one way between two processes."""
    data = bytes(nbytes)
    reading, writing = os.pipe()
    child = os.fork()
    os.sched_setaffinity(0, {cpus[0 if child else 1]})
    adapter = shmnd.open_adapter()
    end = ByHand(adapter, nbytes)
    if child:
        server, listener = shmnd.listen(), adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ports = [server.address[1], listener.get_local_address()[1]]
        os.write(writing, "{:8}{:8}".format(*ports).encode())
        connection = server.accept(20)
        end.accept(listener)
    else:
        written = os.read(reading, 16)
        connection = shmnd.connect(("127.0.0.1", int(written[:8])), timeout=20)
        end.connect(("127.0.0.1", int(written[8:])))
    rounds = [
        bounce(end.send, end.receive, bool(child), data),
        bounce(connection.send_bytes, connection.recv_bytes, bool(child), data),
    ]
    found = measured(rounds, count, times, time.perf_counter)
    connection.close()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return line_of(f"{nbytes} B, two processes", "µs", *found)


def main() -> None:
    """Measure both ways, and print a line for each size."""
    parser = argparse.ArgumentParser(description="messages against the loop by hand")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 40, 1000, 10000])
    parser.add_argument("--count", type=int, default=2000, help="ping-pongs of a round")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    for nbytes in args.sizes:
        print(in_one_thread(nbytes, args.count, args.rounds), flush=True)
        if len(cpus) > 1:
            print(between_processes(nbytes, args.count, args.rounds, cpus), flush=True)
            os.sched_setaffinity(0, cpus)


if __name__ == "__main__":
    main()
