# SPDX-License-Identifier: Apache-2.0
"""Connections that carry messages: between two processes, in all three ways to wait."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import BufferTooShort
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import Status

LIMIT = 20.0
SPAWN = multiprocessing.get_context("spawn")
Address = tuple[str, int]
LONG = 3_000_001
SIZES = [0, 1, 8, 40, 1016, 16_376, 16_377, 16_384, 100_000, 1 << 20, LONG]


def pattern(nbytes: int, start: int = 0) -> bytes:
    """Bytes of which no two stretches are alike."""
    return (
        (np.arange(start, start + nbytes, dtype=np.uint64) * 2654435761 >> 7).astype("u1").tobytes()
    )


# -- what the peers do --


def echo(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address) as connection:
        for message in connection:
            connection.send_bytes(message)


def silent(address: Address, pipe: Pipe) -> None:
    """Connect, say so, and do nothing until told."""
    with shmnd.connect(address) as connection:
        pipe.send(connection.local_address)
        pipe.recv()


def sender(address: Address, pipe: Pipe) -> None:
    """Send what is asked for, and close at once."""
    with shmnd.connect(address) as connection:
        for nbytes in pipe.recv():
            connection.send_bytes(pattern(nbytes))


def slow(address: Address, pipe: Pipe) -> None:
    """Take messages one by one, when told, and return their lengths."""
    with shmnd.connect(address) as connection:
        pipe.send("ready")
        while (count := pipe.recv()) is not None:
            pipe.send([len(connection.recv_bytes(LIMIT)) for _ in range(count)])


def large_at_once(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address) as connection:
        for number in range(3):
            connection.send_bytes(pattern(LONG, number), LIMIT)
        for number in range(3):
            assert connection.recv_bytes(LIMIT) == pattern(LONG, number)
        pipe.send("done")


def burst(address: Address, pipe: Pipe) -> None:
    """Send a thousand messages, compute for as long as the peer likes, and close."""
    with shmnd.connect(address) as connection:
        for number in range(1000):
            connection.send_bytes(b"%d" % number)
        pipe.send("sent")
        pipe.recv()


def end_without_closing(address: Address, pipe: Pipe) -> None:
    connection = shmnd.connect(address)
    connection.send_bytes(b"last words")
    globals()["kept"] = connection  # until the interpreter ends


class Peer:
    """Another process, and the connection with it."""

    def __init__(self, role: Callable[[Address, Pipe], None], **options: Any) -> None:
        self.server = shmnd.listen(**options)
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=role, args=(self.server.address, theirs), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.connection = self.server.accept(LIMIT)
        except BaseException:
            self.end()
            raise

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(LIMIT)

    def end(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        self.server.close()
        self.pipe.close()
        self.process.join(LIMIT)
        self.process.kill()
        self.process.join()
        self.process.close()


MakePeer = Callable[..., Peer]


@pytest.fixture
def peer_of() -> Iterator[MakePeer]:
    made: list[Peer] = []

    def make(role: Callable[[Address, Pipe], None], **options: Any) -> Peer:
        made.append(Peer(role, **options))
        return made[-1]

    yield make
    while made:
        made.pop().end()


Pair = list[shmnd.Connection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends in this process."""
    made: Pair = []
    with shmnd.listen() as server:
        thread = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
        thread.start()
        accepted = server.accept(LIMIT)
        thread.join()
        made.insert(0, accepted)
        del accepted
    yield made
    while made:  # what is left in the list would keep its memory
        made.pop().close()


# -- messages --


def test_messages_of_any_length_come_as_they_were_sent(peer_of: MakePeer) -> None:
    connection = peer_of(echo).connection
    for nbytes in SIZES:
        connection.send_bytes(pattern(nbytes), LIMIT)
        assert connection.recv_bytes(LIMIT) == pattern(nbytes), nbytes


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_few_pieces_of_a_small_size_are_enough(peer_of: MakePeer, depth: int) -> None:
    connection = peer_of(echo, nbytes=4096, depth=depth).connection
    for nbytes in (0, 1, 5000, 100_000):
        connection.send_bytes(pattern(nbytes), LIMIT)
        assert connection.recv_bytes(LIMIT) == pattern(nbytes)


def test_both_sides_may_send_long_messages_at_once(peer_of: MakePeer) -> None:
    peer = peer_of(large_at_once)
    for number in range(3):
        peer.connection.send_bytes(pattern(LONG, number), LIMIT)
    for number in range(3):
        assert peer.connection.recv_bytes(LIMIT) == pattern(LONG, number)
    assert peer.pipe.recv() == "done"


def test_a_burst_of_a_sender_that_computes_arrives(peer_of: MakePeer) -> None:
    peer = peer_of(burst)
    assert [peer.connection.recv_bytes(LIMIT) for _ in range(1000)] == [
        b"%d" % number for number in range(1000)
    ]
    assert peer.pipe.recv() == "sent"
    assert not peer.connection.poll()
    peer.pipe.send("close")


def test_what_was_sent_before_a_close_is_delivered_after_it(peer_of: MakePeer) -> None:
    peer = peer_of(sender)
    lengths = [40] * 30 + [100_000]
    peer.pipe.send(lengths)
    peer.process.join(LIMIT)  # it has closed, and ended
    assert [peer.connection.recv_bytes(LIMIT) for _ in lengths] == [pattern(n) for n in lengths]
    for _ in range(2):
        with pytest.raises(EOFError, match="has closed the connection"):
            peer.connection.recv_bytes(LIMIT)
    assert peer.connection.poll()
    assert not peer.connection.connected


def test_a_peer_that_reads_slowly_holds_the_sender_up(peer_of: MakePeer) -> None:
    peer = peer_of(slow, depth=4)
    assert peer.pipe.recv() == "ready"
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 100:
            peer.connection.send_bytes(bytes(sent), 0.1)
            sent += 1
    with pytest.raises(TimeoutError, match="takes no messages now"):
        peer.connection.send_bytes(bytes(sent), 0)
    assert 4 <= sent < 20, "no more than there is room for"
    peer.pipe.send(sent)
    assert peer.pipe.recv() == list(range(sent)), "what was not sent in time is not delivered"
    peer.connection.send_bytes(b"again", LIMIT)
    peer.pipe.send(1)
    assert peer.pipe.recv() == [5]
    peer.pipe.send(None)


def test_a_long_message_that_was_cut_short_is_not_delivered(peer_of: MakePeer) -> None:
    peer = peer_of(slow, depth=4)
    assert peer.pipe.recv() == "ready"
    with pytest.raises(TimeoutError):
        peer.connection.send_bytes(bytes(10_000_000), 0.1)
    peer.pipe.send(1)
    peer.connection.send_bytes(b"whole", LIMIT)
    assert peer.pipe.recv() == [5]
    peer.pipe.send(None)


def test_any_buffer_is_a_message(pair: Pair) -> None:
    near, far = pair
    for data in (bytearray(b"one"), memoryview(b"two"), np.arange(4, dtype=np.int32)):
        near.send_bytes(data)
        assert far.recv_bytes(LIMIT) == bytes(data)
    with pytest.raises(TypeError, match=r"send_bytes: .* not str: encode it first"):
        near.send_bytes("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        near.send_bytes(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not contiguous"):
        near.send_bytes(memoryview(b"12345678")[::2])


def test_recv_into_fills_a_buffer(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"12345")
    near.send_bytes(b"much longer")
    buffer = bytearray(8)
    assert far.recv_into(buffer, LIMIT) == 5
    assert buffer == b"12345\0\0\0"
    with pytest.raises(BufferTooShort) as caught:
        far.recv_into(buffer, LIMIT)
    assert caught.value.args == (b"much longer",)
    with pytest.raises(TypeError, match="read-only"):
        far.recv_into(b"12345")


def test_a_message_longer_than_wanted_stays(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"12345")
    with pytest.raises(OSError, match="5 bytes, more than maxlength 4"):
        far.recv_bytes(LIMIT, maxlength=4)
    assert far.recv_bytes(LIMIT, maxlength=5) == b"12345"


def test_poll_tells_of_messages_and_of_the_end(pair: Pair) -> None:
    near, far = pair
    assert not far.poll()
    assert not far.poll(0.01)
    near.send_bytes(b"")
    assert far.poll(LIMIT)
    assert far.recv_bytes() == b""
    near.close()
    assert far.poll(LIMIT)


def test_time_outs_are_checked_and_name_the_peer(pair: Pair) -> None:
    near, far = pair
    host, port = near.local_address
    with pytest.raises(TimeoutError, match=rf"recv_bytes: .*{host}:{port} has sent no message"):
        far.recv_bytes(0.01)
    for call in (far.recv_bytes, far.poll):
        with pytest.raises(ValueError, match="timeout -1 is negative"):
            call(-1)
        with pytest.raises(ValueError, match="timeout"):
            call("1")  # type: ignore[arg-type]


# -- the end --


def test_the_death_of_the_peer_is_no_end_of_file(peer_of: MakePeer) -> None:
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
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        peer.connection.recv_bytes(LIMIT)
    timer.join()
    signal.signal(signal.SIGINT, before)
    peer.pipe.send("close")
    with pytest.raises(EOFError):
        peer.connection.recv_bytes(LIMIT)


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
def test_words_that_make_no_sense_are_no_messages_or_end_the_connection(
    pair: Pair, word: int
) -> None:
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


# -- servers --


def test_a_server_tells_where_it_listens_and_waits_no_longer_than_asked() -> None:
    with shmnd.listen(("127.0.0.1", 0)) as server:
        assert server.address[0] == "127.0.0.1"
        assert f"listening at 127.0.0.1:{server.address[1]}" in repr(server)
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"Server.accept: nothing connected"):
                server.accept(0.01)
        thread = threading.Thread(target=lambda: shmnd.connect(server.address).close())
        thread.start()
        server.accept(LIMIT).close()
        thread.join()
    with pytest.raises(OSError, match="the server is closed"):
        server.accept()
    assert list(server) == []


def test_connections_live_on_when_their_server_is_closed(pair: Pair) -> None:
    near, far = pair  # its server is closed
    near.send_bytes(b"still here")
    assert far.recv_bytes(LIMIT) == b"still here"


def test_connect_is_refused_where_nothing_listens_and_ends_in_time() -> None:
    with shmnd.listen() as server:
        address = server.address
        with pytest.raises(TimeoutError):
            shmnd.connect(address, timeout=0.05)
        with pytest.raises(TimeoutError):
            asyncio.run(shmnd.aconnect(address, timeout=0.05))
    with pytest.raises(ConnectionRefusedError):
        shmnd.connect(address)


def test_a_client_that_speaks_otherwise_is_refused() -> None:
    with shmnd.listen() as server, shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(4)
        qp = adapter.create_queue_pair(cq, cq)
        connector = adapter.create_connector()
        asked = connector.connect(qp, server.address)
        with pytest.raises(TimeoutError):
            server.accept(0.2)
        with pytest.raises(ConnectionRefusedError):
            asked.result(LIMIT)
        assert b"shmnd.connect" in connector.get_private_data()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"nbytes": 0}, "nbytes 0"), ({"depth": 0}, "depth 0"), ({"depth": 4096}, "depth 4096")],
)
def test_listen_and_connect_check_what_they_are_given(options: dict[str, int], said: str) -> None:
    for call in (
        lambda: shmnd.listen(**options),
        lambda: shmnd.connect(("127.0.0.1", 1), **options),
    ):
        with pytest.raises(ValueError, match=said):
            call()


# -- what lies underneath --


def test_the_objects_underneath_are_those_of_the_interface(pair: Pair) -> None:
    near, far = pair
    for end in pair:
        assert isinstance(end.adapter, shmnd.Adapter)
        assert isinstance(end.qp, shmnd.QueuePair)
        assert isinstance(end.cq, shmnd.CompletionQueue)
        assert isinstance(end.connector, shmnd.Connector)
        assert isinstance(end.region, shmnd.MemoryRegion)
        assert end.memory.nbytes == end.region.length == end.remote_length == 1 << 20
    assert near.peer_address == far.local_address
    near.memory[:5] = list(b"write")
    near.qp.write(near.region.sge(0, 5), near.remote_address + 8, near.remote_token, "wrote")
    near.send_bytes(b"a message meanwhile")
    (result,) = near.cq.wait(timeout=LIMIT)
    assert (result.status, result.request_context) == (Status.SUCCESS, "wrote")
    assert bytes(far.memory[8:13]) == b"write"
    far.qp.read(far.region.sge(100, 5), far.remote_address, far.remote_token, "read")
    (result,) = far.cq.wait(timeout=LIMIT)
    assert (result.status, result.request_context) == (Status.SUCCESS, "read")
    assert bytes(far.memory[100:105]) == b"write"
    assert far.recv_bytes(LIMIT) == b"a message meanwhile"


def test_a_message_that_was_posted_by_hand_is_received_too(pair: Pair) -> None:
    near, far = pair
    near.memory[:5] = b"hello"
    near.qp.send(near.region.sge(0, 5), "by hand")
    assert far.recv_bytes(LIMIT) == b"hello"
    assert near.cq.wait(timeout=LIMIT)[0].request_context == "by hand"
