# SPDX-License-Identifier: Apache-2.0
"""Messages on the broker's socket: JSON text, and the descriptors of a message with its datagram.

A request `{"op": …, "id": n, …}` gets one reply `{"re": n, "status": u32, "message": str, …}`; a
request without an id gets none. An event `{"ev": …}` comes unasked.

A datagram of a client is one message; one of the broker is one with descriptors, or several
without, a line each. Bytes that come from a client may be anything at all: reading them raises
`BadMessage` at worst, and no received descriptor stays open behind.
"""

from __future__ import annotations

import array
import binascii
import fcntl
import hashlib
import json
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmnd.broker.access import process_of
from shmnd.broker.untaken import close_all
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.owned import Owned
from shmnd.common.streams import duplicate
from shmnd.status import Status, error

__all__ = [
    "FIRST_FOR_TOOLS",
    "MAX_FDS",
    "MAX_MESSAGE",
    "MAX_REASON",
    "VERSION",
    "Address",
    "Arrived",
    "BadMessage",
    "Datagram",
    "Fields",
    "PassedFd",
    "Refusal",
    "channel",
    "contents",
    "decode",
    "decode_private",
    "encode",
    "encode_private",
    "encode_request",
    "join",
    "name_of",
    "receive",
    "receive_into",
    "send",
    "show",
    "split",
    "text_of",
    "written",
]

VERSION: Final = 16
"""Both ends must speak the same; an upgrade that changes a message raises it."""

FIRST_FOR_TOOLS: Final = 1 << 31
"""Segments with these numbers are for observers; peers do not receive them."""

MAX_MESSAGE: Final = 32768
"""Bytes of one datagram, in both directions."""
MAX_REASON: Final = 500
"""Letters of the reason that a refusal, or a withdrawal, brings to the peer."""
MAX_FDS: Final = 4
"""Descriptors with one message; no request carries more than two."""
MAX_DEPTH: Final = 16
"""Nesting of a message. The JSON parser recurses, so this also bounds the encoder's stack."""

# Computed once: a combination of flags of `socket` takes longer than the call that they are for.
_RECEIVE_FLAGS: Final = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_SEND_FLAGS: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_CUT_FLAGS: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_SOCKET: Final = int(socket.SOL_SOCKET)
_RIGHTS: Final = int(socket.SCM_RIGHTS)
_FD_BYTES: Final = array.array("i").itemsize
_FDS_ROOM: Final = socket.CMSG_SPACE(MAX_FDS * _FD_BYTES)
_RECEIVE: Final = ((MAX_MESSAGE, _FDS_ROOM, _RECEIVE_FLAGS),)

_SHOWN: Final = 64

Address = tuple[str, int]
Fields = dict[str, Any]
Arrived = tuple[bytes, list[tuple[int, int, bytes]], int, Any]
"""A datagram as `recvmsg` returns it; its descriptors belong to its holder."""


class BadMessage(Exception):
    """Bytes that cannot even be answered; their sender is dropped."""


class Refusal(Exception):
    """A request that is answered with a status other than success."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PassedFd(Owned):
    """A file descriptor that a message passes on; it is closed with the last reference to it.

    The same pidfd or segment may be in many outgoing queues at once, so no queue could say
    when to close it.
    """

    __slots__ = ()

    def __init__(self, fd: int) -> None:
        if fd >= 0:
            self._take(int, fd)

    def kind(self) -> str:
        """Return the kernel's name of what it refers to; empty where /proc does not show it."""
        try:
            return str(Path(f"/proc/self/fd/{self.fd}").readlink())
        except OSError as exc:
            pass_on(exc)
            return ""

    def process(self) -> int:
        """Return the process that it stands for, when it is a pidfd (see `process_of`)."""
        try:
            return process_of(self.fd)
        except OSError as exc:
            pass_on(exc)
            return 0  # no descriptor is free to read it

    def size(self) -> int:
        """Return the size of shared memory that no process can truncate, -1 for anything else.

        A file system may block a process that asks for a size, or closes a file. So a file that is
        not shared memory is never passed on; reading its seals asks no file system.
        """
        try:
            if not fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                return -1
            return os.fstat(self.fd).st_size
        except (OSError, ValueError) as exc:  # it has no seals, or was closed
            pass_on(exc)
            return -1


def channel() -> tuple[PassedFd, PassedFd]:
    """Return the two ends of a new doorbell: the ringing end and the listening end.

    They are sockets, since a send to a socket never has to wait for the other end.
    """
    ringing, listening = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return PassedFd(ringing.detach()), PassedFd(listening.detach())


class Datagram(NamedTuple):
    """One received message; `cut` when the kernel had to leave out bytes or descriptors."""

    data: bytes
    fds: list[PassedFd]
    cut: bool


# --- datagrams ---------------------------------------------------------------------------------


def receive(sock: socket.socket) -> Datagram:
    """Receive and return one datagram, without waiting. Empty data means that the peer is gone.

    BlockingIOError when there is none, OSError when the socket is broken.
    """
    arrived: deque[Arrived] = deque()
    receive_into(arrived, sock)
    data, fds, cut = contents(arrived[0])
    return Datagram(data, [PassedFd(fd) for fd in fds], cut)


def receive_into(arrived: deque[Arrived], sock: socket.socket) -> None:
    """Append one datagram as `receive` takes it.

    Compiled code appends it: a handler of a signal runs behind that, and what it raises loses
    neither the datagram nor the descriptors that came with it.
    """
    try:
        arrived.extend(starmap(sock.recvmsg, _RECEIVE))
    except ConnectionResetError:
        # The peer has closed with unread data. The kernel reports that once, before the datagrams
        # that the peer sent last, which can still be received.
        arrived.extend(starmap(sock.recvmsg, _RECEIVE))
    if arrived and arrived[-1][1]:
        _clear_of_streams(arrived)


def _clear_of_streams(arrived: deque[Arrived]) -> None:
    """Move descriptors of the last datagram away from the numbers of closed streams.

    Between two statements that call nothing no handler of a signal takes the datagram.
    """
    last = arrived[-1]
    data, fds, _ = contents(last)
    if min(fds, default=3) > 2:
        return  # as nearly always
    low = [fd for fd in fds if fd <= 2]
    moved: list[int] = []
    try:
        for fd in fds:
            moved.append(duplicate(fd) if fd <= 2 else fd)
    except OSError as exc:
        low = [fd for fd in moved if fd not in fds]
        if is_interruption(exc):
            close_all(low)
            raise
        # else no descriptor is free: they stay where they are
    else:
        whole = (data, [(_SOCKET, _RIGHTS, array.array("i", moved).tobytes())], *last[2:])
        if arrived and arrived[-1] is last:
            arrived[-1] = whole
        else:
            low = [fd for fd in moved if fd not in fds]
    close_all(low)


def contents(arrived: Arrived) -> tuple[bytes, list[int], bool]:
    """Return the bytes of a datagram, its descriptors, and whether it was cut."""
    data, ancillary, flags, _ = arrived
    fds: list[int] = []
    if not ancillary:
        return data, fds, flags & _CUT_FLAGS != 0  # at once: most messages bring none
    for level, kind, content in ancillary:
        if level == _SOCKET and kind == _RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(content[: len(content) - len(content) % _FD_BYTES])
            fds += numbers
    return data, fds, flags & _CUT_FLAGS != 0


def send(
    sock: socket.socket,
    data: bytes,
    fds: Sequence[int] = (),
    noted: deque[int] | None = None,
) -> None:
    """Send one datagram without waiting; raise OSError when it cannot be sent.

    Compiled code appends its length to `noted`: a handler of a signal runs behind that, and what it
    raises leaves a datagram that was sent and noted, or neither.
    """
    rights = [(_SOCKET, _RIGHTS, array.array("i", fds))] if fds else ()
    lengths = starmap(sock.sendmsg, [([data], rights, _SEND_FLAGS)])
    (deque[int](maxlen=0) if noted is None else noted).extend(lengths)


def encode(message: Mapping[str, object]) -> bytes:
    """Return the bytes of a message. ValueError when it has no JSON form or is too long."""
    data = text_of(message).encode("ascii")
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"a message of {len(data)} bytes; the limit is {MAX_MESSAGE}")
    return data


def encode_request(call: str, message: dict[str, Any]) -> bytes:
    """Return the bytes of a request; INVALID_BUFFER_SIZE of `call` when it is too long."""
    try:
        return encode(message)
    except ValueError as exc:
        pass_on(exc)
        raise error(Status.INVALID_BUFFER_SIZE, call, str(exc)) from None


def join(messages: Sequence[bytes]) -> bytes:
    """Return one datagram of encoded messages; `split` takes them out."""
    return b"\n".join(messages)  # encoded text holds no line feed


def split(data: bytes) -> list[bytes]:
    """Return the encoded messages of a datagram."""
    return data.split(b"\n")


def decode(data: bytes) -> Fields:
    """Return the message in some bytes; raise BadMessage if they hold none."""
    try:
        text = data.decode("utf-8")
        try:
            message, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            message = _DECODER.decode(text)  # blanks, or no JSON
    except (ValueError, RecursionError) as exc:
        pass_on(exc)
        raise BadMessage(f"not a JSON message: {show(str(exc))}") from None
    if not isinstance(message, dict):
        raise BadMessage(f"a JSON {type(message).__name__} where an object was expected")
    # With so few brackets it cannot be.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _deeper_than(message, MAX_DEPTH):
        raise BadMessage(f"nested deeper than {MAX_DEPTH}")
    return message


def text_of(value: object) -> str:
    """Return a value as JSON, the way it travels. ValueError when it has no such form."""
    try:
        return "".join(_write(value, 0))
    except RecursionError:
        raise ValueError("nested too deep, or refers to itself") from None


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {show(text)} is out of range")
    return value


def _parse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _writer() -> Callable[[object, int], Iterable[str]]:
    """Return the function by which a JSONEncoder writes a value.

    The encoder makes it anew for each value, which takes as long as writing a short message.
    """
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    quote = getattr(json.encoder, "encode_basestring_ascii", None)
    # It keeps no record of the objects above it: a cycle among them ends with a RecursionError.
    arguments = (None, encoder.default, quote, None, ":", ",", False, False, False)
    try:
        writer: Callable[[object, int], Iterable[str]] = make(*arguments)
        if "".join(writer({"a": [1, "b"]}, 0)) == '{"a":[1,"b"]}':
            return writer
    except TypeError:
        pass  # an interpreter without this function, or with another one of its name
    return lambda value, _: [encoder.encode(value)]


_write: Final = _writer()
# Integers are the interpreter's own affair: it refuses those that take long to read, and a function
# called for each costs half of the time of a message.
_DECODER: Final = json.JSONDecoder(parse_float=_parse_float, parse_constant=_parse_constant)
_scan: Final[Callable[[str, int], tuple[Any, int]]] = getattr(
    _DECODER, "scan_once", _DECODER.raw_decode
)


def _deeper_than(value: object, limit: int) -> bool:
    """Return whether containers nest deeper than the limit; by levels, without recursion."""
    level: list[object] = [value]
    for _ in range(limit + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return True


def show(value: object) -> str:
    """Return the text of any value for a message, shortened."""
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# --- names -------------------------------------------------------------------------------------


def written(address: Address) -> str:
    """Return an address as people write it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def name_of(key: str) -> str:
    """Return the public name of a process or an adapter, which only the owner of its key can claim.

    Peers receive the name. Without the key none of them can pose as its owner before a new broker,
    which remembers nothing of the old one.
    """
    return hashlib.sha256(bytes.fromhex(key)).hexdigest()[:32]


# --- private data ------------------------------------------------------------------------------


def encode_private(data: bytes) -> str:
    """Return private data in the form in which it travels."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_private(text: str) -> bytes:
    """Return decoded private data; ValueError when it is not in that form."""
    return binascii.a2b_base64(text, strict_mode=True) if text else b""
