# SPDX-License-Identifier: Apache-2.0
"""Modules that other people compile against `shmnd.native`."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import shmnd
from shmnd import MrFlag, NdError, OpFlag, RequestType, Status

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs/reference/native.md"
EXAMPLE: Final = HERE.parents[1] / "docs/examples/native"
RIGHTS: Final = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
DEPTH: Final = 16
PATIENCE: Final = 20.0

pytestmark = pytest.mark.timeout(400)  # the first one waits for the compiler


def built(folder: Path, name: str, *sources: Path) -> ModuleType:
    """Build as the example's page says, in a folder of its own, and load the module."""
    for source in sources:
        shutil.copy(source, folder)
    setup = (EXAMPLE / "setup.py").read_text().replace("ping_pong", name)
    (folder / "setup.py").write_text(setup)
    ran = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (library,) = folder.glob(f"{name}*.so")
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return built(tmp_path_factory.mktemp("calls"), "calls", HERE / "calls.pyx")


class End:
    """A queue pair with a queue, memory for messages, and its connector."""

    def __init__(self, adapter: shmnd.Adapter) -> None:
        self.adapter = adapter
        self.queue = adapter.create_completion_queue(4 * DEPTH)
        self.pair = adapter.create_queue_pair(
            self.queue,
            self.queue,
            context=self,
            receive_depth=DEPTH,
            initiator_depth=DEPTH,
            max_receive_sge=4,
            max_initiator_sge=4,
            inline_size=64,
        )
        self.memory = adapter.allocate(1 << 20)
        self.region = adapter.create_memory_region()
        self.region.register(self.memory, RIGHTS).result()
        self.connector = adapter.create_connector()

    def taken(self, calls: Any, other: "End", count: int) -> list[Any]:
        """Completions, while the other end makes progress."""
        found: list[Any] = []
        end = time.monotonic() + PATIENCE
        while len(found) < count:
            found += calls.take(self.queue)
            calls.drain(other.queue)
            assert time.monotonic() < end, found
        return found


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    with shmnd.open_adapter() as adapter:
        active, passive = End(adapter), End(adapter)
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        active.connector.bind(("127.0.0.1", 0))
        connecting = active.connector.connect(active.pair, listener.get_local_address(), 4, 4)
        listener.get_connection_request(passive.connector).result(PATIENCE)
        accepting = passive.connector.accept(passive.pair, 4, 4)
        connecting.result(PATIENCE)
        active.connector.complete_connect().result(PATIENCE)
        accepting.result(PATIENCE)
        yield active, passive


def test_results_that_are_given_back_are_taken_first(
    calls: Any, ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception ends a call that has taken completions: the next one takes them again."""
    here, there = ends

    def interrupted(queue: Any) -> None:
        if not queue._queued:  # they were taken
            monkeypatch.undo()
            raise InterruptedError

    for number in range(3):
        calls.receive(there.pair, [there.region.sge(100 * number, 100)], ["in", number])
    told = there.queue.notify()
    for number in range(3):
        calls.send(here.pair, [here.region.sge(0, 10 + number)], number)
    monkeypatch.setattr(shmnd.CompletionQueue, "_tick", interrupted)
    with pytest.raises(InterruptedError):
        calls.take(there.queue)
    assert told.result(PATIENCE) is None
    assert calls.drain(there.queue) == 3
    calls.receive(there.pair, [], "flushed")
    there.pair.flush()
    first = calls.take(there.queue, 2)
    assert [entry[0] for entry in first] == [["in", 0], ["in", 1]]
    found = first + calls.take(there.queue) + calls.take(there.queue)
    assert [entry[2:] for entry in found] == [
        (Status.SUCCESS, 10, RequestType.RECEIVE),
        (Status.SUCCESS, 11, RequestType.RECEIVE),
        (Status.SUCCESS, 12, RequestType.RECEIVE),
        (Status.CANCELED, 0, RequestType.RECEIVE),
    ]
    assert [entry[1] for entry in found] == [there] * 4


def test_messages_of_every_length(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    for length in (0, 1, 600, 5000, 70_000, 500_000):
        here.memory[:length] = length % 251
        there.memory[:] = 255
        assert calls.receive(there.pair, [there.region.sge(0, 100), there.region.sge(200)], 1) == 0
        parts = [
            here.region.sge(0, length // 3),
            here.region.sge(length // 3, length - length // 3),
        ]
        assert calls.send(here.pair, parts, length) == 0
        assert there.taken(calls, here, 1) == [(1, there, 0, length, RequestType.RECEIVE)]
        assert here.taken(calls, there, 1) == [(length, here, 0, 0, RequestType.SEND)]
        assert (there.memory[: min(length, 100)] == length % 251).all()
        assert (there.memory[200 : 100 + length] == length % 251).all()


def test_reads_and_writes(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    here.memory[:] = 7
    source, far = here.region.sge(0, 300_000), there.region
    assert calls.write(here.pair, [source], far.address + 9, far.remote_token, "w") == 0
    assert [each[0] for each in here.taken(calls, there, 1)] == ["w"]
    assert (there.memory[9:300_009] == 7).all()
    assert there.memory[300_009] == 0
    target = here.region.sge(500_000, 10)
    assert calls.read(here.pair, [target], far.address + 4, far.remote_token, "r") == 0
    assert [each[4] for each in here.taken(calls, there, 1)] == [RequestType.READ]
    assert here.memory[500_000:500_010].tolist() == [0] * 5 + [7] * 5


def test_completions_of_both_interfaces_mix(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    there.pair.receive(there.region.sge(), "python")
    assert calls.receive(there.pair, [there.region.sge()], "compiled") == 0
    assert calls.send(here.pair, [here.region.sge(0, 5)]) == 0
    here.pair.send(here.region.sge(0, 6))
    end = time.monotonic() + PATIENCE
    while calls.drain(there.queue) < 2:
        assert time.monotonic() < end
    (first,) = calls.take(there.queue, 1)
    assert first[0] == "python"
    assert first[3] == 5
    (second,) = there.queue.get_results()
    assert second.request_context == "compiled"
    assert second.bytes_transferred == 6
    assert here.queue.wait(timeout=PATIENCE)


def test_contexts_keep_their_number_of_references(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    context = object()
    before = sys.getrefcount(context), sys.getrefcount(here)
    for _ in range(DEPTH):
        assert calls.send(here.pair, [here.region.sge(0, 1)], context) == 0
    while (status := calls.send(here.pair, [here.region.sge(0, 1)], context)) == 0:
        pass
    assert status == Status.NO_MORE_ENTRIES
    there.connector.disconnect().result(PATIENCE)
    end = time.monotonic() + PATIENCE
    while sys.getrefcount(context) > before[0]:
        calls.take(here.queue, 3)
        assert time.monotonic() < end
    assert sys.getrefcount(here) == before[1]


def test_statuses_of_refused_requests(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    one, token = here.region.sge(0, 1), there.region.remote_token
    assert calls.send(here.pair, [one] * 5) == Status.DATA_OVERRUN
    assert calls.receive(here.pair, [one] * 40) == Status.DATA_OVERRUN
    assert calls.send(here.pair, [here.region.sge(0, 65)], None, OpFlag.INLINE) == (
        Status.BUFFER_OVERFLOW
    )
    assert calls.send(here.pair, [one], None, 1 << 20) == Status.INVALID_PARAMETER_4
    assert calls.write(here.pair, [one], 0, token, None, 1 << 20) == Status.INVALID_PARAMETER_6
    forged = shmnd.Sge(here.region.address, 1, 12345)
    assert calls.send(here.pair, [forged]) == 0
    assert here.taken(calls, there, 1)[0][2] == Status.ACCESS_VIOLATION


def test_requests_before_a_connection(calls: Any) -> None:
    with shmnd.open_adapter() as adapter:
        end = End(adapter)
        assert calls.send(end.pair, []) == Status.CONNECTION_INVALID
        assert calls.receive(end.pair, [], "kept") == 0
        end.pair.flush()
        assert calls.take(end.queue) == [("kept", end, Status.CANCELED, 0, RequestType.RECEIVE)]
        shared = adapter.create_shared_receive_queue(4)
        pair = adapter.create_queue_pair_with_srq(end.queue, end.queue, shared)
        assert calls.receive(pair, []) == Status.INVALID_DEVICE_REQUEST


def test_views_outlive_the_connection(calls: Any, ends: tuple[End, End]) -> None:
    here, there = ends
    adapter = there.adapter
    memory = adapter.allocate(4096, peers="read")
    memory[:] = 5
    region = adapter.create_memory_region()
    region.register(memory, MrFlag.ALLOW_REMOTE_READ).result()
    with pytest.raises(NdError, match="ACCESS_VIOLATION"):
        calls.peek(here.pair, region.address, region.remote_token, 4097)
    with pytest.raises(ValueError, match="at least one byte"):
        calls.peek(here.pair, region.address, region.remote_token, 0)
    assert calls.peek(here.pair, region.address, region.remote_token, 4096) == b"\5" * 4096


def test_other_objects_and_closed_ones(calls: Any) -> None:
    with pytest.raises(TypeError, match=r"native\.send: int is not a shmnd\.QueuePair"):
        calls.send(3, [])
    with pytest.raises(TypeError, match=r"native\.take: str is not a shmnd\.CompletionQueue"):
        calls.take("queue")
    with shmnd.open_adapter() as adapter:
        end = End(adapter)
        end.pair.close()
        assert calls.send(end.pair, []) in (Status.INVALID_HANDLE, Status.CONNECTION_INVALID)
        end.queue.close()
        for call in (calls.take, calls.drain):
            with pytest.raises(NdError) as caught:
                call(end.queue)
            assert caught.value.status == Status.INVALID_HANDLE


def test_a_forked_child_is_refused(calls: Any, ends: tuple[End, End]) -> None:
    here, _ = ends

    def refused(call: Callable[[], Any]) -> bool:
        try:
            call()
        except NdError:
            return True
        return False

    child = os.fork()
    if child == 0:
        fine = refused(lambda: calls.send(here.pair, [])) and refused(
            lambda: calls.receive(here.pair, [])
        )
        fine = fine and refused(lambda: calls.take(here.queue))
        os._exit(0 if fine and refused(lambda: calls.drain(here.queue)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_example(tmp_path: Path, ends: tuple[End, End]) -> None:
    example: Any = built(tmp_path, "ping_pong", EXAMPLE / "ping_pong.pyx")
    here, there = ends
    rounds, totals = 50, []

    def play(end: End, first: bool) -> None:
        outgoing, incoming = end.region.sge(0, 40), end.region.sge(4096, 64)
        totals.append(example.ping_pong(end.pair, end.queue, outgoing, incoming, rounds, first))

    partner = threading.Thread(target=play, args=(there, False))
    partner.start()
    play(here, True)
    partner.join(PATIENCE)
    assert totals == [40 * rounds] * 2


def test_the_program_of_the_page_compiles_and_runs(tmp_path: Path, ends: tuple[End, End]) -> None:
    """What the page shows compiles, and answers a message."""
    (block,) = re.findall(r"^```cython\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    source = tmp_path / "page" / "shown.pyx"
    source.parent.mkdir()
    source.write_text(block)
    page: Any = built(tmp_path, "shown", source)
    here, there = ends
    here.pair.receive(here.region.sge(100, 100))
    here.memory[:5] = there.memory[:5] = 9
    assert page.answer(there.pair, there.queue, there.region.sge(0, 5)) == Status.SUCCESS
    (result,) = here.queue.wait(timeout=PATIENCE)
    assert result.bytes_transferred == 5
