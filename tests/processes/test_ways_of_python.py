# SPDX-License-Identifier: Apache-2.0
"""Processes, threads, signals and ends as Python programs have them."""

import concurrent.futures
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

import shmnd
import shmnd.nd1 as nd
from census import open_files
from processes.kit import ECHO, PATIENCE, Child, Talk, listening
from processes.ways_kit import reported
from shmnd import NdError, OpFlag, Status

pytestmark = pytest.mark.slow


METHODS = ["fork", "forkserver", "spawn"]


# -- how processes are made --
def converse(address: tuple[str, int], words: int) -> int:
    """Open an adapter of one's own, and talk."""
    with shmnd.open_adapter() as adapter:
        talk = Talk.to(adapter, address)
        for number in range(words):
            talk.say(bytes([number]) * 1000)
            assert talk.hear() == bytes([number]) * 1000
    return os.getpid()


def echo_to(listener: shmnd.Listener, words: int) -> None:
    talk = Talk.of(listener)
    for _ in range(words):
        talk.say(talk.hear())


@pytest.mark.parametrize("method", METHODS)
def test_a_process_of_multiprocessing_talks_with_its_parent(method: str) -> None:
    context: BaseContext = multiprocessing.get_context(method)
    with shmnd.open_adapter() as adapter, listening(adapter) as listener:
        address = listener.get_local_address()
        process: Any = context.Process(target=converse, args=(address, 5))  # type: ignore[attr-defined]
        process.start()
        echo_to(listener, 5)
        process.join(PATIENCE)
        assert process.exitcode == 0
        process.close()


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_of_futures_talks_with_its_parent(method: str) -> None:
    context = multiprocessing.get_context(method)
    with shmnd.open_adapter() as adapter, listening(adapter) as listener:
        address = listener.get_local_address()
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            futures = [pool.submit(converse, address, 3) for _ in range(4)]
            for _ in futures:
                echo_to(listener, 3)
            assert os.getpid() not in {future.result(PATIENCE) for future in futures}


def forked(do: Callable[[], list[str]], *, nested: bool = False) -> tuple[int, int]:
    """A child by fork that tells what `do` gives: its pid, and where to read."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    code = 1
    try:
        if nested and os.fork():
            os.wait()
            os._exit(0)
        os.write(write, repr(do()).encode())
        code = 0
    except BaseException as exc:
        os.write(write, repr([repr(exc)]).encode())
    finally:
        os._exit(code)


def outcomes(calls: list[Callable[[], Any]]) -> list[str]:
    """What calls say, one after the other."""
    said = []
    for call in calls:
        try:
            call()
            said.append("did it")
        except NdError as err:
            said.append(f"{err.status.name} {err}")
    return said


def check_refusals(said: list[str], count: int) -> None:
    assert len(said) == count
    for text in said:
        assert text.startswith("DEVICE_REMOVED"), text
        assert "fork" in text
        assert "open a new adapter" in text, text


def things_of(provider: Any) -> Iterator[Any]:
    """One object of each kind."""
    with provider.open_adapter(*PROVIDERS[type(provider)]) as adapter:
        yield adapter
        cq = adapter.create_completion_queue(8)
        yield from (cq, cq.notify(), adapter.create_memory_window())
        if isinstance(provider, nd.Provider):
            connector = adapter.create_connector()
            yield from (connector, connector.create_endpoint(cq, cq, 4, 4, 1, 1, 1, 1))
            yield adapter.listen()
        else:
            yield from (adapter.create_overlapped_file(), adapter.create_connector())
            yield from (adapter.create_listener(), adapter.create_memory_region())
            yield from (adapter.create_queue_pair(cq, cq), adapter.create_shared_receive_queue(4))


PROVIDERS: dict[type, tuple[Any, ...]] = {
    shmnd.Provider: (shmnd.Provider().resolve_address("127.0.0.1"),),
    nd.Provider: ("127.0.0.1",),
}


@pytest.mark.parametrize("make", PROVIDERS)
def test_an_object_is_not_copied_since_each_copy_would_end_it(make: type) -> None:
    """Nor pickled, as for the arguments of a process; a provider may be."""
    for thing in things_of(pickle.loads(pickle.dumps(make()))):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"'{type(thing).__name__}'.* opens one of its own"):
                way(thing)


class Request:
    """What programs give as a context: it knows whose it is."""

    def __init__(self, qp: Any) -> None:
        self.qp = qp
        self.itself = self


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("context", [Request, lambda qp: qp])
def test_a_context_that_refers_to_its_queue_pair_keeps_nothing_alive(
    context: Callable[[Any], Any], closed: bool
) -> None:
    """Neither while its request waits, once nothing else refers to them, nor as a result."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(8)
        qp = adapter.create_queue_pair(cq, cq)
        for _ in range(3):
            qp.receive(None, context(qp))
        qp.flush()
        qp.receive(None, context(qp))
        gc.collect()
        (first,) = cq.get_results(1)
        assert getattr(first.request_context, "qp", qp) is qp, "they are still here"
        if closed:
            qp.close()
            cq.close()
        gone = weakref.ref(qp), weakref.ref(cq)
        del qp, cq, first
    del adapter
    gc.collect()
    assert [each() for each in gone] == [None, None]


@pytest.mark.parametrize("nested", [False, True])
def test_a_forked_child_must_open_its_own(nested: bool) -> None:
    """And it may; the parent's connection is unaffected."""
    with Child(ECHO) as echo, shmnd.open_adapter() as adapter, listening(adapter) as listener:
        talk = Talk.to(adapter, tuple(echo.hear()))
        window = adapter.create_memory_window()
        srq = adapter.create_shared_receive_queue(4)
        region, sge = talk.regions[0], talk.regions[0].sge(0, 8)
        watched = adapter.create_completion_queue(4)
        assert watched.fileno() >= 0
        calls: list[Callable[[], Any]] = [
            lambda: adapter.create_completion_queue(4),
            lambda: adapter.allocate(10),
            lambda: adapter.query(),
            lambda: talk.qp.send(sge),
            lambda: talk.qp.receive(sge),
            lambda: talk.qp.read(sge, 1, 1),
            lambda: talk.qp.write(sge, 1, 1),
            lambda: talk.qp.bind(region, window, region.address, 8, flags=OpFlag.ALLOW_READ),
            lambda: talk.qp.invalidate(window),
            lambda: talk.qp._send_and_invalidate(sge, 1),
            lambda: talk.qp._begin_batch(),
            lambda: talk.qp._submit_batch(),
            lambda: talk.qp.flush(),
            lambda: talk.cq.get_results(),
            lambda: talk.cq.wait(1, 0.1),
            lambda: talk.cq.notify(),
            lambda: talk.cq.fileno(),
            lambda: watched.fileno(),
            lambda: srq.receive(sge),
            lambda: srq.notify(),
            lambda: talk.connector.disconnect(),
            lambda: listener.get_connection_request(talk.connector),
            lambda: region.deregister(),
        ]

        def in_the_child() -> list[str]:
            said = outcomes(calls)
            for thing in (talk.qp, talk.cq, talk.connector, listener, srq, window, *talk.regions):
                thing.close()
            adapter.close()
            adapter_of_mine()
            return said

        child = forked(in_the_child, nested=nested)
        talk.say(b"meanwhile")
        assert talk.hear() == b"meanwhile"
        check_refusals(reported(*child), len(calls))
        for number in range(20):
            talk.say(bytes([number]) * 3000)
            assert talk.hear() == bytes([number]) * 3000


def of_shmnd() -> list[str]:
    """The descriptors of this process that an adapter may have opened."""
    return [path for path in open_files() if "shmnd" in path or path.startswith("anon_inode")]


def test_a_forked_child_may_close_all_descriptors_and_open_others(tmp_path: Path) -> None:
    """As a daemon does. The ends of inherited objects must not close those, nor write there."""
    before = len(of_shmnd())
    with shmnd.open_adapter() as adapter, nd.Provider().open_adapter("127.0.0.1") as other:
        file = adapter.create_overlapped_file()
        cq = adapter.create_completion_queue(8, overlapped_file=file)
        array, named = adapter.allocate(4096), adapter.allocate(4096, name=f"/shmnd-{os.getpid()}")
        descriptors = [cq.fileno(), file.fileno(), other.get_file_handle().fileno()]
        objects = [cq.notify(), cq, file, array, named, adapter, other]

        def in_the_child() -> list[str]:
            left = len(of_shmnd()) > before
            os.closerange(3, 256)
            mine = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(64)]
            for closing in (cq, file, adapter, other):
                closing.close()
            objects.clear()
            gc.collect()
            wrong = [str(fd) for fd in mine if not _is_untouched(fd)]
            return ["descriptors of the parent are open", *wrong] if left else wrong

        child = os.fork()
        if child == 0:
            code = 2
            try:
                (tmp_path / "said").write_text(repr(in_the_child()))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / "said").read_text() == "[]"
        assert all(fd >= 0 for fd in descriptors)


def _is_untouched(fd: int) -> bool:
    try:
        return os.fstat(fd).st_size == 0
    except OSError:
        return False


def test_a_forked_child_must_open_its_own_in_version_1_too() -> None:
    with nd.Provider().open_adapter("127.0.0.1") as adapter:
        cq, connector = adapter.create_completion_queue(16), adapter.create_connector()
        endpoint = connector.create_endpoint(cq, cq, 4, 4, 1, 1, 1, 1)
        window, there = adapter.create_memory_window(), nd.MwDescriptor(1, 1, 1)
        calls: list[Callable[[], Any]] = [
            lambda: endpoint.send(nd.Result(), None),
            lambda: endpoint.receive(nd.Result(), None),
            lambda: endpoint.read(nd.Result(), None, there, 0),
            lambda: endpoint.write(nd.Result(), None, there, 0),
            lambda: endpoint.invalidate(nd.Result(), window),
            lambda: endpoint.flush(),
            lambda: cq.get_results(),
            lambda: adapter.query(),
        ]
        check_refusals(reported(*forked(lambda: outcomes(calls))), len(calls))


def adapter_of_mine() -> None:
    """In the child: an adapter of its own talks to itself."""
    with shmnd.open_adapter() as own, listening(own) as listener:
        waiting, talk = Talk(own), Talk(own)
        request = listener.get_connection_request(waiting.connector)
        answer = talk.connector.connect(talk.qp, listener.get_local_address())
        request.result(PATIENCE)
        waiting.connector.accept(waiting.qp)
        answer.result(PATIENCE)
        talk.connector.complete_connect().result(PATIENCE)
        talk.say(b"child")
        assert waiting.hear() == b"child"


BECOMES_ANOTHER = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
adapter._engine.progress()  # it takes what it is rung by
say("connected")
hear()
os.execv("/bin/sleep", ["sleep", "1000"])
"""


def test_a_process_that_becomes_another_program_is_as_dead_to_its_peers() -> None:
    with shmnd.open_adapter() as adapter, Child(BECOMES_ANOTHER) as child:
        talk = Talk.to(adapter, tuple(child.hear()))
        assert child.hear() == "connected"
        reported = talk.connector.notify_disconnect()
        child.say("continue")
        reported.result(PATIENCE)
        (result,) = talk.cq.wait(8, PATIENCE)
        assert (result.request_context, result.status) == ("in", Status.CANCELED)
        assert child.process.poll() is None
        child.process.kill()


def test_a_fork_while_other_threads_hold_locks_hangs_no_process() -> None:
    """Threads of the parent hold every lock there is while it forks."""
    with Child(ECHO) as echo, shmnd.open_adapter() as adapter:
        talk = Talk.to(adapter, tuple(echo.hear()))
        over = threading.Event()

        def trouble() -> None:
            while not over.is_set():
                listening(adapter).close()
                adapter.allocate(100)
                adapter._engine.progress()

        threads = [threading.Thread(target=trouble) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    try:
                        adapter_of_mine()
                        os._exit(0)
                    except BaseException:
                        os._exit(1)
                deadline = time.monotonic() + PATIENCE
                while True:
                    done, status = os.waitpid(child, os.WNOHANG)
                    if done:
                        break
                    if time.monotonic() > deadline:
                        os.kill(child, signal.SIGKILL)
                        os.waitpid(child, 0)
                        pytest.fail("a forked child hangs")
                    time.sleep(0.005)
                assert status == 0
            talk.say(b"still")
            assert talk.hear() == b"still"
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE)
