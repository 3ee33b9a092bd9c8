# SPDX-License-Identifier: Apache-2.0
"""The end of an interpreter in any state, signals, and threads."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from processes.kit import ECHO, KIT, PATIENCE, PRELUDE, Child, Talk, listening
from shmnd import MrFlag, NdError, RequestType, Status

pytestmark = pytest.mark.slow


# -- the end of an interpreter, in any state --
ENDS = {
    "everything alive": "",
    "in a cycle": "talk.me = talk; other.me = [talk, other, adapter]",
    "a Receive posted": "qp = adapter.create_queue_pair(talk.cq, talk.cq); qp.receive(None, qp)",
    "requests outstanding": "talk.connector.notify_disconnect(); talk.cq.notify()",
    "a connect pending": "third = Talk(adapter); p = third.connector.connect(third.qp, address)",
    "a request pending": "third = Talk(adapter); listener.get_connection_request(third.connector)",
    "a thread that polls": """
import threading
def poll():
    while True:
        talk.cq.get_results()
threading.Thread(target=poll, daemon=True).start()
time.sleep(0.02)
""",
    "a thread that waits": """
import threading
p = talk.connector.notify_disconnect()
threading.Thread(target=lambda: talk.cq.wait(1), daemon=True).start()
threading.Thread(target=lambda: p.result(), daemon=True).start()
time.sleep(0.05)
""",
    "a loop closed early": """
import asyncio
async def main():
    asyncio.ensure_future(waiting())
    await asyncio.sleep(0.01)
async def waiting():
    await talk.connector.notify_disconnect()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
for task in asyncio.all_tasks(loop):
    task._log_destroy_pending = False
loop.close()
""",
    "a segment of its own, in a task of a closed loop": """
import asyncio
region = adapter.create_memory_region()
region.register(adapter.allocate(1 << 20)).result()
async def waiting(region):
    await talk.cq.notify()
loop = asyncio.new_event_loop()
task = loop.create_task(waiting(region))
task._log_destroy_pending = False
loop.run_until_complete(asyncio.sleep(0.01))
loop.close()
del region
""",
    "descriptors that a loop watches": """
import asyncio
loop, file = asyncio.new_event_loop(), adapter.create_overlapped_file()
loop.add_reader(file, file.poll)
loop.add_reader(talk.cq, talk.cq.get_results)
loop.run_until_complete(asyncio.sleep(0.05))
loop.close()
""",
    "inside atexit": """
import atexit
def last():
    talk.say(b"last words")
    assert other.hear() == b"last words"
    extra = shmnd.open_adapter()
    extra.allocate(100)
atexit.register(last)
""",
    "closed in atexit": "import atexit; atexit.register(adapter.close)",
    "in a module's globals": "import types; sys.modules['kept'] = m = types.ModuleType('kept');"
    " m.talk, m.adapter, m.other = talk, adapter, other",
    "in a module that ends after those of shmnd": """
import threading
threading.kept = talk, adapter, other
""",
    "in a finaliser": """
class Late:
    def __del__(self):
        talk.qp.close()
        adapter.close()
late = Late()
""",
    "views that live on": "import numpy; kept = [adapter.allocate(1000)[5:], memoryview(talk.out)]",
    "sys.exit in a wait": """
import threading
threading.Timer(0.05, lambda: os.kill(os.getpid(), 15)).start()
import signal
signal.signal(15, lambda *_: sys.exit(7))
talk.cq.wait(1)
""",
    "an error without a handler": "raise SystemExit(7)",
    "the peer's end": "other.connector.disconnect(); other.qp.close()",
    "no broker any more": """
import signal
os.kill(adapter._engine.client._broker_pid, signal.SIGKILL)
""",
    "half closed": "talk.qp.close(); other.cq.close(); listener.close()",
}


PAIR = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
address = listener.get_local_address()
other, talk = Talk(adapter), Talk(adapter)
request = listener.get_connection_request(other.connector)
answer = talk.connector.connect(talk.qp, address)
request.result(20)
other.connector.accept(other.qp)
answer.result(20)
talk.connector.complete_connect().result(20)
talk.say(b"x")
other.hear()
"""


@pytest.mark.parametrize("state", ENDS)
def test_an_interpreter_ends_silently(state: str) -> None:
    import json

    environment = {**os.environ, "KIT_PATH": json.dumps(sys.path), "PYTHONDEVMODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + KIT + PAIR + ENDS[state]],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
        cwd="/",
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == (7 if "7" in ENDS[state] else 0)


# -- signals --
class Interrupted(Exception):
    pass


@pytest.mark.parametrize("what", ["wait", "result", "kernel", "broker call"])
def test_a_handler_that_raises_ends_a_wait(what: str) -> None:
    with Child(ECHO) as echo, shmnd.open_adapter() as adapter:
        talk = Talk.to(adapter, tuple(echo.hear()))
        if what == "kernel":
            talk.cq.spin = 0.0
        told = talk.connector.notify_disconnect()
        calls: dict[str, Callable[[], object]] = {
            "wait": lambda: talk.cq.wait(1),
            "kernel": lambda: talk.cq.wait(1),
            "result": lambda: told.result(),
            "broker call": lambda: [adapter._engine.call("sync") for _ in range(10**9)],
        }

        def handler(*_: object) -> None:
            raise Interrupted

        old = signal.signal(signal.SIGALRM, handler)
        try:
            for _ in range(5):
                with pytest.raises(Interrupted):  # noqa: PT012 - it may come at once
                    signal.setitimer(signal.ITIMER_REAL, 0.03)
                    calls[what]()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        for number in range(10):  # nothing was lost by it
            talk.say(bytes([number]) * 100)
            assert talk.hear() == bytes([number]) * 100
        listening(adapter).close()


def test_a_handler_that_returns_disturbs_no_wait() -> None:
    """Interrupted system calls (EINTR) are repeated; no message is lost under many of them."""
    came = 0

    def handler(*_: object) -> None:
        nonlocal came
        came += 1

    with Child(ECHO) as echo, shmnd.open_adapter() as adapter:
        talk = Talk.to(adapter, tuple(echo.hear()))
        talk.cq.spin = 0.0
        old = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        try:
            for number in range(200):
                data = bytes([number]) * (1 + 300 * number)
                talk.say(data)
                assert talk.hear() == data
            for _ in range(20):
                listening(adapter).close()
                adapter.allocate(100_000)
            until = time.monotonic() + PATIENCE
            while came <= 20 and time.monotonic() < until:
                assert talk.cq.wait(1, 0.1) == []
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
    assert came > 20


def test_a_handler_may_call_whatever_it_interrupts() -> None:
    """It asks the broker, polls and connects in the midst of calls that do the same.

    A profile function stands for it: it is called more often than any signal comes.
    """
    events = itertools.count()
    inside = False
    calls = 0

    def handler(*_: object) -> None:
        nonlocal inside, calls
        if inside or next(events) % 37:
            return
        inside = True
        calls += 1
        talk.cq.get_results(0)
        listening(adapter).close()
        inside = False

    with Child(ECHO) as echo, shmnd.open_adapter() as adapter, shmnd.open_adapter() as other:
        talk = Talk.to(adapter, tuple(echo.hear()))
        listener = listening(adapter)
        sys.setprofile(handler)
        try:
            for number in range(50):
                active, passive = Talk(other), Talk(adapter)
                request = listener.get_connection_request(passive.connector)
                offer = active.connector.connect(active.qp, listener.get_local_address())
                request.result(PATIENCE)
                answer = passive.connector.accept(passive.qp)
                offer.result(PATIENCE)
                active.connector.complete_connect().result(PATIENCE)
                answer.result(PATIENCE)
                data = bytes([number]) * (1 + 300 * number)
                talk.say(data)
                assert talk.hear() == data
                active.connector.disconnect().result(PATIENCE)
        finally:
            sys.setprofile(None)
    assert calls > 100


def test_ctrl_c_ends_a_wait_of_a_whole_program() -> None:
    program = PAIR + "try:\n    say('waiting')\n    talk.cq.wait(1)\nexcept KeyboardInterrupt:\n"
    with Child(program + "    say('interrupted')\n") as child:
        assert child.hear() == "waiting"
        time.sleep(0.1)
        child.process.send_signal(signal.SIGINT)
        assert child.hear() == "interrupted"
        assert child.end() == 0


# -- threads --
class Mirror:
    """Two ends in this process, with deep queues and memory for many messages at once."""

    DEPTH = 64

    def __init__(self, adapter: shmnd.Adapter, listener: shmnd.Listener) -> None:
        self.cqs = [adapter.create_completion_queue(4 * self.DEPTH) for _ in range(2)]
        depths = {"receive_depth": self.DEPTH, "initiator_depth": self.DEPTH}
        self.qps = [adapter.create_queue_pair(cq, cq, **depths) for cq in self.cqs]
        self.memory = adapter.allocate(2 * self.DEPTH * 64)
        self.region = adapter.create_memory_region()
        self.region.register(self.memory, MrFlag.ALLOW_LOCAL_WRITE).result(PATIENCE)
        self.connectors = [adapter.create_connector() for _ in range(2)]
        request = listener.get_connection_request(self.connectors[1])
        answer = self.connectors[0].connect(self.qps[0], listener.get_local_address())
        request.result(PATIENCE)
        self.connectors[1].accept(self.qps[1])
        answer.result(PATIENCE)
        self.connectors[0].complete_connect().result(PATIENCE)


def run_threads(*targets: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    if failed:
        raise failed[0]


@pytest.mark.parametrize("wait", [False, True])
def test_many_threads_poll_one_queue_and_post_on_one_queue_pair(wait: bool) -> None:
    """Each completion comes out of exactly one poll, and every message arrives once."""
    each, posters, pollers = 400, 4, 4
    total = each * posters
    with shmnd.open_adapter() as adapter, listening(adapter) as listener:
        mirror = Mirror(adapter, listener)
        room = threading.Semaphore(Mirror.DEPTH // 2)
        sent: list[object] = []
        received: list[int] = []
        over = threading.Event()
        for slot in range(Mirror.DEPTH):
            mirror.qps[1].receive(mirror.region.sge(slot * 64, 64), slot)

        def post(first: int) -> None:
            for number in range(first, first + each):
                assert room.acquire(timeout=PATIENCE)
                mirror.qps[0].send(mirror.region.sge(0, 8), number)

        def poll(side: int) -> None:
            queue = mirror.cqs[side]
            while not over.is_set():
                results = queue.wait(4, 0.05) if wait else queue.get_results(4)
                for result in results:
                    assert result.status is Status.SUCCESS
                    if result.request_type is RequestType.SEND:
                        sent.append(result.request_context)
                        room.release()
                    else:
                        slot = result.request_context
                        received.append(slot)
                        mirror.qps[1].receive(mirror.region.sge(slot * 64, 64), slot)
                if len(sent) >= total and len(received) >= total:
                    over.set()

        def watch() -> None:
            if not over.wait(2 * PATIENCE):
                over.set()
                raise AssertionError(f"{len(sent)} sent, {len(received)} received of {total}")

        run_threads(
            watch,
            *(lambda n=n: post(n * each) for n in range(posters)),  # type: ignore[misc]
            *(lambda n=n: poll(n % 2) for n in range(pollers)),  # type: ignore[misc]
        )
        assert sorted(sent) == list(range(total))  # type: ignore[type-var]
        assert len(received) == total


@pytest.mark.parametrize("what", ["qp", "cq", "adapter", "connector"])
def test_a_close_in_another_thread_ends_other_calls(what: str) -> None:
    """A clean error or a cancelled result, never a hang or a crash."""
    for _ in range(10):
        with shmnd.open_adapter() as adapter, listening(adapter) as listener:
            mirror = Mirror(adapter, listener)
            started = threading.Barrier(4)
            for slot in range(8):
                mirror.qps[1].receive(mirror.region.sge(slot * 64, 64), slot)

            def use(call: Callable[[], object], started: threading.Barrier = started) -> None:
                started.wait(PATIENCE)
                deadline = time.monotonic() + 0.1
                while time.monotonic() < deadline:
                    try:
                        call()
                    except NdError as err:
                        if err.status is not Status.NO_MORE_ENTRIES:
                            return
                    except ValueError:
                        return

            victim: Any = {
                "qp": mirror.qps[0],
                "cq": mirror.cqs[0],
                "adapter": adapter,
                "connector": mirror.connectors[0],
            }[what]

            def close(victim: Any = victim, started: threading.Barrier = started) -> None:
                started.wait(PATIENCE)
                victim.close()

            sge = mirror.region.sge(0, 8)
            run_threads(
                lambda sge=sge, m=mirror: use(lambda: m.qps[0].send(sge)),  # type: ignore[misc]
                lambda m=mirror: use(lambda: m.cqs[0].wait(4, 0.05)),  # type: ignore[misc]
                lambda m=mirror: use(lambda: m.cqs[1].get_results(4)),  # type: ignore[misc]
                close,
            )
