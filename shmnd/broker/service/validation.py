# SPDX-License-Identifier: Apache-2.0
"""The form of a request: its descriptors, its fields, their types and limits.

Everything that a client says is checked here before anything else sees it.
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Callable, Mapping
from typing import Final

from shmnd.broker.protocol import (
    MAX_REASON,
    Address,
    BadMessage,
    Fields,
    Refusal,
    decode_private,
    show,
    text_of,
)
from shmnd.status import Status

__all__ = [
    "MAX_DATA",
    "MAX_NAME",
    "MAX_OPAQUE",
    "MAX_PRIVATE",
    "REQUESTS",
    "Shape",
    "read_request",
    "request_id",
]

MAX_PRIVATE: Final = 8192
"""Bytes of private data, before base64; well above what any adapter advertises."""
MAX_OPAQUE: Final = 16384
"""Bytes of what the broker does not read (a table, an offer, an answer) as JSON text."""
MAX_NAME: Final = 255
"""Bytes of the name of a record."""
MAX_DATA: Final = 4096
"""Bytes of the data of a record as JSON text."""
MAX_HELD: Final = 128
"""Connections named by one `holds` request; more take more requests."""

_ID_MAX: Final = 2**53 - 1  # any JSON reader can hold it
_U31: Final = 2**31 - 1
_CONNECTION_MAX: Final = 2**63 - 1
_SIZE_MAX: Final = 2**56

_LONGEST_LETTER: Final = 12
"""The most bytes of a character as JSON text: two escapes of six."""

_UID: Final = re.compile(r"[0-9a-f]{32}")
_LABEL: Final = re.compile(r"[a-z0-9.-]{1,32}")

# A check converts a field of the message to the value that the broker uses, or raises
# ValueError with the limit that was broken.

Check = Callable[[object], object]


def _integer(low: int, high: int) -> Check:
    def check(value: object) -> int:
        if type(value) is not int or not low <= value <= high:  # a bool is none
            raise ValueError(f"must be an integer from {low} to {high}")
        return value

    return check


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _uid(value: object) -> str:
    if not isinstance(value, str) or not _UID.fullmatch(value):
        raise ValueError("must be 32 lower-case hexadecimal digits")
    return value


def _choice(*words: str) -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return check


def _host(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a numeric IPv4 or IPv6 address")
    return _canonical(value)


@functools.lru_cache(256)
def _canonical(value: str) -> str:
    family = socket.AF_INET6 if ":" in value else socket.AF_INET
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, value))
    except (OSError, ValueError):  # ValueError: a NUL character inside
        raise ValueError("must be a numeric IPv4 or IPv6 address") from None


_port = _integer(0, 65535)
_real_port = _integer(1, 65535)


def _address(value: object) -> Address:
    return _host_and_port(value, _real_port)


def _source(value: object) -> Address:
    """Return the address of an object to bind. Port 0: any port."""
    return _host_and_port(value, _port)


def _host_and_port(value: object, number: Check) -> Address:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("must be a host and a port")
    port = number(value[1])
    assert isinstance(port, int)
    return _host(value[0]), port


def _private(value: object) -> str:
    if value == "":
        return ""  # at once: most send none
    if not isinstance(value, str):
        raise ValueError("must be base64 text")
    try:
        size = len(decode_private(value))
    except ValueError:
        raise ValueError("must be base64 text") from None
    if size > MAX_PRIVATE:
        raise ValueError(f"must be at most {MAX_PRIVATE} bytes, not {size}")
    return value


def _require_length(value: object, limit: int) -> None:
    size = len(text_of(value))
    if size > limit:
        raise ValueError(f"must be at most {limit} bytes of JSON, not {size}")


def _json_object(limit: int) -> Check:
    def check(value: object) -> Fields:
        if not isinstance(value, dict):
            raise ValueError("must be a JSON object")
        _require_length(value, limit)
        return value

    return check


def _reason(value: object) -> str:
    """Return a reason for the peer's error message, cut, and with control characters escaped."""
    text = _opaque_text(value)[:MAX_REASON]
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return shown[:MAX_REASON]


def _opaque_text(value: object) -> str:
    """Return a text that the broker passes on unread, after a check of its type and length."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    if _LONGEST_LETTER * len(value) + 2 > MAX_OPAQUE:  # else it fits, whatever it holds
        _require_length(value, MAX_OPAQUE)
    return value


def _label(value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise ValueError("must be 1 to 32 lower-case letters, digits, dots and hyphens")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value.encode(errors="replace")) > MAX_NAME:
        raise ValueError(f"must be text of at most {MAX_NAME} bytes")
    return value


def _list(each: Check, limit: int) -> Check:
    def check(value: object) -> list[object]:
        if not isinstance(value, list) or len(value) > limit:
            raise ValueError(f"must be a list of at most {limit} entries")
        return [each(item) for item in value]

    return check


class _Default:
    """Marks a field that may be left out."""

    def __init__(self, check: Check, value: object) -> None:
        self.check = check
        self.value = value


_REQUIRED: Final = object()

_Rules = tuple[tuple[str, Check, object], ...]
"""Fields: the name, the check, and the value when it is left out or `_REQUIRED`."""


def _rules(**fields: Check | _Default) -> _Rules:
    return tuple(
        (name, rule.check, rule.value) if isinstance(rule, _Default) else (name, rule, _REQUIRED)
        for name, rule in fields.items()
    )


def _fields(rules: _Rules, message: Mapping[str, object]) -> Fields:
    """Return the checked fields of a request; raise ValueError that names a wrong one."""
    taken: Fields = {}
    for name, check, default in rules:
        if name in message:
            value = message[name]
            try:
                taken[name] = check(value)
            except ValueError as exc:
                raise ValueError(f"{name} {show(value)}: {exc}") from None
        elif default is _REQUIRED:
            raise ValueError(f"{name} is missing")
        else:
            taken[name] = default
    return taken


_HELD: Final = _rules(
    connection=_integer(1, _CONNECTION_MAX),
    adapter=_uid,
    peer_adapter=_uid,
    local=_address,
    peer=_address,
    role=_choice("active", "passive"),
    protocol=_Default(_integer(0, 255), 6),
)


def _held(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("must be JSON objects")
    return _fields(_HELD, value)


class Shape:
    """The form of a request: the number of its descriptors, and its fields."""

    def __init__(self, fds: int, fields: Mapping[str, Check | _Default]) -> None:
        self.fds: Final = fds
        self.fields: Final = fields
        self.rules: Final = _rules(**fields)


_object = _integer(1, _ID_MAX)
_connection = _integer(1, _CONNECTION_MAX)
_protocol = _Default(_integer(0, 255), 6)
_no_private = _Default(_private, "")

REQUESTS: Final[Mapping[str, Shape]] = {
    "hello": Shape(
        1,
        {
            "version": _integer(0, _U31),
            "key": _uid,
            "pid": _integer(0, _U31),
            "holds": _Default(_flag, False),
        },
    ),
    "adapter": Shape(0, {"key": _uid, "table": _Default(_json_object(MAX_OPAQUE), {})}),
    "adapter_close": Shape(0, {"adapter": _uid}),
    "segment": Shape(
        1,
        {
            "adapter": _uid,
            "seg": _integer(0, _ID_MAX),
            "size": _integer(1, _SIZE_MAX),
            "writable": _flag,
        },
    ),
    "segment_close": Shape(0, {"adapter": _uid, "seg": _integer(0, _ID_MAX)}),
    "bind": Shape(
        0,
        {
            "adapter": _uid,
            "object": _object,
            "kind": _choice("listener", "connector"),
            "host": _host,
            "port": _port,
            "protocol": _protocol,
        },
    ),
    "listen": Shape(0, {"object": _object, "backlog": _integer(0, _U31)}),
    "request": Shape(0, {"object": _object, "connector": _object}),
    "cancel_request": Shape(
        0, {"object": _object, "connector": _object, "released": _Default(_flag, False)}
    ),
    "connect": Shape(
        0,
        {
            "adapter": _uid,
            "object": _object,
            "local": _source,
            "host": _host,
            "port": _real_port,
            "protocol": _protocol,
            "private": _no_private,
            "offer": _Default(_opaque_text, ""),
            "later": _Default(_flag, False),
        },
    ),
    "withdraw": Shape(0, {"connection": _connection, "why": _Default(_reason, "")}),
    "accept": Shape(
        1,
        {
            "connection": _connection,
            "private": _no_private,
            "answer": _Default(_opaque_text, ""),
            "size": _integer(1, _SIZE_MAX),
        },
    ),
    "reject": Shape(
        0, {"connection": _connection, "private": _no_private, "why": _Default(_reason, "")}
    ),
    "close": Shape(0, {"object": _object}),
    "closed": Shape(0, {"connection": _connection, "object": _Default(_integer(0, _ID_MAX), 0)}),
    "holds": Shape(
        0,
        {
            "connections": _Default(_list(_held, MAX_HELD), ()),
            "done": _Default(_flag, False),
        },
    ),
    "announce": Shape(
        0,
        {
            "adapter": _uid,
            "object": _object,
            "kind": _label,
            "name": _name,
            "data": _Default(_json_object(MAX_DATA), {}),
            "since": _Default(_integer(0, _ID_MAX), 0),
        },
    ),
    "retract": Shape(0, {"object": _object}),
    "find": Shape(
        0,
        {
            "kind": _label,
            "name": _Default(_name, ""),
            "after": _Default(_integer(0, _U31), 0),
        },
    ),
    "watch": Shape(0, {"kind": _label, "name": _Default(_name, "")}),
    "unwatch": Shape(0, {"kind": _label, "name": _Default(_name, "")}),
    "meet": Shape(0, {"adapter": _uid, "peer": _uid}),
    "part": Shape(0, {"adapter": _uid, "peer": _uid}),
    "sync": Shape(0, {}),
    "unheard": Shape(0, {"adapter": _uid, "seg": _Default(_integer(-1, _ID_MAX), -1)}),
    "doorbell_lost": Shape(0, {"process": _uid}),
    "status": Shape(
        0,
        {
            "kind": _Default(
                _choice("none", "processes", "adapters", "listeners", "connections", "counters"),
                "none",
            ),
            "after": _Default(_integer(0, _U31), 0),
        },
    ),
}


def request_id(message: Mapping[str, object]) -> int | None:
    """Return the id of a request, None when no reply is wanted; BadMessage when it is unusable."""
    ident = message.get("id")
    if ident is None or (type(ident) is int and 0 < ident <= _ID_MAX):
        return ident  # at once: what every client sends
    try:
        _object(ident)
    except ValueError as exc:
        raise BadMessage(f"id {show(ident)}: {exc}") from None
    assert isinstance(ident, int)
    return ident


def read_request(message: Mapping[str, object], fds: int) -> tuple[str, Fields]:
    """Return the name and the checked fields of a request; Refusal names the error."""
    op = message.get("op")
    shape = REQUESTS.get(op) if isinstance(op, str) else None
    if shape is None or not isinstance(op, str):
        raise Refusal(Status.NOT_SUPPORTED, f"op {show(op)} is not one of {', '.join(REQUESTS)}")
    if fds != shape.fds:
        raise Refusal(
            Status.INVALID_PARAMETER, f"{op}: {fds} descriptors came with it, not {shape.fds}"
        )
    try:
        return op, _fields(shape.rules, message)
    except ValueError as exc:
        raise Refusal(Status.INVALID_PARAMETER, f"{op}: {exc}") from None
