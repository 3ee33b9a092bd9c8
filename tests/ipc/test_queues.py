# SPDX-License-Identifier: Apache-2.0
"""Queues: items come out as they went in, and a waiter learns of them in time."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipc import queue_players
from shmnd import ipc

SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def q() -> Iterator[ipc.Queue]:
    with ipc.Queue() as made:
        yield made


OBJECTS: list[Any] = [
    None, 0, -1, 1 << 200, "text", b"", b"x" * 10, bytes(300_000), (1, [2.5, {"k": {3}}]),
    bytearray(b"abc" * 10_000), np.float64(2.5), {"a" * 1000: b"y" * 1_000_000},
]  # fmt: skip


WITHOUT_MEMORY = """
import asyncio, os
os.environ["SHMND_MEMORY_LIMIT"] = "8M"
from shmnd import ipc
q = ipc.JoinableQueue()
for put in (q.put, lambda item: asyncio.run(q.aput(item))):
    try:
        put(bytes(16 << 20))
    except MemoryError as error:
        assert "SHMND_MEMORY_LIMIT" in str(error), error
    else:
        raise AssertionError("the item is lost, and the caller does not know")
with ipc.Client(f"memory-{os.getpid()}") as client:
    try:
        client.send(bytes(16 << 20))
    except MemoryError:
        pass
q.put("small")
assert q.get(timeout=30) == "small"
q.task_done()
q.join()
"""


def test_an_item_that_finds_no_memory_is_an_error_of_the_put() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=True)


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_objects_come_back_equal(q: ipc.Queue, number: int) -> None:
    sent = OBJECTS[number]
    q.put(sent)
    got = q.get(timeout=30)
    assert got == sent
    assert type(got) is type(sent)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10),
        np.zeros((0, 3)),
        np.array(3.0),
        np.arange(60_000, dtype=">i4").reshape(3, 4, 5000),
        np.asfortranarray(np.arange(90_000.0).reshape(300, 300)),
        np.arange(1 << 20)[::2],
        np.array([(1, 2.5)] * 5000, dtype=[("a", "i4"), ("b", "f8")]),
        np.array([{"k": 1}, None], dtype=object),
        np.array(["2026-01-01"] * 3, dtype="M8[D]"),
        np.ones(1 << 20, bool),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}",
)
def test_arrays_come_back_equal_and_writable(q: ipc.Queue, array: Any) -> None:
    q.put(array)
    got = q.get(timeout=30)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert (got == array).all()
    assert got.flags.writeable


def test_a_large_array_is_not_copied_and_its_memory_comes_back(q: ipc.Queue) -> None:
    places = set()
    for number in range(20):
        q.put(np.full(1 << 20, number, np.uint8))
        got = q.get(timeout=30)
        assert got.base is not None
        assert (got == number).all()
        places.add(got.ctypes.data)
        del got
    assert len(places) <= 2  # the block that came back is used again


def test_arrays_stay_whole_while_they_are_held(q: ipc.Queue) -> None:
    held = []
    for number in range(50):
        q.put({"n": number, "x": np.full(30_000, number, np.uint8)})
        item = q.get(timeout=30)
        held.append((item["n"], item["x"][5:-5]))  # a slice holds the whole
    gc.collect()
    for number, part in held:
        assert (part == number).all()


def test_arrays_outlive_the_queue() -> None:
    with ipc.Queue() as q:
        q.put(np.arange(100_000))
        array = q.get(timeout=30)
    del q
    gc.collect()
    assert array.sum() == 100_000 * 99_999 // 2
    array[:] = 1
    assert pickle.loads(pickle.dumps(array)).sum() == 100_000


def test_more_arrays_are_held_than_can_be_in_place(q: ipc.Queue) -> None:
    held = []
    for number in range(1000):
        q.put(np.full(16_384, number % 251, np.uint8))
        held.append(q.get(timeout=30))
    assert all((array == number % 251).all() for number, array in enumerate(held))


def test_maxsize_is_exact() -> None:
    for limit in (1, 2, 3, 100):
        with ipc.Queue(limit) as q:
            for lap in range(3):
                for number in range(limit):
                    assert q.qsize() == number
                    assert not q.full()
                    q.put_nowait((lap, number))
                assert q.full()
                with pytest.raises(queue.Full):
                    q.put_nowait(None)
                with pytest.raises(queue.Full):
                    q.put(None, timeout=0.01)
                assert [q.get_nowait() for _ in range(limit)] == [(lap, n) for n in range(limit)]
                with pytest.raises(queue.Empty):
                    q.get_nowait()


def test_without_a_limit_a_put_never_waits(q: ipc.Queue) -> None:
    count = (1 << 16) + 3000
    for number in range(count):
        q.put(number)
    assert q.qsize() >= 1 << 16
    assert [q.get(timeout=10) for _ in range(count)] == list(range(count))
    q.close()
    q.join_thread()


@pytest.mark.parametrize("limit", [-1, 1 << 30])
def test_limits_of_maxsize(limit: int) -> None:
    if limit < 0:
        with ipc.Queue(limit) as q:
            q.put(1)
            assert not q.full()
    else:
        with pytest.raises(ValueError, match="at most"):
            ipc.Queue(limit)


def test_an_unpicklable_item_is_reported_as_in_multiprocessing(
    q: ipc.Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    q.put(lambda: None)
    q.put(5)
    assert q.get(timeout=30) == 5
    assert "<lambda>" in capsys.readouterr().err


def test_a_queue_is_passed_to_children_only(q: ipc.Queue) -> None:
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(q)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_there_and_back(method: str) -> None:
    context = multiprocessing.get_context(method)
    there, back = ipc.Queue(), ipc.Queue(3)
    child = context.Process(target=queue_players.echo, args=(there, back))
    child.start()
    for item in (1, "two", np.arange(50_000), None):
        there.put(item)
        got = back.get(timeout=60)
        assert np.array_equal(got, item) if item is not None else got is None
    child.join()
    there.close()
    back.close()


def test_threads_put_and_get(q: ipc.Queue) -> None:
    got: list[int] = []

    def take() -> None:
        while (item := q.get()) is not None:
            got.append(item)

    takers = [threading.Thread(target=take) for _ in range(3)]
    putters = [
        threading.Thread(target=lambda at=at: [q.put(at * 1000 + i) for i in range(1000)])
        for at in range(3)
    ]
    for each in takers + putters:
        each.start()
    for each in putters:
        each.join()
    for _ in takers:
        q.put(None)
    for each in takers:
        each.join()
    assert sorted(got) == list(range(3000))


def test_a_producer_that_ended_leaves_its_items() -> None:
    for target in (queue_players.put_and_end, queue_players.put_and_die):
        q = ipc.Queue()
        child = FORK.Process(target=target, args=(q, 30))
        child.start()
        child.join()
        for number in range(30):
            got, array = q.get(timeout=10)
            assert got == number
            assert (array == number % 251).all()
        assert q.empty()
        q.close()


def test_a_killed_consumer_leaves_the_items_it_had_not_taken() -> None:
    q = ipc.Queue(50)
    for number in range(50):
        q.put(np.full(20_000, number, np.uint8))
    child = FORK.Process(target=queue_players.take_and_die, args=(q, 20))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert [int(q.get(timeout=10)[0]) for _ in range(30)] == list(range(20, 50))
    # What the dead had is memory again: many times the same amount goes through.
    for number in range(2000):
        q.put(np.full(20_000, number % 251, np.uint8))
        assert q.get(timeout=10)[0] == number % 251
    q.close()


@pytest.mark.parametrize("rounds", [40, pytest.param(2000, marks=pytest.mark.soak)])
def test_processes_are_killed_at_any_instant(rounds: int) -> None:
    """Nothing is doubled, torn, or out of order, and no process waits for the dead."""
    seed = int(os.environ.get("SHMND_SEED", str(int(time.time()))))
    print("seed", seed)
    chance = np.random.default_rng(seed)
    q, out = ipc.Queue(100), ipc.Queue(100)
    makers = 0

    def start(kind: int) -> Any:
        nonlocal makers
        makers += 1
        target, args = (
            (queue_players.produce, (q, makers, seed + makers))
            if kind == 0
            else (queue_players.consume, (q, out))
        )
        child = FORK.Process(target=target, args=args, daemon=True)
        child.start()
        return child

    players = [(kind, start(kind)) for kind in (0, 0, 1, 1)]
    seen: set[tuple[int, int]] = set()
    try:
        for _ in range(rounds):
            for _ in range(int(chance.integers(1, 30))):
                who, number, good = out.get(timeout=30)
                assert good, (who, number)
                assert (who, number) not in seen
                seen.add((who, number))
            at = int(chance.integers(len(players)))
            kind, child = players[at]
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            players[at] = kind, start(kind)
    finally:
        for _, child in players:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
        q.close()
        out.close()
    assert len(seen) > rounds


def test_join_waits_for_all_that_was_put() -> None:
    q = ipc.JoinableQueue()
    workers = [FORK.Process(target=queue_players.work, args=(q,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(200):
        q.put(number)
    q.join()
    assert q.empty()
    for _ in workers:
        q.put(None)
    for worker in workers:
        worker.join()
    q.join()
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()
    q.close()


def test_join_of_a_closed_queue_makes_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    q = ipc.JoinableQueue()
    other = ipc.JoinableQueue.of_file(q._core)  # of this process as well, and open
    q.put(1)
    q.close()
    monkeypatch.setattr(q, "_bell_of", None)  # it fails where it makes one
    joined = threading.Thread(target=q.join)
    joined.start()
    time.sleep(0.5)  # five of its polls
    assert joined.is_alive()
    assert other.get(timeout=20) == 1
    other.task_done()
    joined.join(20)
    assert not joined.is_alive()
    other.close()


def test_join_does_not_wait_for_the_dead() -> None:
    q = ipc.JoinableQueue()
    for number in range(5):
        q.put(number)
    child = FORK.Process(target=queue_players.take_and_die, args=(q, 3))
    child.start()
    child.join()
    for _ in range(2):
        q.get(timeout=30)
        q.task_done()
    q.join()
    q.put(1)
    assert q._core.unfinished() == 1
    q.get(timeout=30)
    q.task_done()
    q.join()
    q.close()


def test_a_name_leads_to_one_queue() -> None:
    done = SPAWN.Event()
    children = [
        SPAWN.Process(target=queue_players.open_and_put, args=("jobs", number, done))
        for number in range(4)
    ]
    for child in children:
        child.start()
    with ipc.Queue(name="jobs") as q:
        assert q.name == "jobs"
        assert sorted(q.get(timeout=60) for _ in children) == [0, 1, 2, 3]
        done.set()
        for child in children:
            child.join()
    del q
    gc.collect()
    with ipc.Queue(name="jobs") as q:  # all that had it are gone
        assert q.empty()


@pytest.mark.parametrize("name", ["", "x" * 256, 5])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name"):
        ipc.Queue(name=name)


def test_waiting_costs_nothing() -> None:
    q, out = ipc.Queue(), ipc.Queue()
    child = FORK.Process(target=queue_players.sleep_in_get, args=(q, out))
    child.start()
    time.sleep(2)  # the child measures how much of it it worked
    q.put(1)
    assert out.get(timeout=30) < 0.1
    child.join()
    q.close()
    out.close()


def test_a_signal_ends_a_wait(q: ipc.Queue) -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):  # noqa: PT012 - it may come at once
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            q.get()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    q.put(1)
    assert q.get(timeout=30) == 1


def test_its_descriptor_is_readable_while_there_may_be_items(q: ipc.Queue) -> None:
    assert not select.select([q], [], [], 0)[0]
    for number in range(3):
        q.put(number)
    for number in range(3):
        assert select.select([q], [], [], 10)[0]
        assert q.get_nowait() == number
    with pytest.raises(queue.Empty):
        q.get_nowait()
    assert not select.select([q], [], [], 0)[0]
    FORK.Process(target=q.put, args=(5,)).start()
    assert select.select([q], [], [], 30)[0]
    assert q.get(timeout=30) == 5
    for child in multiprocessing.active_children():
        child.join()


def test_a_task_waits_while_others_run(q: ipc.Queue) -> None:
    async def main() -> list[Any]:
        with pytest.raises(queue.Empty):
            await q.aget(timeout=0.01)
        taking = [asyncio.create_task(q.aget(timeout=30)) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(3):
            await q.aput(number)
        return sorted(await asyncio.gather(*taking))

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_child_that_was_forked_is_a_member_of_its_own(q: ipc.Queue) -> None:
    q.put(np.arange(50_000))
    held = q.get(timeout=30)
    child = FORK.Process(target=queue_players.put_and_end, args=(q, 3))
    child.start()
    child.join()
    assert [q.get(timeout=30)[0] for _ in range(3)] == [0, 1, 2]
    assert held.sum() == 50_000 * 49_999 // 2  # its end in the child freed nothing


def test_repr_of_a_queue() -> None:
    with ipc.Queue(5) as q:
        q.put(1)
        assert repr(q) == "<Queue 1 of 5 items>"
    assert repr(q) == "<Queue closed>"
    assert repr(ipc.JoinableQueue()) == "<JoinableQueue 0 items>"


def test_a_program_ends_in_silence(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom shmnd import ipc\n"
        "q = ipc.Queue()\nq.put(np.ones(100_000))\nheld = q.get()\nq.put('left')\n"
        "other = ipc.JoinableQueue(name='exit')\nother.put(1)\nother.fileno()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.parametrize("rounds", [10, pytest.param(500, marks=pytest.mark.soak)])
def test_damaged_memory_is_an_error_and_no_crash(rounds: int) -> None:
    seed = int(os.environ.get("SHMND_SEED", str(int(time.time()))))
    print("seed", seed)
    child = SPAWN.Process(target=queue_players.use_scribbled, args=(seed, rounds))
    child.start()
    child.join(100 if rounds == 10 else None)
    assert child.exitcode == 0


def test_arrays_of_changing_types_keep_type_shape_and_values() -> None:
    made = np.arange(24)
    arrays = [
        made.astype(code).reshape(shape)
        for code in ("<f4", ">f4", "?", "<c16", ">i2", "u1", "M8[s]", "S3", "<f4")
        for shape in ((24,), (2, 3, 4), (24, 1))
    ]
    arrays += [np.array(5.0), np.zeros((3, 0, 2), ">u4"), made[::2], made.reshape(4, 6).T]
    arrays += [np.zeros((1,) * 32), np.zeros(2, [("a", "i4"), ("b", ">f8")])]
    arrays += [made.view(np.recarray)]
    with ipc.Queue() as q:
        for _ in range(2):
            for array in arrays:
                q.put(array)
                found = q.get(timeout=10)
                assert type(found) is type(array)
                assert (found.dtype, found.shape) == (array.dtype, array.shape)
                assert (found == array).all()
                assert found.flags.writeable


def test_a_queue_that_was_not_made_is_an_error() -> None:
    made = ipc.Queue.__new__(ipc.Queue)
    for call in (lambda: made.put(1), made.get, made.get_nowait):
        with pytest.raises((ValueError, AttributeError)):
            call()
