# SPDX-License-Identifier: Apache-2.0
"""Topics between processes: programs as users write them."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics import players

FORK = multiprocessing.get_context("fork")
PATIENCE = players.PATIENCE


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start a process; those that are left over are killed in the end."""
    started: list[Any] = []

    def begin(target: Callable[..., None], *args: Any) -> Any:
        child = FORK.Process(target=target, args=args)
        child.start()
        started.append(child)
        return child

    yield begin
    for child in started:
        child.kill()
        child.join()
        child.close()


def ended(child: Any) -> int:
    child.join(PATIENCE)
    code = child.exitcode
    assert code is not None, "it has not ended"
    return int(code)


@pytest.fixture
def out() -> Iterator[Any]:
    queue = FORK.SimpleQueue()
    yield queue
    queue.close()


def test_a_publisher_process_and_this_one(name: str, start: Any) -> None:
    with ipc.Subscriber(name, "i8", buffer=4, overflow="block") as sub:
        child = start(players.publish, name, 50, {})
        for number in range(50):
            with sub.receive(timeout=PATIENCE) as sample:
                assert sample.sequence == number
                assert sample.header == str(number).encode()
                assert players.is_numbered(sample.array, number)
                assert sample.publisher.pid == child.pid
        assert sub.lost == 0
        assert ended(child) == 0


def test_samples_of_a_killed_publisher_come_to_their_end(name: str, start: Any) -> None:
    with ipc.Subscriber(name, "i8", buffer=32, wait_for_publisher=False) as sub:
        child = start(players.publish_and_die, name, 20)
        while not sub.publishers:
            time.sleep(0.001)
        arrays = []
        for number in range(20):
            sample = sub.receive(timeout=PATIENCE)
            assert sample.sequence == number
            arrays.append(sample.array)
        assert ended(child) == -signal.SIGKILL
        with pytest.raises(ipc.NoPublisher):
            sub.receive(timeout=PATIENCE)
        assert all(players.is_numbered(array, at) for at, array in enumerate(arrays))
        with ipc.Publisher(name, "i8") as pub:
            pub.wait_for_subscribers(timeout=PATIENCE)
            pub.send(players.numbered(0))
            assert players.is_numbered(sub.receive(timeout=PATIENCE).array, 0)
        assert all(players.is_numbered(array, at) for at, array in enumerate(arrays))


def test_a_killed_subscriber_frees_its_samples(name: str, start: Any, out: Any) -> None:
    with ipc.Publisher(name, "i8", slots=8) as pub:
        child = start(players.hold_and_die, name, 6, out)
        assert out.get() == "ready"
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(6):
            pub.send(players.numbered(number))
        assert out.get() == 6
        for number in range(6, 12):  # its buffer takes these
            if number < 8:
                pub.send(players.numbered(number))
            else:
                with pytest.raises(ipc.LoanLimit, match="slots"):
                    pub.send(players.numbered(number))
        child.kill()
        ended(child)
        while pub.subscribers:
            time.sleep(0.001)
        for number in range(100):
            pub.send(players.numbered(number), timeout=PATIENCE)


def test_a_publisher_that_waits_continues_when_the_subscriber_dies(
    name: str, start: Any, out: Any
) -> None:
    with ipc.Publisher(name, "i8") as pub:
        child = start(players.hold_and_die, name, 3, out)
        assert out.get() == "ready"
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(6):
            pub.send(players.numbered(number), timeout=PATIENCE)
        assert out.get() == 3
        slow: list[ipc.SlowSubscriber] = []
        pub.on_slow = slow.append
        with pytest.raises(TimeoutError, match=str(child.pid)):
            pub.send(players.numbered(6), timeout=0.05)
        assert slow[0].pid == child.pid
        assert slow[0].topic == name
        assert slow[0].behind == 3
        timer = threading.Timer(0.1, child.kill)
        timer.start()
        assert pub.send(players.numbered(6), timeout=PATIENCE) == 6
        timer.join()


def test_every_form_comes_to_one_that_knows_no_type(name: str, start: Any) -> None:
    go = FORK.Event()
    child = start(players.publish_every_form, name, go)
    subs = {
        form: ipc.Subscriber(f"{name}-{form}")
        for form in ("dtype", "array", "record", "arrays", "bytes", "object")
    }
    with subs["dtype"] as sub:
        value = sub.receive(timeout=PATIENCE).value
        assert value.shape == (2, 3)
        assert value.dtype == "f4"
        assert not value.flags.writeable
    with subs["array"] as sub:
        sample = sub.receive(timeout=PATIENCE)
        assert sample.header == b"a header"
        assert sample.value.tolist() == np.arange(12).reshape(3, 4).tolist()
    with subs["record"] as sub:
        value = sub.receive(timeout=PATIENCE).value
        assert (value.step, value["time"], bool(value.ok)) == (5, 0.5, True)
        assert value.pose.tolist() == list(range(6))
        value = sub.receive(timeout=PATIENCE).value
        assert (value["step"], value.time, bool(value.ok)) == (6, 0.25, False)
        assert value["pose"].tolist() == [2.0] * 6
    with subs["arrays"] as sub:
        value = sub.receive(timeout=PATIENCE).value
        assert value.image.shape == (48, 64, 3)
        assert (value["image"] == 7).all()
        assert value.depth.dtype == "f4"
        assert not value.depth.any()
    with subs["bytes"] as sub:
        assert sub.receive(timeout=PATIENCE).value == b"x" * 100_000
    with subs["object"] as sub:
        value = sub.receive(timeout=PATIENCE).value
        assert value["text"] == "ü"
        assert value["none"] is None
        assert value["array"].sum() == np.arange(100_000).sum()
        assert not value["array"].flags.writeable
    go.set()
    assert ended(child) == 0


def test_the_types_of_two_processes_are_compared(name: str, start: Any) -> None:
    go = FORK.Event()
    child = start(players.publish_every_form, name, go)
    with pytest.raises(ipc.TypeMismatch) as caught, ipc.Subscriber(f"{name}-record", "f8") as sub:
        sub.receive(timeout=PATIENCE)
    assert "pose" in str(caught.value)
    assert "float64" in str(caught.value)
    assert isinstance(caught.value, TypeError)
    with ipc.Subscriber(f"{name}-record", players.State) as right:
        assert right.receive(timeout=PATIENCE).value.step == 5
    go.set()
    assert ended(child) == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_the_policies_between_processes(name: str, start: Any, out: Any, overflow: str) -> None:
    options = {"overflow": overflow, "buffer": 4}
    with ipc.Publisher(name, "i8", history=3) as pub:
        for number in range(10):
            pub.send(players.numbered(number))
        with ipc.Subscriber(name, "i8", **options) as late:
            pub.wait_for_subscribers(timeout=PATIENCE)
            sequences = [sample.sequence for sample in iter(late.try_receive, None)]
            assert sequences == ([9] if overflow == "conflate" else [7, 8, 9])
        child = start(players.receive, name, options, 1, out)
        assert out.get() == "ready"
        first, good = out.get()
        assert good
        assert first == (9 if overflow == "conflate" else 7)
        assert ended(child) == 0


class Account:
    """What a subscriber has received, and the gaps between that."""

    def __init__(self, sub: ipc.Subscriber) -> None:
        self.sub = sub
        self.received = self.missing = self.gaps = 0
        self.next: int | None = None

    def take(self) -> bool:
        """Receive a sample if there is one, and check it."""
        sample = self.sub.try_receive()
        if sample is None:
            return False
        with sample:
            number = sample.sequence
            size = 1 + number % players.WORDS
            assert np.array_equal(sample.array, players.numbered(number)[:size])
        if self.next is not None:
            assert number >= self.next
            self.gaps += number != self.next
            self.missing += number - self.next
        self.next = number + 1
        self.received += 1
        assert self.sub.lost >= self.missing  # at once, not at the end
        return True


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_a_subscriber_that_joins_a_busy_publisher_counts_its_losses(
    name: str, start: Any, out: Any, overflow: str
) -> None:
    stop = FORK.Event()
    options: dict[str, Any] = {"overflow": overflow, "buffer": 4}
    until = time.monotonic() + PATIENCE
    with ipc.Subscriber(name, "i8", **options) as first:
        there = Account(first)
        child = start(players.publish_until, name, stop, out)
        for joined in range(24):
            with ipc.Subscriber(name, "i8", history=(None, 0, 3)[joined % 3], **options) as late:
                account = Account(late)
                while account.received < 60:
                    assert time.monotonic() < until
                    account.take()
                    there.take()
                assert account.gaps <= 1 or overflow != "block"  # before it was met, never later
        stop.set()
        while out.empty():  # a publisher that waits for room gets it
            assert time.monotonic() < until
            there.take()
        count = out.get()
        while there.take():
            pass
        assert there.received + first.lost == count
        assert overflow != "block" or first.lost == 0
        assert ended(child) == 0


@pytest.mark.parametrize("target", [players.receive_in_loop, players.receive_by_select])
def test_other_loops_between_processes(name: str, start: Any, out: Any, target: Any) -> None:
    with ipc.Publisher(name, "i8") as pub:
        child = start(target, name, 20, out)
        assert out.get() == "ready"
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(20):
            pub.send(players.numbered(number))
            assert out.get() == (number, True)
        assert ended(child) == 0


def test_a_wait_set_of_everything(name: str) -> None:
    there, here = os.pipe()
    with (
        ipc.Subscriber(name) as sub, ipc.Server(name) as srv, ipc.Listener(name) as heard,
        ipc.Blackboard(name, {"pose": "6f8"}) as board, ipc.BlackboardReader(name) as reader,
        ipc.Queue() as queue, ipc.WaitSet() as ws,
    ):  # fmt: skip
        for each in (sub, srv, heard, reader, queue, there):
            ws.add(each)
        assert list(ws.wait(timeout=0)) == []
        with ipc.Publisher(name, "i8") as pub:
            pub.wait_for_subscribers(timeout=PATIENCE)
            pub.send(players.numbered(0))
            assert sub in ws.wait(timeout=PATIENCE)
            assert players.is_numbered(sub.receive(timeout=0).array, 0)
            assert list(ws.wait(timeout=0)) == []
            timer = threading.Timer(0.05, pub.send, (players.numbered(1),))
            timer.start()
            assert list(ws.wait(timeout=PATIENCE)) == [sub]
            timer.join()
            sub.receive(timeout=0)
        with ipc.Client(name) as client:
            pending = client.send(3)
            assert list(ws.wait(timeout=PATIENCE)) == [srv]
            srv.receive(timeout=0).respond(4)
            assert pending.result(PATIENCE).value == 4
        with ipc.Notifier(name) as notifier:
            notifier.notify(7)
        assert list(ws.wait(timeout=PATIENCE)) == [heard]
        assert heard.wait(timeout=0) == {7}
        board["pose"] = range(6)
        assert list(ws.wait(timeout=PATIENCE)) == [reader]
        assert reader["pose"][5] == 5
        queue.put("x")
        assert list(ws.wait(timeout=PATIENCE)) == [queue]
        queue.get()
        os.write(here, b"x")
        assert list(ws.wait(timeout=PATIENCE)) == [there]
    os.close(there)
    os.close(here)


def test_topics_are_listed_and_watched(name: str, start: Any, out: Any) -> None:
    with ipc.watch() as watch, ipc.Publisher(name, "i8", attributes={"unit": "m"}) as pub:
        child = start(players.receive, name, {}, 1, out)
        assert out.get() == "ready"
        pub.wait_for_subscribers(timeout=PATIENCE)
        (found,) = ipc.topics()
        assert found.name == name
        assert found.kind == "topic"
        assert found.type == {"dtype": "<i8"}
        assert found.attributes == {"unit": "m"}
        assert found.counts == {"publisher": 1, "subscriber": 1}
        assert (child.pid, "subscriber") in found.who
        pub.send(players.numbered(0))
        assert ended(child) == 0
        seen = []
        for change in watch:
            assert change.name == name
            assert change.kind == "topic"
            seen.append((change.event, change.role))
            if len(seen) == 3:
                break
        assert seen == [("came", "publisher"), ("came", "subscriber"), ("gone", "subscriber")]


def test_views_outlive_publisher_and_subscriber(name: str, start: Any) -> None:
    sub = ipc.Subscriber(name, "i8", buffer=16)
    child = start(players.publish_and_die, name, 10)
    while not sub.publishers:
        time.sleep(0.001)
    samples = [sub.receive(timeout=PATIENCE) for _ in range(10)]
    views = [memoryview(samples[0]), samples[1].array[5:9], samples[2].array.reshape(10, -1)]
    copied = pickle.dumps(samples[3].array)
    held = [sample.array for sample in samples[4:]]
    assert ended(child) == -signal.SIGKILL
    sub.close()
    del sub, samples
    gc.collect()
    assert views[0][0] == 0
    assert list(views[1]) == list(players.numbered(1)[5:9])
    assert players.is_numbered(views[2].ravel(), 2)
    assert players.is_numbered(pickle.loads(copied), 3)
    checked: list[bool] = []
    thread = threading.Thread(
        target=lambda: checked.extend(players.is_numbered(a, 4 + n) for n, a in enumerate(held))
    )
    thread.start()
    thread.join()
    assert checked == [True] * 6


def test_an_interpreter_ends_with_views_alive(name: str, start: Any, out: Any) -> None:
    with ipc.Publisher(name, "i8") as pub:
        child = start(players.view_at_exit, name, out)
        assert out.get() == "ready"
        pub.wait_for_subscribers(timeout=PATIENCE)
        pub.send(players.numbered(0))
        assert out.get() == 2
        assert ended(child) == 0
        while pub.subscribers:
            time.sleep(0.001)


def test_threads_that_wait_at_the_end_of_the_interpreter_print_nothing() -> None:
    """The end closes what they wait at."""
    code = (
        "import threading; from shmnd import ipc\n"
        "sub, pub = ipc.Subscriber('a'), ipc.Publisher('b', 'f8')\n"
        "calls = [sub.receive] * 4 + [pub.wait_for_subscribers] * 4\n"
        "calls += [ipc.WaitSet(sub, ipc.Queue()).wait for _ in range(8)]\n"
        "for each in calls: threading.Thread(target=each, daemon=True).start()\n"
        "import time; time.sleep(0.2)"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert done.stderr == b""


def test_many_publishers_and_subscribers(name: str, start: Any, out: Any) -> None:
    options = {"overflow": "block", "buffer": 4}
    children = [start(players.receive, name, options, 60, out) for _ in range(2)]
    for _ in children:
        assert out.get() == "ready"
    senders = [start(players.publish, name, 20, {}, 2) for _ in range(3)]
    found = [out.get() for _ in range(120)]
    assert all(good for _, good in found)
    for number in range(20):
        assert sum(sequence == number for sequence, _ in found) == 6
    for each in children + senders:
        assert ended(each) == 0
