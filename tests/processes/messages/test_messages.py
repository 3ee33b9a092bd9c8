# SPDX-License-Identifier: Apache-2.0
"""Connections that carry messages: between two processes, in all three ways to wait."""

import asyncio
import contextlib
import threading
from multiprocessing import BufferTooShort
from multiprocessing.connection import Connection as Pipe

import numpy as np
import pytest

import shmnd
from processes.messages.kit import (
    LIMIT,
    LONG,
    SIZES,
    Address,
    MakePeer,
    Pair,
    echo,
    pattern,
    sender,
)
from shmnd import NdError, Status


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


def test_messages_sent_before_a_close_are_delivered_after_it(peer_of: MakePeer) -> None:
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
    assert peer.pipe.recv() == list(range(sent)), "a message not sent in time is not delivered"
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


@pytest.mark.parametrize("length", [4, 40_000])
def test_dates_are_a_message_and_objects_are_not(pair: Pair, length: int) -> None:
    near, far = pair
    dates = np.arange(length).astype("M8[s]")  # numpy gives them no format
    near.send_bytes(dates)
    arrived = np.zeros(length, "M8[s]")
    assert far.recv_into(arrived, LIMIT) == 8 * length
    assert (arrived == dates).all()
    objects = np.array([None] * length, dtype=object)
    with pytest.raises(TypeError, match="send_bytes: ndarray of Python objects"):
        near.send_bytes(objects)
    near.send_bytes(bytes(8 * length))
    with pytest.raises(TypeError, match="recv_into: ndarray of Python objects"):
        far.recv_into(objects)
    assert far.recv_bytes(LIMIT) == bytes(8 * length), "it was not taken"


def test_a_timeout_is_checked_also_where_nothing_is_to_wait_for(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"ready")
    assert far.poll(LIMIT)
    for wrong in (-1, float("nan"), "1", True):
        with pytest.raises(NdError, match=rf"send_bytes: timeout {wrong!r}"):
            near.send_bytes(b"", wrong)  # type: ignore[arg-type]
        with pytest.raises(NdError, match=rf"recv_bytes: timeout {wrong!r}"):
            far.recv_bytes(wrong)  # type: ignore[arg-type]
    assert far.recv_bytes(0) == b"ready"
    assert not far.poll(0.01), "nothing was sent"


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


def test_recv_into_fills_only_memory_that_bytes_may_be_written_to(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"12345678")
    refused = [bytearray(8).hex(), np.array([None]), np.zeros((8, 2), "u1")[:, 0], memoryview(b"8")]
    for buffer in refused:
        with pytest.raises(TypeError, match=r"Connection\.recv_into: .*"):
            far.recv_into(buffer, LIMIT)
    dates = np.zeros(2, "M8[s]")
    assert far.recv_into(dates, LIMIT) == 8
    assert dates.view("S8")[0] == b"12345678"
    near.send_bytes(b"")
    assert far.recv_into(bytearray(), LIMIT) == 0
    with pytest.raises(TimeoutError, match=r"Connection\.recv_into: .* has sent no message"):
        far.recv_into(bytearray(8), 0)
    with pytest.raises((TypeError, ValueError, shmnd.NdError), match=r"Connection\.recv_into"):
        far.recv_into(bytearray(8), -1)


def test_a_message_longer_than_wanted_stays(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"12345")
    with pytest.raises(OSError, match="5 bytes, more than maxlength 4"):
        far.recv_bytes(LIMIT, maxlength=4)
    assert far.recv_bytes(LIMIT, maxlength=5) == b"12345"


def test_poll_reports_messages_and_the_end(pair: Pair) -> None:
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
        for less, words in ((-1, "-1"), (-(10**400), "-1000+…")):  # long values are cut
            with pytest.raises(ValueError, match=f"timeout {words} is negative"):
                call(less)
        with pytest.raises(ValueError, match="timeout"):
            call("1")  # type: ignore[arg-type]


# -- servers --
def test_a_server_shows_its_address_and_waits_no_longer_than_asked() -> None:
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


def test_a_client_of_another_protocol_is_refused() -> None:
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
def test_listen_and_connect_check_their_arguments(options: dict[str, int], said: str) -> None:
    for call in (
        lambda: shmnd.listen(**options),
        lambda: shmnd.connect(("127.0.0.1", 1), **options),
    ):
        with pytest.raises(ValueError, match=said):
            call()


# -- the underlying objects --
def test_the_objects_underneath_belong_to_the_interface(pair: Pair) -> None:
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
