# SPDX-License-Identifier: Apache-2.0
"""A mesh of processes, as message-passing programs make it: all to all, head to head."""

from collections.abc import Iterator

import pytest

from spi.harness import Options, in_background
from spi.mesh import LENGTHS, take_part
from spi.remote import RemoteProcess


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> Iterator[list[RemoteProcess]]:
    made = [RemoteProcess() for _ in range(request.param)]
    yield made
    for process in made:
        process.kill()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.further)])
@pytest.mark.parametrize("processes", [4, 8], indirect=True, ids=["4", "8"])
def test_all_pairs_of_processes_connect_head_to_head(
    processes: list[RemoteProcess], seed: int
) -> None:
    _meet(processes, seed)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("processes", [4], indirect=True)
def test_meetings_in_each_order_of_events(processes: list[RemoteProcess]) -> None:
    """Messages of the broker, rings and sleeps coincide in another way each time."""
    for seed in range(30):
        _meet(processes, seed)


def _meet(processes: list[RemoteProcess], seed: int) -> None:
    members = [process.open(Options(cq_depth=512)) for process in processes]
    addresses = [member.listen() for member in members]
    running = [
        in_background(member.run, take_part, rank, addresses, seed)
        for rank, member in enumerate(members)
    ]
    failed = [error for role in running if (error := role.wait(timeout=100)) is not None]
    if failed:  # all of them: the first one that is late often waits for another that failed
        raise BaseExceptionGroup("members of the mesh failed", failed)
    received = [role.value for role in running]
    assert received == [len(LENGTHS) * (len(members) - 1)] * len(members)
    for member in members:
        member.dispose()
