# SPDX-License-Identifier: Apache-2.0
"""The life of a progress engine, its forks, and the real broker."""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shmnd.address import Address
from shmnd.broker.client import BrokerClient
from shmnd.connector import Connector
from shmnd.listener import Listener
from shmnd.runtime.progress import ProgressEngine
from shmnd.runtime.waiting import WaitSet
from shmnd.status import NdError, Status
from unit.fakes import FakeAdapter, FakeDataPlane, World
from unit.opened import is_open
from unit.runtime.progress_kit import WAIT
from unit.sides import Sides


# -- the life of a progress engine
# ----------------------------------------------------------------------------
def test_the_last_adapter_closes_the_engine(world: World) -> None:
    first = world.adapter()
    engine = first._engine
    second = world.adapter(engine=engine)
    lingering: list[int] = []

    def never_ends() -> bool:
        lingering.append(1)
        return False

    engine.pending_operations.poll_until_done(never_ends)
    first.close()
    assert engine.alive
    second.close()
    assert not engine.alive
    engine.close()
    engine.progress()
    engine.post("sync")
    with pytest.raises(NdError, match=r"Connector\.bind: its adapter is closed") as caught:
        engine.check("Connector.bind")
    assert caught.value.status is Status.DEVICE_REMOVED
    assert len(lingering) >= 2


def test_calls_by_the_hundred_take_messages_of_the_broker_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = world.adapter()._engine
    client: Any = engine.client
    arrived = taken = 0

    def take() -> list[Any]:
        nonlocal taken
        taken += bool(arrived)
        return []

    monkeypatch.setattr(client, "events", take)
    client.wake()  # and it stays readable
    begun = time.monotonic()
    arrived = 1
    while (elapsed := time.monotonic() - begun) < 0.05:
        engine.progress_by_calls()
    assert 16 < taken <= 18 + elapsed * 3000

    before = taken
    engine.progress()
    assert taken == before + 1, "any other poll takes them at once"
    engine.progress_by_calls()
    before = taken
    assert engine.wait(lambda: taken > before, 10), "a wait takes them at once"
    time.sleep(0.02)
    before = taken
    engine.progress_by_calls()
    assert taken == before + 1, "after a pause the first call takes them"


def test_a_engine_that_finds_no_broker_leaves_nothing() -> None:
    def no_broker(engine: ProgressEngine) -> Any:
        raise OSError("none")

    with pytest.raises(OSError, match="none"):
        ProgressEngine(no_broker, FakeDataPlane())


def run_in_child(check: Any) -> str:
    """What a function gives in a forked child."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.write(sending, str(check()).encode())
            code = 0
        except BaseException as exc:
            os.write(sending, repr(exc).encode())
        finally:
            os._exit(code)
    os.close(sending)
    with open(receiving, "rb") as stream:  # noqa: PTH123 - a descriptor
        said = stream.read().decode()
    assert os.waitpid(pid, 0)[1] == 0, said
    return said


def test_a_forked_child_is_refused_and_the_parent_does_not_notice(sides: Sides) -> None:
    sides.to("A4")
    notice = sides.active.connector.notify_disconnect()
    idle = sides.passive.new_connector()
    waiting = sides.listener.get_connection_request(idle)
    sides.active.file.fileno()
    sides.active.file.poll()
    said = len(sides.world.broker.calls)
    epoll_fd = sides.active.engine.epoll_fd

    def child() -> str:
        seen = []
        for call in (
            sides.active.connector.disconnect,
            sides.active.connector.get_local_address,
            sides.active.connector.cancel_overlapped_requests,
            lambda: sides.active.connector.bind(("127.0.0.1", 0)),
            sides.listener.get_local_address,
            sides.active.file.poll,
            notice.result,
            sides.active.engine.sync,
        ):
            try:
                call()
                seen.append("?")
            except NdError as exc:
                seen.append(exc.status.name if "fork" in str(exc) else str(exc))
        assert not is_open(epoll_fd)
        assert notice.status is Status.DEVICE_REMOVED
        assert sides.active.connector.get_overlapped_result(notice, wait=True) is notice.status
        sides.active.connector.close()
        sides.passive.connector.close()
        sides.listener.close()
        sides.active.file.close()
        sides.active.adapter.close()
        assert len(sides.world.broker.calls) == said, "nothing is said for the parent"
        return " ".join(sorted(set(seen)))

    lock = sides.active.engine.rpc
    with lock:  # as if another thread spoke with the broker while this one forks
        assert run_in_child(child) == "DEVICE_REMOVED"
    assert len(sides.world.broker.calls) == said
    assert waiting.status is Status.PENDING
    os.eventfd_write(sides.active.engine.doorbell_fd, 1)
    assert select.select([sides.active.file], [], [], 0)[0]
    assert sides.passive.connector.disconnect().status is Status.SUCCESS
    notice.result(WAIT)
    sides.active.engine.sync()


def test_fork_while_another_thread_waits(sides: Sides) -> None:
    sides.to("A4")
    notice = sides.active.connector.notify_disconnect()
    thread = threading.Thread(target=notice.result, args=(WAIT,))
    thread.start()
    while not sides.active.engine._wait_set._polling:
        time.sleep(0)

    def child() -> str:
        sides.active.connector.close()
        return notice.status.name

    assert run_in_child(child) == "CANCELED"
    sides.passive.connector.disconnect()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_an_end_waits_for_the_thread_that_sleeps() -> None:
    """What it is woken by must not go before it has seen it: it would sleep on."""
    wait_set = WaitSet()
    order: list[str] = []
    entered = threading.Event()

    class SlowEpoll:
        def __init__(self, real: Any) -> None:
            self.real = real

        def poll(self, timeout: float, most: int) -> Any:
            entered.set()
            found = self.real.poll(timeout, most)
            time.sleep(0.05)
            order.append("woken")
            return found

        def close(self) -> None:
            order.append("closed")
            self.real.close()

    wait_set._epoll = SlowEpoll(wait_set._epoll)  # type: ignore[assignment]
    sleeper = threading.Thread(target=wait_set.sleep, args=(wait_set.generation, WAIT))
    sleeper.start()
    assert entered.wait(WAIT)
    wait_set.close()
    sleeper.join(WAIT)
    assert order == ["woken", "closed"]


def kill_broker(engine: ProgressEngine, runtime_dir: Path) -> None:
    """As a crash would end it."""
    import socket
    import struct

    assert isinstance(engine.client, BrokerClient)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.connect(engine.client.path)
        packed = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pidfd = os.pidfd_open(struct.unpack("3i", packed)[0])
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [])
    os.close(pidfd)


Server = tuple["subprocess.Popen[str]", Address]


def test_two_processes_and_the_real_broker(client: FakeAdapter, server: Server) -> None:
    _, address = server
    connector, qp = Connector(client), client.queue_pair()
    connector.connect(qp, address, 0, 0, b"hello").result(WAIT)
    assert connector.get_private_data() == b"hello"
    known: Any = client._engine.peer_adapter(connector._attempt.peer_adapter)  # type: ignore[union-attr]
    assert known.pid == server[0].pid
    connector.reject()
    with Connector(client) as other:
        refused = other.connect(client.queue_pair(), address, 0, 0, b"reject")
        del refused  # its queue pair went with the call: the attempt is abandoned
        qp = client.queue_pair()
    with Connector(client) as other:
        refused = other.connect(qp, address, 0, 0, b"reject")
        with pytest.raises(ConnectionRefusedError):
            refused.result(WAIT)
        assert other.get_private_data() == b"as you wish"
    connector.close()


def test_the_death_of_the_listening_process(client: FakeAdapter, server: Server) -> None:
    child, address = server
    connector, qp = Connector(client), client.queue_pair()
    connector.connect(qp, address).result(WAIT)
    last, last_qp = Connector(client), client.queue_pair()
    with pytest.raises(ConnectionRefusedError):
        last.connect(last_qp, address, 0, 0, b"die").result(WAIT)
    assert child.wait(WAIT) == 7
    with pytest.raises(ConnectionError, match="CONNECTION_INVALID"):
        connector.complete_connect()
    # Its port is free as soon as the broker has seen the end of its socket.
    assert client._engine.wait(lambda: _bound(last, address), WAIT)
    for obj in (connector, last):
        obj.close()


def _bound(connector: Connector, address: Address) -> bool:
    with contextlib.suppress(NdError):
        connector.bind(address)
        return True
    return False


def test_the_death_of_the_broker(client: FakeAdapter, server: Server, runtime_dir: Path) -> None:
    """Connections do not notice; listeners are found again; undecided connections are refused."""
    _, address = server
    connector, qp = Connector(client), client.queue_pair()
    connector.connect(qp, address).result(WAIT)
    silent = Listener(client)
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    undecided, undecided_qp = Connector(client), client.queue_pair()
    pending = undecided.connect(undecided_qp, silent.get_local_address())
    kill_broker(client._engine, runtime_dir)
    with pytest.raises(ConnectionRefusedError, match="the broker died"):
        pending.result(WAIT)
    connector.complete_connect().result(WAIT)
    assert connector.get_local_address()[1] in range(49152, 65536)

    def found_again() -> bool:
        """The listening process finds the new broker by itself, without a call."""
        with Connector(client) as again:
            qp = client.queue_pair()
            try:
                again.connect(qp, address).result(WAIT)
            except ConnectionRefusedError:
                return False
        return True

    deadline = time.monotonic() + WAIT
    while not found_again():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    notice = connector.notify_disconnect()
    assert notice.status is Status.PENDING
    connector.disconnect().result(WAIT)
    assert notice.status is Status.SUCCESS
    silent.close()
    undecided.close()


def test_an_idle_process_with_a_listener_rejoins_while_it_selects(
    client: FakeAdapter, runtime_dir: Path
) -> None:
    with Listener(client) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        kill_broker(client._engine, runtime_dir)
        assert select.select([client._engine.epoll_fd], [], [], WAIT)[0]
        client._engine.progress()
        assert client._engine.wait(
            lambda: client._engine.client.alive and not client._engine._reconnection.under_way, WAIT
        )
        client._engine.progress()
        assert not select.select([client._engine.epoll_fd], [], [], 0)[0]
        partner, partner_qp = Connector(client), client.queue_pair()
        active, active_qp = Connector(client), client.queue_pair()
        pending = active.connect(active_qp, listener.get_local_address())
        listener.get_connection_request(partner).result(WAIT)
        partner.accept(partner_qp)
        pending.result(WAIT)
        active.close()
        partner.close()


class Unopened:
    """An adapter that could not be opened."""

    def __init__(self, uid: str) -> None:
        self.uid = uid


def test_an_engine_that_a_finaliser_closes_while_it_is_taken_is_not_returned(
    namespace: str,
) -> None:
    pytest.importorskip("shmnd.ring")
    users: list[Any] = [Unopened(name) for name in "ab"]
    engine = ProgressEngine.of("a", namespace)

    class Collecting(set[str]):
        """The collection of an adapter comes here, in the thread that takes the engine."""

        def add(self, user: str) -> None:
            engine.unregister_adapter(users[0])
            super().add(user)

    engine._users = Collecting(engine._users)
    try:
        found = ProgressEngine.of("b", namespace)
        assert found.alive
        assert found is not engine
        assert list(ProgressEngine._engines.values()) == [found]
    finally:
        ProgressEngine.give_back(users[1])
    assert not ProgressEngine._engines


def test_an_end_that_is_interrupted_continues(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("shmnd.ring")
    user: Any = Unopened("a")
    engine = ProgressEngine.of("a", namespace)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine.loops, "leave", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.unregister_adapter(user)
    assert engine.closed
    assert engine.client.alive
    engine.unregister_adapter(user)
    assert not engine.client.alive
    assert not ProgressEngine._engines


def test_a_namespace_has_one_engine(namespace: str) -> None:
    pytest.importorskip("shmnd.ring")
    users: list[Any] = [Unopened(name) for name in "abcd"]
    one, two, other = (
        ProgressEngine.of("a", namespace),
        ProgressEngine.of("b", namespace),
        ProgressEngine.of("c", namespace + "-other"),
    )
    assert one is two
    assert one is not other
    for _ in range(2):
        one.unregister_adapter(users[0])
    assert one.alive, "each user counts once"
    ProgressEngine.give_back(users[1])
    assert not one.alive
    assert other.alive
    again = ProgressEngine.of("d", namespace)
    assert again is not one
    for user in users:
        ProgressEngine.give_back(user)
    assert not ProgressEngine._engines
    assert not again.alive
    assert not other.alive


def test_a_patched_standard_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gevent's and eventlet's patch_all do to `select`."""
    monkeypatch.delattr("select.epoll")
    with pytest.raises(NdError, match=r"open_adapter: select\.epoll is missing: gevent") as caught:
        ProgressEngine.of("a")
    assert caught.value.status is Status.NOT_SUPPORTED
