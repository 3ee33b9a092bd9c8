# SPDX-License-Identifier: Apache-2.0
"""The reference finds faults: each of these worlds lies in one way, and is found out."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from reference.machine import Machine
from reference.memory import Pieces
from reference.model import Queue, Request, Side, Violation
from reference.stage import Mark, Node
from reference.world import World
from shmnd import RequestType, Status
from spi.harness import Completion

SEARCH = settings(
    max_examples=300,
    stateful_step_count=25,
    database=None,
    phases=(Phase.generate,),
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class Swapped(World):
    """Two completions change places."""

    def _results(self, real: Any, most: int) -> list[Completion]:
        results = super()._results(real, most)
        results[:2] = reversed(results[:2])
        return results


class Lost(World):
    """Every third poll of a queue loses a completion."""

    looks = 0

    def _results(self, real: Any, most: int) -> list[Completion]:
        self.looks += 1
        return super()._results(real, most)[self.looks % 3 == 0 :]


class Doubled(World):
    """A completion comes twice."""

    def _results(self, real: Any, most: int) -> list[Completion]:
        results = super()._results(real, most)
        return results[:1] + results if len(results) < most else results


class Torn(World):
    """The last byte of a long message is wrong."""

    def _received(self, side: Side, request: Request, memory: Pieces, nbytes: int) -> bytes:
        data = super()._received(side, request, memory, nbytes)
        return data[:-1] + bytes([data[-1] ^ 1]) if nbytes > 4096 else data


class Short(World):
    """A received length is one too small."""

    def _judge(self, queue: Queue, completion: Completion) -> None:
        fewer = max(completion.bytes_transferred - 1, 0)
        super()._judge(queue, completion._replace(bytes_transferred=fewer))


class Copied(World):
    """A context is equal to the one that was given, and another object."""

    def _judge(self, queue: Queue, completion: Completion) -> None:
        context = Mark(completion.request_context.number)
        super()._judge(queue, completion._replace(request_context=context))


class Hopeful(World):
    """A canceled request is called a success."""

    def _judge(self, queue: Queue, completion: Completion) -> None:
        if completion.status == Status.CANCELED:
            completion = completion._replace(status=Status.SUCCESS)
        super()._judge(queue, completion)


class Gloomy(World):
    """A success is called canceled."""

    def _judge(self, queue: Queue, completion: Completion) -> None:
        if completion.request_type == RequestType.SEND and completion.status == Status.SUCCESS:
            completion = completion._replace(status=Status.CANCELED)
        super()._judge(queue, completion)


class Deaf(World):
    """A Notify never completes."""

    def _is_done(self, overlapped: Any) -> bool:
        return "notify" not in overlapped.call and super()._is_done(overlapped)


class Jumpy(World):
    """A Notify completes at once."""

    def _is_done(self, overlapped: Any) -> bool:
        return overlapped.call == "CompletionQueue.notify" or super()._is_done(overlapped)


class Numb(World):
    """A Notify of a shared receive queue never completes."""

    def _is_done(self, overlapped: Any) -> bool:
        return overlapped.call != "SharedReceiveQueue.notify" and super()._is_done(overlapped)

    def cancel_shared(self, node: Node) -> None:
        pass


class Alarmist(World):
    """A Notify of a shared receive queue completes at once."""

    def _is_done(self, overlapped: Any) -> bool:
        return overlapped.call == "SharedReceiveQueue.notify" or super()._is_done(overlapped)


class Rigid(World):
    """Modify says that it did, and did nothing."""

    def _modify(self, real: Any, depth: int, threshold: int) -> None:
        pass


class Slow(World):
    """One node is never polled."""

    def drain(self, node: Node, role: str, most: int = 64) -> int:
        return 0 if node is self.nodes[1] else super().drain(node, role, most)


class Dependent(World):
    """Nothing arrives while its sender computes."""

    def _drain_alone(self, node: Node) -> int:
        return 0


class Stale(World):
    """Writes go astray: memory is not what it should be."""

    def _check_targets(self) -> None:
        for pair in itertools.chain(*self.slots):
            if pair.target.dirty:
                pair.target.shadow[0] ^= 1
        super()._check_targets()


# fmt: off
HOSTILE_PEERS = [
    Swapped, Lost, Doubled, Torn, Short, Copied, Hopeful, Gloomy, Deaf, Jumpy, Numb, Slow, Stale,
    # Each is found after ten or thirty seconds.
    *(pytest.param(world, marks=pytest.mark.further) for world in (Alarmist, Rigid, Dependent)),
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("world", HOSTILE_PEERS)
def test_each_fault_is_found(world: type[World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference.world.LOST", 0.05)
    monkeypatch.setattr("reference.computing.PATIENCE", 0.05)

    class Lying(Machine):
        world_type = world

    # Two processors do not repeat each program alike: a fault that is found once is found.
    with pytest.raises((Violation, FlakyFailure)):
        run_state_machine_as_test(Lying, settings=SEARCH)
