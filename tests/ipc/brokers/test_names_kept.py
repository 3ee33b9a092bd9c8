# SPDX-License-Identifier: Apache-2.0
"""Names whose processes make no call after the broker has ended: the next broker knows none."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from processes.kit import PATIENCE, Child, broker_pid, end_process
from shmnd import ipc
from shmnd.status import NdError

pytestmark = pytest.mark.slow

OWNER = """
import threading
from shmnd import ipc
kind, name = hear()
if kind == "listener":
    end = ipc.Listener(name)
elif kind == "notifier":
    end = ipc.Notifier(name)
elif kind == "queue":
    end = ipc.Queue(name=name)
    end.put("first")
elif kind == "server":
    end = ipc.Server(name, request="i8", response="i8")
elif kind == "client":
    end = ipc.Client(name, request="i8", response="i8")
elif kind == "writer":
    end = ipc.Blackboard(name, {"x": "f8"})
    end["x"] = 3
say("open")
while True:
    what = hear()
    if what == "over":
        break
    elif what == "close":
        end.close()
        say("closed")
    elif kind == "listener":
        say(sorted(end.wait(20)))
    elif kind == "notifier":
        end.notify(5)
        say("notified")
    elif kind == "queue":
        say([end.get(timeout=20), end.get(timeout=20)])
    elif kind == "server":
        threading.Thread(target=end.serve, args=(lambda it: it.value + 1,), daemon=True).start()
        say("serves")
    elif kind == "client":
        say(int(end.call(6, timeout=20).value))
    elif kind == "writer":
        end["x"] = 4
        say("written")
"""


@pytest.fixture
def name() -> str:
    return f"name-{uuid.uuid4().hex}"


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child(OWNER) as child:
        yield child


def opened(owner: Child, kind: str, name: str) -> None:
    """Have a process open a name, and the broker end that knows it."""
    owner.say([kind, name])
    assert owner.hear() == "open"
    end_process(broker_pid())


def reply(owner: Child, what: str = "continue") -> Any:
    owner.say(what)
    return owner.hear()


def test_a_notifier_finds_the_listener(name: str, owner: Child) -> None:
    opened(owner, "listener", name)
    with ipc.Notifier(name) as notifier:
        assert notifier.listeners == 1
        notifier.notify(3)
        assert reply(owner) == [3]


def test_a_listener_finds_the_notifier(name: str, owner: Child) -> None:
    opened(owner, "notifier", name)
    with ipc.Listener(name) as listener:
        assert reply(owner) == "notified"
        assert listener.wait(PATIENCE) == {5}


def test_a_queue_is_the_same(name: str, owner: Child) -> None:
    opened(owner, "queue", name)
    with ipc.Queue(name=name) as queue:
        assert queue.qsize() == 1
        queue.put("second")
        end_process(broker_pid())
        with ipc.Queue(name=name) as again:
            assert again.qsize() == 2
        assert reply(owner) == ["first", "second"]


def test_a_client_finds_the_server(name: str, owner: Child) -> None:
    opened(owner, "server", name)
    with pytest.raises(ipc.TypeMismatch):
        ipc.Client(name, request="f8", response="i8")
    with ipc.Client(name, request="i8", response="i8") as client:
        assert reply(owner) == "serves"
        assert client.call(4, timeout=PATIENCE).value == 5


def test_a_server_finds_the_client(name: str, owner: Child) -> None:
    opened(owner, "client", name)
    with ipc.Server(name, request="i8", response="i8") as server:
        owner.say("call")
        request = server.receive(PATIENCE)
        request.respond(request.value * 2)
        assert owner.hear() == 12


def test_a_reader_finds_the_writer_and_there_is_one(name: str, owner: Child) -> None:
    opened(owner, "writer", name)
    with ipc.BlackboardReader(name) as reader:
        assert reader["x"] == 3
        assert reply(owner) == "written"
        assert reader["x"] == 4
        with pytest.raises(NdError, match=f"process {owner.pid} writes"):
            ipc.Blackboard(name, {"x": "f8"})
        assert reply(owner, "close") == "closed"
        with ipc.Blackboard(name, {"x": "f8"}) as board:
            board["x"] = 7
            assert reader.wait("x", timeout=PATIENCE) == 7


@pytest.mark.parametrize("kind", ["listener", "queue", "server", "writer"])
@pytest.mark.parametrize("ends", ["close", "kill"])
def test_a_name_that_was_left_is_free(name: str, owner: Child, kind: str, ends: str) -> None:
    opened(owner, kind, name)
    if ends == "close":
        assert reply(owner, "close") == "closed"
    else:
        owner.kill()
    with ipc.Queue(name=name) as queue, ipc.Notifier(name) as notifier:
        assert queue.qsize() == notifier.listeners == 0
    with ipc.Server(name, request="f4"), ipc.Blackboard(name, {"x": "f8"}):
        pass


@pytest.mark.parametrize("kind", ["listener", "queue", "writer"])
def test_one_that_the_broker_ends_under_opens_the_same(
    name: str, owner: Child, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has its turn by the next broker, which does not know whose turn it is."""
    from shmnd.ipc.naming.shared_name import SharedName

    announce = SharedName.announce

    def announce_late(self: SharedName, fd: int, **data: Any) -> None:
        monkeypatch.setattr(SharedName, "announce", announce)
        opened_within = [kind, name]
        end_process(broker_pid())
        owner.say(opened_within)
        assert owner.hear() == "open"
        announce(self, fd, **data)

    monkeypatch.setattr(SharedName, "announce", announce_late)
    if kind == "listener":
        with ipc.Notifier(name) as notifier:
            notifier.notify(3)
        assert reply(owner) == [3]
    elif kind == "queue":
        with ipc.Queue(name=name) as queue:
            queue.put("second")
        assert reply(owner) == ["first", "second"]
    else:
        with pytest.raises(NdError, match=f"process {owner.pid} writes"):
            ipc.Blackboard(name, {"x": "f8"})
