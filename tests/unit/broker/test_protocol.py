# SPDX-License-Identifier: Apache-2.0
"""Bytes in, checked requests out: nothing else may come through."""

import array
import errno
import json
import os
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmnd.broker import protocol
from shmnd.broker.protocol import (
    MAX_FDS,
    MAX_MESSAGE,
    BadMessage,
    PassedFd,
    Refusal,
    decode,
    decode_private,
    encode,
    encode_private,
    receive,
    send,
)
from shmnd.broker.service.validation import (
    MAX_OPAQUE,
    MAX_PRIVATE,
    REQUESTS,
    read_request,
    request_id,
)
from shmnd.status import Status
from unit.opened import is_open
from unit.sealed import sealed_memory

NULL = Path(os.devnull)
UID = "0123456789abcdef" * 2
CONNECT: dict[str, Any] = {
    "op": "connect",
    "adapter": UID,
    "object": 1,
    "local": ["127.0.0.1", 50000],
    "host": "::1",
    "port": 5000,
}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ends
    for end in ends:
        end.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- datagrams ---


def test_descriptors_travel_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    with NULL.open() as null, Path("/dev/zero").open() as zero:
        send(pair[0], b"x", [null.fileno(), zero.fileno()])
    data, fds, cut = receive(pair[1])
    assert (data, cut) == (b"x", False)
    assert [fd.kind() for fd in fds] == ["/dev/null", "/dev/zero"]
    assert all(not os.get_inheritable(fd.fileno()) for fd in fds)


def test_descriptors_that_are_not_taken_are_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    with NULL.open() as null:
        send(pair[0], b"x", [null.fileno()] * 3)
    numbers = [fd.fileno() for fd in receive(pair[1]).fds]
    assert len(numbers) == 3
    assert not any(map(is_open, numbers))


def test_more_descriptors_than_fit_are_reported_and_do_not_stay(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    before = descriptors()
    with NULL.open() as null:
        send(pair[0], b"x", [null.fileno()] * 40)
    datagram = receive(pair[1])
    assert datagram.cut
    assert len(datagram.fds) <= MAX_FDS + 1  # the padding of the buffer may hold one more
    del datagram
    assert descriptors() == before


def test_a_longer_datagram_is_cut(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].send(b"x" * (MAX_MESSAGE + 1))
    assert receive(pair[1]).cut
    pair[0].send(b"x" * MAX_MESSAGE)
    assert not receive(pair[1]).cut


def test_an_empty_datagram_means_that_the_peer_is_gone(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(BlockingIOError):
        receive(pair[1])
    pair[0].close()
    assert receive(pair[1]).data == b""
    with pytest.raises(BrokenPipeError):
        send(pair[1], b"x")


def test_last_messages_are_received(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"never read")
    pair[0].send(b"last words")
    pair[0].close()
    assert receive(pair[1]).data == b"last words"
    assert receive(pair[1]).data == b""


def test_a_detached_descriptor_has_no_owner() -> None:
    kept = PassedFd(os.open(os.devnull, os.O_RDONLY))
    number = kept.detach()
    del kept
    assert is_open(number)
    again = PassedFd(number)
    again.close()
    again.close()
    assert not is_open(number)


def rights(*numbers: int) -> tuple[int, int, bytes]:
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers).tobytes()


def test_only_descriptors_are_taken_for_descriptors() -> None:
    other = array.array("i", [7, 8, 9]).tobytes()
    ancillary = [
        (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, other),
        (socket.IPPROTO_IP, socket.SCM_RIGHTS, other),
        rights(5, 6),
    ]
    assert protocol.contents((b"data", ancillary, 0, None)) == (b"data", [5, 6], False)


class Moving:
    """Descriptors that arrive under the numbers of streams, with the numbers that were closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fds: list[int]) -> None:
        self.arrived: deque[Any] = deque([(b"data", [rights(*fds)], 0, None)])
        self.closed: list[int] = []
        self.free = 100
        monkeypatch.setattr(protocol, "duplicate", self.duplicate)
        monkeypatch.setattr(protocol, "close_all", self.closed.extend)

    def duplicate(self, fd: int) -> int:
        if self.free <= 0:
            raise OSError(errno.EMFILE, "none is free")
        self.free -= 1
        return 1000 + fd

    def move(self) -> list[int]:
        protocol._clear_of_streams(self.arrived)
        return protocol.contents(self.arrived[0])[1] if self.arrived else []


def test_descriptors_leave_the_numbers_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, [0, 7, 2])
    assert moving.move() == [1000, 7, 1002]
    assert moving.closed == [0, 2]


def test_descriptors_stay_where_no_number_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, [0, 7, 2])
    moving.free = 1
    assert moving.move() == [0, 7, 2]
    assert moving.closed == [1000], "the copy alone"


def test_descriptors_that_a_handler_took_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, [0, 7, 2])

    def duplicate(fd: int) -> int:
        moving.arrived.clear()
        return 1000 + fd

    monkeypatch.setattr(protocol, "duplicate", duplicate)
    assert moving.move() == []
    assert moving.closed == [1000, 1002], "the copies alone"


def test_only_sealed_shared_memory_has_a_size() -> None:
    assert PassedFd(sealed_memory(12345)).size() == 12345
    with tempfile.TemporaryFile() as ordinary:
        assert ordinary.truncate(12345)
        assert PassedFd(os.dup(ordinary.fileno())).size() == -1
    unsealed = os.memfd_create("shmnd-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 12345)
    assert PassedFd(unsealed).size() == -1
    assert PassedFd(os.open(os.devnull, os.O_RDONLY)).size() == -1
    assert PassedFd(-1).size() == -1
    assert PassedFd(-1).kind() == ""


# --- messages ---


def test_messages_survive_the_wire() -> None:
    message = {"op": "x", "text": "ä\ud800\n", "list": [1, -2.5, None, True, {"a": {}}]}
    assert decode(encode(message)) == message


def test_too_long_or_impossible_messages_are_not_sent() -> None:
    with pytest.raises(ValueError, match=str(MAX_MESSAGE)):
        encode({"x": "y" * MAX_MESSAGE})
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"x": float("nan")})
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(ValueError, match="refers to itself"):
        encode(endless)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"[]",
        b"7",
        b"null",
        b'"x"',
        b"{",
        b'{"op":"sync"}x',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 30000,
        b'{"a":' * 5000,
        b'{"a":' + b"[" * 20 + b"]" * 20 + b"}",
        b"\xff\xfe",
        b'{"a":"\xed\xa0\x80"}',
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_bad(data: bytes) -> None:
    try:
        message = decode(data)
        request_id(message)
        read_request(message, 0)
    except (BadMessage, Refusal):
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(REQUESTS)), st.data())
def test_any_values_are_a_request_or_refused(op: str, data: st.DataObject) -> None:
    shape = REQUESTS[op]
    message: dict[str, Any] = {
        "op": op,
        **{name: data.draw(JSON, label=name) for name in shape.fields},
    }
    status, text = Status.SUCCESS, ""
    try:
        read_request(message, shape.fds)
    except Refusal as refusal:
        status, text = refusal.status, refusal.message
    assert status in (Status.SUCCESS, Status.INVALID_PARAMETER)
    encode({"message": text})


# --- requests ---


def refusal_of(message: dict[str, Any], fds: int = 0) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read_request(message, fds)
    return caught.value


def test_a_good_request_comes_through_with_its_defaults() -> None:
    op, fields = read_request({**CONNECT, "id": 5, "something": "new"}, 0)
    assert op == "connect"
    assert fields == {
        "adapter": UID,
        "object": 1,
        "local": ("127.0.0.1", 50000),
        "host": "::1",
        "port": 5000,
        "protocol": 6,
        "private": "",
        "offer": "",
        "later": False,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("adapter", UID.upper()),
        ("adapter", UID + "0"),
        ("adapter", 7),
        ("object", 0),
        ("object", -1),
        ("object", 2**53),
        ("object", True),
        ("object", 1.0),
        ("object", "1"),
        ("local", ["127.0.0.1"]),
        ("local", ["127.0.0.1", -1]),
        ("local", [None, 1]),
        ("host", "localhost"),
        ("host", "127.1"),
        ("host", "::1%lo"),
        ("host", "\0"),
        ("host", "1" * 5000),
        ("host", 127),
        ("port", 0),
        ("port", 65536),
        ("protocol", 256),
        ("private", "***"),
        ("private", "QQ"),
        ("private", "ä"),
        ("private", 5),
        ("private", encode_private(bytes(MAX_PRIVATE + 1))),
        ("offer", []),
        ("offer", {}),
        ("offer", "y" * MAX_OPAQUE),
    ],
)
def test_a_bad_field_is_refused_by_name_and_value(field: str, value: object) -> None:
    refusal = refusal_of({**CONNECT, field: value})
    assert refusal.status is Status.INVALID_PARAMETER
    assert refusal.message.startswith(f"connect: {field} ")
    assert "must be" in refusal.message
    assert len(refusal.message) < 300


def test_a_missing_field_is_refused() -> None:
    for name in CONNECT.keys() - {"op"}:
        message = {key: value for key, value in CONNECT.items() if key != name}
        assert f"{name} is missing" in refusal_of(message).message


def test_the_limits_themselves_are_allowed() -> None:
    read_request({**CONNECT, "private": encode_private(bytes(MAX_PRIVATE))}, 0)
    offer = "y" * (MAX_OPAQUE - len('""'))
    read_request({**CONNECT, "offer": offer}, 0)
    biggest = {**CONNECT, "offer": offer, "private": encode_private(bytes(MAX_PRIVATE)), "id": 1}
    assert len(encode(biggest)) <= MAX_MESSAGE


def test_descriptors_must_be_as_many_as_the_request_takes() -> None:
    message = {"op": "accept", "connection": 1, "size": 1}
    assert refusal_of(message, 0).status is Status.INVALID_PARAMETER
    assert "2 descriptors" in refusal_of(message, 2).message
    read_request(message, 1)


@pytest.mark.parametrize("op", [None, 7, "", "hellO", [], {}, "__init__"])
def test_an_unknown_request_is_refused(op: object) -> None:
    assert refusal_of({"op": op}).status is Status.NOT_SUPPORTED


@pytest.mark.parametrize("ident", [0, -1, 2**53, "1", 1.5, [], True])
def test_an_unusable_id_is_bad(ident: object) -> None:
    with pytest.raises(BadMessage):
        request_id({"id": ident})


def test_hosts_get_one_spelling() -> None:
    _, fields = read_request({**CONNECT, "host": "0:0::0:1"}, 0)
    assert fields["host"] == "::1"


def test_private_data_is_exact() -> None:
    for data in (b"", b"\0", b"abc", bytes(range(256))):
        assert decode_private(encode_private(data)) == data


def test_nothing_that_is_forwarded_grows_beyond_a_message() -> None:
    # Text that came in as raw UTF-8 goes out with every character escaped.
    offer = "\u20ac" * 2000
    assert len(json.dumps(offer, ensure_ascii=False).encode()) < MAX_OPAQUE
    read_request({**CONNECT, "offer": offer}, 0)
    too_long = "\u20ac" * 4000
    assert len(json.dumps(too_long, ensure_ascii=False).encode()) < MAX_OPAQUE
    assert refusal_of({**CONNECT, "offer": too_long}).status is Status.INVALID_PARAMETER


def test_values_are_shortened_in_messages() -> None:
    assert len(protocol.show("x" * 10000)) < 100
    assert protocol.show("ä\ud800") == "\\xe4\\ud800"


_MAKE: Any = json.encoder.c_make_encoder


def _unknown(markers: object, *others: object) -> Any:
    """Stand for one that does without a record of cycles no more; json itself asks for one."""
    if markers is None:
        raise TypeError("markers must be a dict")
    return _MAKE(markers, *others)


def _other(markers: object, *others: object) -> Any:
    return _MAKE(markers, *others) if markers is not None else lambda value, _: [repr(value)]


@pytest.mark.parametrize("maker", [None, _unknown, _other])
def test_an_interpreter_without_the_encoder_that_is_known_writes_the_same(
    maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"a": [1, 2.5, "\u00e9", None, True], "b": {}}
    assert type(protocol._write) is _MAKE, "this interpreter has it"
    monkeypatch.setattr(json.encoder, "c_make_encoder", maker)
    assert "".join(protocol._writer()(value, 0)) == protocol.text_of(value)
