# SPDX-License-Identifier: Apache-2.0
"""What a handler of a signal raises while an object is pickled reaches the caller as itself."""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmnd import ipc
from shmnd.common.interruption import is_interruption

PATIENCE = 60.0


class Alarm(Exception):
    """What a handler raises."""


def raise_alarm(number: int, frame: Any) -> None:
    raise Alarm(number)


def raise_at_once(*given: Any) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it handles nothing any more
    raise ValueError("interrupted")


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        self.fail()

    def fail(self) -> None:
        raise TypeError("interrupted")


def interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


HANDLERS: list[tuple[Any, type[BaseException]]] = [
    (raise_alarm, Alarm),
    (raise_at_once, ValueError),
    (Handler(), TypeError),
    (interrupt, KeyboardInterrupt),
    (signal.default_int_handler, KeyboardInterrupt),
]


@pytest.fixture(params=HANDLERS, ids=lambda each: getattr(each[0], "__name__", "Handler"))
def raised(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    before = signal.signal(signal.SIGUSR1, request.param[0])
    yield request.param[1]
    signal.signal(signal.SIGUSR1, before)


_interrupts: list[None] = []
"""So many times an object interrupts that is unpickled."""


def _built(value: Any, interrupts: bool) -> Any:
    if interrupts and _interrupts:
        _interrupts.pop()
        signal.raise_signal(signal.SIGUSR1)
    return value


class OnPickling:
    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return _built, (1, False)


class OnUnpickling:
    """Interrupts once."""

    def __init__(self) -> None:
        _interrupts[:] = [None]

    def __reduce__(self) -> Any:
        return _built, (1, True)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("no pickle")


def queue_put() -> None:
    ipc.Queue().put(OnPickling())


def client_send() -> None:
    with ipc.Client("s") as client:
        client.send(OnPickling())


def request_respond() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        request = server.receive(PATIENCE)
        try:
            request.respond(OnPickling())
        finally:
            request.respond(2)  # it is still to be answered
            assert pending.result(PATIENCE).value == 2


def publisher_send() -> None:
    with ipc.Publisher("t", object) as publisher, ipc.Subscriber("t", object) as subscriber:
        publisher.wait_for_subscribers(1, PATIENCE)
        try:
            publisher.send(OnPickling())
        finally:
            publisher.send(2)
            assert subscriber.receive(PATIENCE).value == 2


def sample_value() -> None:
    with ipc.Publisher("t", object) as publisher, ipc.Subscriber("t", object) as subscriber:
        publisher.wait_for_subscribers(1, PATIENCE)
        publisher.send(OnUnpickling())
        assert subscriber.receive(PATIENCE).value == 1


def queue_get() -> None:
    queue = ipc.Queue()
    queue.put(OnUnpickling())
    try:
        queue.get(timeout=PATIENCE)
    finally:
        queue.put(2)
        assert [queue.get(timeout=PATIENCE) for _ in range(2)] == [1, 2]  # it was not lost


def server_receive() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        client.send(OnUnpickling())
        server.receive(PATIENCE)


def server_serve() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        client.send(OnUnpickling())
        server.serve(lambda request: request.value)


WAYS: list[Callable[[], None]] = [
    queue_put,
    client_send,
    request_respond,
    publisher_send,
    sample_value,
    queue_get,
    server_receive,
    server_serve,
]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_handler_raises_reaches_the_caller(
    way: Callable[[], None], raised: type[BaseException]
) -> None:
    with pytest.raises(raised) as caught:
        way()
    assert type(caught.value) is raised
    assert "pickled" not in str(caught.value)


def test_the_answer_that_was_read_is_not_lost(raised: type[BaseException]) -> None:
    """The client has taken it from its queue, so it is the only one that has it."""
    with ipc.Server("s") as server, ipc.Client("s") as client:
        thread = threading.Thread(
            target=server.serve, args=(lambda request: OnUnpickling(),), daemon=True
        )
        thread.start()
        pending = client.send(1)
        with pytest.raises(raised):
            pending.result(PATIENCE)
        assert pending.result(PATIENCE).value == 1
        server.close()
        thread.join(PATIENCE)


def test_faults_of_a_value_are_not_interruptions(capsys: pytest.CaptureFixture[str]) -> None:
    with ipc.Client("s") as client, pytest.raises(TypeError, match="be pickled: no pickle"):
        client.send(Unpicklable())
    ipc.Queue().put(Unpicklable())
    assert "no pickle" in capsys.readouterr().err


def test_which_exceptions_are_interruptions() -> None:
    assert is_interruption(KeyboardInterrupt())
    assert not is_interruption(ValueError())
