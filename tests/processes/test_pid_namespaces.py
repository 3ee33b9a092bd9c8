# SPDX-License-Identifier: Apache-2.0
"""Processes of two PID namespaces: each has another number there, or none, or that of a third."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shmnd
from processes.kit import PATIENCE, Child, broker_pid, end_process, unshared
from shmnd import ipc
from shmnd.broker.place import place_of
from shmnd.common.descriptors import Descriptor
from shmnd.ipc.common import members
from shmnd.ipc.common.members import MemberTable, make_member_table
from shmnd.ipc.common.processes import Process, own_process, pid_here, pid_in_proc
from shmnd_tools.observe.counter_reader import CounterReader

pytestmark = pytest.mark.slow

SPACE = "elsewhere"
INSIDE = """
import threading
from shmnd import ipc
topic = ipc.Publisher("topic", object, history=1)
topic.send(["topic"])
queue = ipc.Queue(name="queue")
queue.put("queue")
board = ipc.Blackboard("board", {"x": "f8"})
board["x"] = 1.5
event = ipc.Notifier("event")
server = ipc.Server("service")
threading.Thread(target=lambda: server.receive(30).respond("own"), daemon=True).start()
say(ipc.Client("service").call(timeout=30).value)
while hear() == "event":
    event.notify(3)
while True:
    server.receive()
"""


@pytest.fixture(autouse=True)
def space(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of their own."""
    monkeypatch.setenv("SHMND_NAMESPACE", SPACE)


@contextmanager
def elsewhere(first: str) -> Iterator[Child]:
    """A process of another PID namespace; the broker is started by it, or by this one."""
    # Its program has not the number 1: other processes have its number here.
    command = [*unshared("--pid", "--fork", "--kill-child", "--mount-proc"), "sh", "-c"]
    adapter = shmnd.open_adapter() if first == "outside" else None
    try:
        with Child(INSIDE, wrapper=[*command, '"$@"; exit', "sh"]) as child:
            assert child.hear() == "own", "the processes in there meet"
            yield child
    finally:
        if adapter is not None:
            adapter.close()
            end_process(broker_pid(place_of()))


@pytest.mark.parametrize("first", ["outside", "inside"])
def test_all_objects_meet_or_report_why_they_cannot(first: str) -> None:
    with elsewhere(first) as child:
        with ipc.Subscriber("topic", object) as topic:
            assert topic.receive(PATIENCE).value == ["topic"]
        queue = ipc.Queue(name="queue")
        assert queue.get(timeout=PATIENCE) == "queue"
        queue.close()
        with ipc.Listener("event") as event:
            child.say("event")
            assert event.wait(PATIENCE) == {3}
        with ipc.BlackboardReader("board") as board:
            assert board["x"] == 1.5
        child.say("serve")
        with (
            ipc.Client("service") as client,
            pytest.raises(ipc.PeerLost, match=rf"see process {os.getpid()} in /proc.*--pid=host"),
        ):
            client.call(3, PATIENCE)


def test_a_member_of_another_namespace_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another number here, so those that sleep poll instead."""
    made = make_member_table("test")
    path = f"/proc/self/fd/{made.fd}"
    rooms = [MemberTable(Descriptor.of(os.open, path, os.O_RDWR), "test") for _ in range(2)]
    try:
        own = own_process()
        with monkeypatch.context() as patch:
            patch.setattr(members, "own_process", lambda: own._replace(space=own.space + 1))
            rooms[0].join("test")
        rooms[1].join("test")
        assert (rooms[0].pids(), rooms[1].pids()) == ({own.number}, {0})
    finally:
        for room in rooms:
            room.close()
        made.close()


def test_a_process_of_another_namespace_has_no_number_of_this_one() -> None:
    own = own_process()
    assert own.number == os.getpid()
    other = Process(own.space + 1, own.number)
    assert (pid_here(own), pid_in_proc(own)) == (own.number, own.number)
    assert (pid_here(other, own.number), pid_in_proc(other, own.number)) == (0, 0)


def test_commands_show_a_process_under_its_number_here_not_that_of_its_broker() -> None:
    with elsewhere("inside"):
        reader = CounterReader(SPACE)
        reader.refresh()
        assert reader.pages
        for page in reader.pages:
            status = Path(f"/proc/{page.pid}/status").read_text(encoding="utf-8")
            (numbers,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
            assert numbers.split()[1:] == [str(page.pid), str(page.view.pid)]


WITHOUT_PROC = """
from shmnd import ipc
kinds = {
    "queue": lambda: ipc.Queue(name="queue"),
    "event": lambda: ipc.Notifier("event"),
    "service": lambda: ipc.Server("service"),
    "board": lambda: ipc.Blackboard("board", {"x": "f8"}),
    "reader": lambda: ipc.BlackboardReader("board"),
}
held = [make() for kind, make in kinds.items() if kind != "reader"] if hear() == "first" else []
say(os.path.exists("/proc/self"))
while (kind := hear()) != "end":
    try:
        kinds[kind]().close()
        say("opened")
    except Exception as exc:
        say(str(exc))
"""


def test_without_proc_no_second_memory_of_a_name_is_made() -> None:
    """Whose process does not see the first one: the two would never meet."""
    command = [*unshared("--mount"), "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    with Child(WITHOUT_PROC, wrapper=command) as first:
        first.say("first")
        assert first.hear() is False
        with Child(WITHOUT_PROC, wrapper=command) as second:
            second.say("second")
            assert second.hear() is False
            for kind in ("queue", "event", "service", "board", "reader"):
                second.say(kind)
                said = second.hear()
                why = "there is one writer" if kind == "board" else "mount -t proc"
                assert why in said, f"{kind}: {said}"
                assert str(first.pid) in said
            second.say("end")
        first.say("end")
