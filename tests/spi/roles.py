# SPDX-License-Identifier: Apache-2.0
"""What one end does while the other one does something else; run in whichever process it is in."""

import os
import resource
import select
import time
from pathlib import Path
from typing import Any

from shmnd import OpFlag, RequestType, Status
from spi.harness import WAIT, Buffer, End, statuses, wait_until


def ask(end: End, rounds: int) -> list[RequestType]:
    """Send and wait for the answer; the kinds of completions in the order of the queue."""
    order: list[RequestType] = []
    for _ in range(rounds):
        end.qp.receive(None)
        end.qp.send(None)
        completions = end.reap(2)
        assert statuses(completions) == [Status.SUCCESS] * 2
        order += [RequestType(completion.request_type) for completion in completions]
    return order


def answer(end: End, rounds: int) -> None:
    """Answer each message as soon as it is there."""
    end.qp.receive(None)
    for left in reversed(range(rounds)):
        assert statuses(end.reap()) == [Status.SUCCESS]
        if left:
            end.qp.receive(None)
        end.qp.send(None, flags=OpFlag.SILENT_SUCCESS)


def write_numbers(end: End, source: Buffer, address: int, token: int, last: int) -> None:
    """Write 1, 2, … all over the target, each after the watcher saw the one before."""
    for number in range(1, last + 1):
        source.put(bytes([number]) * source.length)
        end.qp.write(source.sge(), address, token)
        assert statuses(end.reap()) == [Status.SUCCESS]
        end.await_signal(f"saw {number}")


def watch_numbers(end: End, sink: Buffer, last: int) -> None:
    """Watch the numbers arrive, without a call of the library."""
    for number in range(1, last + 1):
        seen = sink.spin_until(sink.length - 1, number)
        assert seen == bytes([number]) * len(seen), "the last byte appears last"
        end.signal(f"saw {number}")


def hammer(end: End, source: Buffer, address: int, token: int) -> Status:
    """Write without a pause until it fails; how it failed."""
    end.signal("hammering")
    number = 0
    while True:
        number = number % 250 + 1
        source.put(bytes([number]) * source.length)
        end.qp.write(source.sge(), address, token)
        (completion,) = end.reap()
        if completion.status != Status.SUCCESS:
            return Status(completion.status)


def invalidate_under_fire(end: End, target: Buffer, window: object) -> bool:
    """Invalidate while the other end hammers; whether no byte moved afterwards."""
    end.await_signal("hammering")
    before = target.get()
    wait_until(lambda: target.get() != before, "the first Write arrived")
    end.qp.invalidate(window, "invalidated")
    while "invalidated" not in [c.request_context for c in end.reap()]:
        continue
    frozen = target.get()
    return all(target.get() == frozen for _ in range(200))


def stream(end: End, size: int, count: int) -> None:
    """Send many messages of one size, several in flight, and wait for each by Notify."""
    source = end.memory(size)
    end.await_signal("posted")
    sent = done = 0
    while done < count:
        while sent < count and sent - done < 16:
            end.qp.send(source.sge(), sent)
            sent += 1
        done += len(results_by_notify(end))


def take_stream(end: End, size: int, count: int) -> None:
    """Take them with few Receives, so that the sender often has to wait, and sleep in Notify."""
    sink = end.memory(size)
    for number in range(4):
        end.qp.receive(sink.sge(), number)
    end.signal("posted")
    taken = 0
    while taken < count:
        for result in results_by_notify(end):
            assert result.bytes_transferred == size
            assert result.request_context == taken
            end.qp.receive(sink.sge(), taken + 4)
            taken += 1
    end.qp.flush()


def send_one(end: End) -> None:
    """Send one message when the other end is about to sleep."""
    end.await_signal("sleeping")
    end.qp.send(None)
    assert statuses(end.reap()) == [Status.SUCCESS]


def sleep_at_the_file(end: End) -> int:
    """Sleep in select, and nowhere else, until the file has something; how many operations."""
    while end.file.poll():
        continue
    end.signal("sleeping")
    deadline = time.monotonic() + WAIT
    while not (polled := end.file.poll()):
        assert time.monotonic() < deadline
        select.select([end.file], [], [], WAIT)
    return len(polled)


def results_by_notify(end: End) -> list[Any]:
    """Successful results, after a sleep in Notify when there was none."""
    while not (results := end.cq.get_results()):
        end.cq.notify().result(timeout=WAIT)
    assert {result.status for result in results} == {Status.SUCCESS}, results
    return list(results)


def call_under(end: End, limit: int, room: int, owner: str, call: str, *args: Any) -> None:
    """Make a call while this process may have no more than it has of something.

    For a process of its own only: one that has freed memory before can use it again.
    """
    method = getattr(getattr(end, owner), call)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    descriptors = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    spare = [os.open("/dev/null", os.O_RDONLY)]
    while spare[-1] < descriptors:  # no gap may be left below the limit
        spare.append(os.open("/dev/null", os.O_RDONLY))
    used = {resource.RLIMIT_AS: pages * resource.getpagesize(), resource.RLIMIT_NOFILE: spare[-1]}
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (used[limit] + room, before[1]))
    try:
        method(*args)
    finally:
        resource.setrlimit(limit, before)
        for fd in spare:
            os.close(fd)
