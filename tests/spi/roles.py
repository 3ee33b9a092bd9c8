# SPDX-License-Identifier: Apache-2.0
"""What one end does while the other one does something else; run in whichever process it is in."""

from shmnd import OpFlag, RequestType, Status
from spi.harness import Buffer, End, statuses, wait_until


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
