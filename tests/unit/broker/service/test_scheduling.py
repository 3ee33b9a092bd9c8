# SPDX-License-Identifier: Apache-2.0
"""The broker runs behind the processes that make many connections, and at once otherwise."""

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from shmnd.broker.place import Place
from shmnd.broker.service.scheduling import MANY, Scheduling
from shmnd.broker.service.server import Server
from unit.broker.service.test_server import eventually
from unit.broker.wire import Wire
from unit.sealed import sealed_memory


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The policies that were set, instead of setting them."""
    found: list[int] = []

    def note(pid: int, policy: int, parameter: os.sched_param) -> None:
        assert (pid, parameter.sched_priority) == (0, 0)
        found.append(policy)

    monkeypatch.setattr(os, "sched_setscheduler", note)
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_OTHER)
    return found


def test_many_undecided_connections_change_the_policy(policies: list[int]) -> None:
    scheduling = Scheduling()
    scheduling.follow(MANY - 1, 1, 5.0)
    assert (policies, scheduling.until) == ([], 0.0)
    scheduling.follow(MANY, 2, 5.0)
    scheduling.follow(MANY + 9, 3, 5.001)
    assert policies == [os.SCHED_BATCH]
    assert 5.001 < scheduling.until < 5.1
    scheduling.follow(MANY - 1, 4, 5.002)
    assert (policies, scheduling.until) == ([os.SCHED_BATCH, os.SCHED_OTHER], 0.0)


def test_connections_that_wait_for_a_program_do_not_keep_it(policies: list[int]) -> None:
    scheduling = Scheduling()
    scheduling.follow(MANY, 1, 5.0)
    until = scheduling.until
    scheduling.follow(MANY, 1, 5.001)
    assert (policies, scheduling.until) == ([os.SCHED_BATCH], until)
    scheduling.follow(MANY, 1, until)
    scheduling.follow(MANY, 1, until + 1)
    assert (policies, scheduling.until) == ([os.SCHED_BATCH, os.SCHED_OTHER], 0.0)
    scheduling.follow(MANY, 2, until + 2)
    assert policies[2:] == [os.SCHED_BATCH]


def test_a_system_that_forbids_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_OTHER)

    def forbid(pid: int, policy: int, parameter: os.sched_param) -> None:
        asked.append(policy)
        raise PermissionError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    scheduling = Scheduling()
    for step in range(5):
        scheduling.follow(step % 2 * MANY, step, 5.0 + step)
    assert asked == [os.SCHED_BATCH]


def test_a_system_that_does_not_name_the_policy_is_left_alone(
    policies: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(pid: int) -> int:
        raise PermissionError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "sched_getscheduler", forbid)
    Scheduling().follow(MANY, 1, 5.0)
    assert policies == []


def test_a_policy_that_was_chosen_for_the_broker_is_left_alone(
    policies: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_IDLE)
    Scheduling().follow(MANY, 1, 5.0)
    assert policies == []


@pytest.mark.skipif(
    os.sched_getscheduler(0) != os.SCHED_OTHER, reason="the tests have another policy"
)
def test_the_system_takes_the_policies() -> None:
    found = []

    def change() -> None:  # of this thread alone
        scheduling = Scheduling()
        for undecided in MANY, 0:
            scheduling.follow(undecided, undecided, 5.0)
            found.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    assert found == [os.SCHED_BATCH, os.SCHED_OTHER]


def test_a_broker_changes_it_and_returns_by_itself(
    policies: list[int], place: Place, broker: Server
) -> None:
    with Wire(place).hello() as active, Wire(place).hello() as passive:
        port = passive.listen(1, backlog=MANY)
        for number in range(1, MANY):
            active.connect(number, port)
        assert policies == []
        active.connect(MANY, port)  # no connector waits for any of them
        eventually(lambda: policies == [os.SCHED_BATCH, os.SCHED_OTHER])


def test_ends_of_connections_do_not_keep_it(
    policies: list[int], place: Place, broker: Server
) -> None:
    """Connects wait in a backlog for a program, and connections that were accepted end."""
    with Wire(place).hello() as active, Wire(place).hello() as passive:
        port = passive.listen(1, backlog=MANY + 1)
        passive.ask("request", object=1, connector=2)
        number = active.connect(1, port)
        passive.event("offer")
        link = sealed_memory()
        passive.ask("accept", [link], connection=number, size=4096)
        os.close(link)
        for each in range(2, MANY + 2):
            active.connect(each, port)
        eventually(lambda: policies == [os.SCHED_BATCH, os.SCHED_OTHER])
        for end in active, passive:
            end.ask("closed", connection=number)
        active.ask("sync")
        assert policies == [os.SCHED_BATCH, os.SCHED_OTHER]
