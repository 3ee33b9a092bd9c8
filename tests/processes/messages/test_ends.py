# SPDX-License-Identifier: Apache-2.0
"""Connections for messages: their ends, threads that share one, and tasks."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import pytest

import shmnd
from processes.messages.kit import LIMIT, SIZES, Address, MakePeer, Pair, echo, pattern
from shmnd.runtime.progress import ProgressEngine


def silent(address: Address, pipe: Pipe) -> None:
    """Connect, say so, and do nothing until told."""
    with shmnd.connect(address) as connection:
        pipe.send(connection.local_address)
        pipe.recv()


def end_without_closing(address: Address, pipe: Pipe) -> None:
    connection = shmnd.connect(address)
    connection.send_bytes(b"last words")
    globals()["kept"] = connection  # until the interpreter ends


# -- the end --
def test_a_window_of_a_process_that_was_killed_does_not_keep_its_memory(peer_of: MakePeer) -> None:
    """Also where the program has not polled since."""
    peer = peer_of(silent)
    peer.pipe.recv()
    near = peer.connection
    region, window = near.adapter.create_memory_region(), near.adapter.create_memory_window()
    region.register(bytearray(100), shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
    flags = shmnd.OpFlag.ALLOW_READ | shmnd.OpFlag.SILENT_SUCCESS
    near.qp.bind(region, window, region.address, 100, flags=flags)
    with pytest.raises(shmnd.NdError, match="1 windows are bound"):
        region.deregister()
    peer.kill()
    region.deregister().result(LIMIT)


def test_the_death_of_the_peer_is_not_an_end_of_file(peer_of: MakePeer) -> None:
    peer = peer_of(silent)
    peer.pipe.recv()
    assert peer.connection.connected
    peer.kill()
    with pytest.raises(ConnectionResetError, match="died, or disconnected without closing"):
        peer.connection.recv_bytes(LIMIT)
    with pytest.raises(ConnectionResetError):
        peer.connection.send_bytes(b"x", LIMIT)
    assert not peer.connection.connected
    assert peer.connection.poll()


def test_an_interpreter_that_ends_closes_its_connections(peer_of: MakePeer) -> None:
    peer = peer_of(end_without_closing)
    assert peer.connection.recv_bytes(LIMIT) == b"last words"
    with pytest.raises(EOFError):
        peer.connection.recv_bytes(LIMIT)


def test_a_sender_learns_that_the_peer_has_closed(pair: Pair) -> None:
    near, far = pair
    far.close()
    with pytest.raises(BrokenPipeError, match="has closed") as caught:
        near.send_bytes(b"x", LIMIT)
    assert isinstance(caught.value, EOFError)


def test_a_closed_connection_refuses_calls(pair: Pair) -> None:
    near, _ = pair
    assert "connected" in repr(near)
    near.close()
    near.close()
    assert near.closed
    assert not near.connected
    assert "closed" in repr(near)
    for call in (near.recv_bytes, near.poll, lambda: near.send_bytes(b"")):
        with pytest.raises(OSError, match="the connection is closed"):
            call()


RECEIVES: dict[str, Callable[[shmnd.Connection], object]] = {
    "recv_bytes": lambda near: near.recv_bytes(LIMIT),
    "maxlength": lambda near: near.recv_bytes(LIMIT, maxlength=9),
    "recv_into": lambda near: near.recv_into(bytearray(9), LIMIT),
    "iteration": lambda near: next(iter(near)),
}


@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_messages_left_at_the_end_are_not_returned(
    pair: Pair, receive: Callable[[shmnd.Connection], object]
) -> None:
    """Neither in a forked child, to which the parent's messages were not sent, nor after close."""
    near, far = pair
    far.send_bytes(b"left")
    assert near.poll(LIMIT)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            receive(near)
        except OSError as exc:
            status = 0 if "fork" in str(exc) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    near.close()
    with pytest.raises(OSError, match="the connection is closed"):
        receive(near)


def test_close_ends_the_wait_of_another_thread(pair: Pair) -> None:
    near, _ = pair
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            near.recv_bytes()
        except OSError as exc:
            ended.append(exc)

    thread = threading.Thread(target=wait)
    thread.start()
    while not near._messages.pumping:
        time.sleep(0.001)
    near.close()
    thread.join(LIMIT)
    assert "the connection is closed" in str(ended.pop())


def test_ctrl_c_ends_a_wait_and_loses_nothing(peer_of: MakePeer) -> None:
    peer = peer_of(silent)
    peer.pipe.recv()
    # A shell starts what runs in its background without.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, 2))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
        timer.start()
        peer.connection.recv_bytes(LIMIT)
    timer.join()
    signal.signal(signal.SIGINT, before)
    peer.pipe.send("close")
    with pytest.raises(EOFError):
        peer.connection.recv_bytes(LIMIT)


class Alarm(BaseException):
    """What the handler raises."""


def recv_bytes(connection: shmnd.Connection) -> bytes:
    return connection.recv_bytes(LIMIT)


def recv_bytes_of_a_length(connection: shmnd.Connection) -> bytes:
    return connection.recv_bytes(LIMIT, maxlength=100_000)


def recv_into(connection: shmnd.Connection) -> bytearray:
    buffer = bytearray(100_000)
    connection.recv_into(buffer, LIMIT)
    return buffer


@pytest.mark.parametrize("receive", [recv_bytes, recv_bytes_of_a_length, recv_into])
def test_a_handler_that_raises_while_a_message_is_copied_loses_none(
    pair: Pair, receive: Callable[[shmnd.Connection], bytes | bytearray]
) -> None:
    near, far = pair
    raised = 0

    def handle(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for number in range(300):
            near.send_bytes(pattern(100_000, number), LIMIT)
            got: bytes | bytearray = b""
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 100 * 1e-6)
                got = receive(far)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                raised += 1
                got = got or receive(far)
            assert got == pattern(100_000, number)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised


def test_a_handler_that_raises_keeps_no_credits_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises wherever Python runs when messages are taken. The peer may wait for credits."""
    near, far = pair
    messages = [pattern(100_000, number) for number in range(12)]
    for message in messages[:6]:  # more than half of the credits
        near.send_bytes(message, LIMIT)

    def handle(engine: ProgressEngine) -> None:
        raise Alarm

    monkeypatch.setattr(ProgressEngine, "progress", handle)
    time.sleep(0.1)  # so long that a poll and a Send make progress elsewhere
    raised = 0
    while len(far._inbox) < 6:
        try:
            far._messages.progress()
        except Alarm:
            raised += 1
    monkeypatch.undo()
    assert raised
    for message in messages[6:]:
        near.send_bytes(message, 10)
    assert [far.recv_bytes(LIMIT) for _ in messages] == messages


def test_a_handler_that_raises_before_a_request_is_accepted_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_server: shmnd.Server, _offer: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    made: list[shmnd.Connection] = []
    with shmnd.listen() as server:
        asking = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
        asking.start()
        monkeypatch.setattr(shmnd.Server, "_accepted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.accept(LIMIT)
        with server.accept(LIMIT) as connection:
            asking.join(LIMIT)
            made[0].send_bytes(b"found")
            assert connection.recv_bytes(LIMIT) == b"found"
        made[0].close()


def test_a_forked_child_leaves_the_connection_alone(pair: Pair) -> None:
    near, far = pair
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                near.send_bytes(b"from the child")
            except OSError as exc:
                status = 0 if "fork" in str(exc) else 2
            near.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    near.send_bytes(b"from the parent")
    assert far.recv_bytes(LIMIT) == b"from the parent"


def test_a_forked_child_is_to_listen_anew() -> None:
    with shmnd.listen() as server:
        child = os.fork()
        if child == 0:
            status = 0
            try:
                for call in (lambda: server.accept(0), server.fileno, lambda: next(iter(server))):
                    try:
                        call()
                    except shmnd.NdError as exc:
                        status += "the server was opened before fork(); open a new one" in str(exc)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_one_thread_sends_while_another_receives(pair: Pair) -> None:
    near, far = pair
    count = 300
    got: list[bytes] = []

    def answer() -> None:
        for message in far:
            far.send_bytes(message)

    def collect() -> None:
        while len(got) < count:
            got.append(near.recv_bytes(LIMIT))

    threads = [threading.Thread(target=target) for target in (answer, collect)]
    for thread in threads:
        thread.start()
    for number in range(count):
        near.send_bytes(pattern(number * 100), LIMIT)
    threads[1].join(LIMIT)
    near.close()
    threads[0].join(LIMIT)
    assert got == [pattern(number * 100) for number in range(count)]


def test_threads_of_both_sides_send_and_receive_at_once(pair: Pair) -> None:
    """Three of each kind on each side: nothing is lost, and each sender's order is kept."""
    count, threads = 150, 3
    got: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}
    broken: list[BaseException] = []

    def send(side: int, number: int) -> None:
        for place in range(count):
            mark = bytes([number, place & 0xFF, place >> 8])
            pair[side].send_bytes(mark + bytes(place % 7 * 9000), LIMIT)

    def receive(side: int) -> None:
        for _ in range(count):
            message = pair[side].recv_bytes(LIMIT)
            got[side].append((message[0], message[1] | message[2] << 8, len(message)))

    def kept(target: Callable[..., None], *args: int) -> None:
        try:
            target(*args)
        except BaseException as exc:
            broken.append(exc)

    started = [
        threading.Thread(target=kept, args=args)
        for side in (0, 1)
        for number in range(threads)
        for args in ((send, side, number), (receive, side))
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(3 * LIMIT)
    assert broken == []
    assert not any(thread.is_alive() for thread in started)
    for side in (0, 1):
        wanted = [(n, p, 3 + p % 7 * 9000) for n in range(threads) for p in range(count)]
        assert sorted(got[side]) == sorted(wanted)


def test_a_sender_keeps_its_order_beside_others(pair: Pair) -> None:
    near, far = pair
    count = 400

    def send(number: int) -> None:
        for place in range(count):
            far.send_bytes(b"%d %d" % (number, place), LIMIT)

    started = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in started:
        thread.start()
    got: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(3 * count):
        number, place = map(int, near.recv_bytes(LIMIT).split())
        got[number].append(place)
    for thread in started:
        thread.join(LIMIT)
    assert list(got.values()) == [list(range(count))] * 3


def test_a_time_out_counts_from_the_call_whatever_comes_meanwhile(pair: Pair) -> None:
    """Credits that arrive do not end the wait, and do not make it longer."""
    near, far = pair
    for _ in range(40):
        near.send_bytes(b"x")
    began = time.monotonic()
    timer = threading.Timer(0.1, lambda: [far.recv_bytes(LIMIT) for _ in range(40)])
    timer.start()
    with pytest.raises(TimeoutError, match="has sent no message"):
        near.recv_bytes(0.4)
    assert time.monotonic() - began >= 0.4
    timer.join()


def test_a_receive_of_the_program_itself_takes_a_message_out(pair: Pair) -> None:
    """One that is posted by hand stands behind those for messages, and ends with the rest."""
    near, far = pair
    far.qp.receive(far.region.sge(0, 64), "by hand")
    for number in range(200):
        near.send_bytes(b"%d" % number)
        if not far.poll(0):
            break
        assert far.recv_bytes(LIMIT) == b"%d" % number
    assert bytes(far.memory[:8]) != bytes(8)


@pytest.mark.parametrize("word", [0x5D11, 0x5D10 | 5 << 28, 0x5D14, 0, (1 << 64) - 1, 0x5D12])
def test_invalid_words_are_skipped_or_end_the_connection(pair: Pair, word: int) -> None:
    near, far = pair
    near.memory[:8] = word.to_bytes(8, "little")
    near.qp.send(near.region.sge(0, 8))
    near.send_bytes(b"behind it")
    refused = word == 0x5D11  # the next of none; a first one that stays alone is cut short
    ended = pytest.raises(ConnectionResetError, match="fragments that do not fit together")
    with ended if refused else contextlib.nullcontext():
        while far.recv_bytes(LIMIT) != b"behind it":
            pass
        if refused:
            far.recv_bytes(LIMIT)  # whole messages are delivered before


# -- asyncio --
def test_tasks_send_and_receive_at_once(peer_of: MakePeer) -> None:
    connection = peer_of(echo).connection

    async def work() -> list[bytes]:
        async def send() -> None:
            for nbytes in SIZES:
                await connection.asend_bytes(pattern(nbytes), LIMIT)

        sending = asyncio.create_task(send())
        got = [await connection.arecv_bytes(LIMIT) for _ in SIZES]
        await sending
        with pytest.raises(TimeoutError, match="has sent no message"):
            await connection.arecv_bytes(0.01)
        return got

    assert asyncio.run(work()) == [pattern(nbytes) for nbytes in SIZES]


def test_a_server_and_its_clients_in_one_event_loop() -> None:
    async def serve(server: shmnd.Server) -> None:
        async for connection in server:
            with connection:
                async for message in connection:
                    await connection.asend_bytes(message.upper())

    async def work() -> None:
        with shmnd.listen() as server:
            serving = asyncio.create_task(serve(server))
            for _ in range(3):
                with await shmnd.aconnect(server.address) as connection:
                    await connection.asend_bytes(b"hello")
                    assert await connection.arecv_bytes(LIMIT) == b"HELLO"
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(work())
