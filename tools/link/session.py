# SPDX-License-Identifier: Apache-2.0
"""The session of zenoh that a link uses, and no other part of zenoh."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["INSTALL", "Session"]

INSTALL: Final = "pip install 'shmnd[link]'"
_WHERE: Final = re.compile(r" at /\S+\.rs:\d+\.?")
"""Where errors of zenoh come from in its sources."""
_ASK_LIMIT: Final = 3600.0
"""Seconds after which a request is given up; a far link that ends gives it up at once."""

_ADDRESS: Final = re.compile(r"(?:tcp|tls|udp|quic\w*|ws)/[^?#]*?(?::(\d{1,5}))?(?:[?#]|$)")
"""An address, and its port, if it has one."""
_MOST_PORT: Final = 65535
_ENDPOINTS: Final = ("listen/endpoints", "connect/endpoints")

_SETTINGS: Final = {
    "mode": "peer",
    # A far link that is not there yet, or comes again, is tried until it is.
    "connect/timeout_ms": -1,
    "connect/exit_on_failure": False,
    "connect/retry": {
        "period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 2,
    },
    "scouting/multicast/enabled": False,
}  # fmt: skip

_NO_SHARED_MEMORY: Final = {
    "transport/shared_memory/enabled": False,
    "transport/shared_memory/mode": "lazy",
}
"""Settings that keep zenoh from its own shared memory: it writes it again while a reader on the
same host is stopped, or slow."""


class Session:
    """A session of zenoh: messages to keys, tokens that end with the session, and queries."""

    def __init__(
        self, listen: Sequence[str], connect: Sequence[str], config: Path | None = None
    ) -> None:
        try:
            # Any: its stubs are there only where it is installed.
            self._zenoh: Any = importlib.import_module("zenoh")
        except ImportError as exc:
            raise ImportError(f"shmnd ipc link needs eclipse-zenoh ({exc}): {INSTALL}") from exc
        ends = ", ".join([*listen, *connect])
        if config is not None and not ends:
            ends = f"what {str(config)!r} names"
        given = None if config is None else _read(self._zenoh, config)
        try:
            made = _configure(self._zenoh, given, listen, connect)
            if config is not None and not _names_links(made):
                raise OSError(
                    f"{str(config)!r} names no endpoint, or only those of zenoh without a file: "
                    "add --listen or --connect"
                )
            for name, value in _NO_SHARED_MEMORY.items():
                made.insert_json5(name, json.dumps(value))
            self._session: Any = self._zenoh.open(made)
        except self._zenoh.ZError as exc:
            raise OSError(f"zenoh cannot open {ends}: {_WHERE.sub('', str(exc))}") from exc
        self._declared: list[Any] = []

    @property
    def far(self) -> int:
        """The number of other sessions that it is connected to."""
        return len(list(self._session.info.peers_zid()))

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        """Send bytes; with `block` wait for room on the way, else they may be dropped there.

        OSError: zenoh did not take them.
        """
        control = self._zenoh.CongestionControl
        try:
            self._session.put(
                key,
                payload,
                attachment=attachment,
                congestion_control=control.BLOCK if block else control.DROP,
            )
        except self._zenoh.ZError as exc:
            raise OSError(f"zenoh did not send: {_WHERE.sub('', str(exc))}") from exc

    def listen(self, key: str, heard: Callable[[str, bytes, bytes], None]) -> Any:
        """Call a function, in any thread, with the messages to keys; return the declaration."""

        def hear(sample: Any) -> None:
            attachment = sample.attachment.to_bytes() if sample.attachment else b""
            heard(str(sample.key_expr), sample.payload.to_bytes(), attachment)

        return self._session.declare_subscriber(key, hear)

    def token(self, key: str) -> Any:
        """Declare a key that others see while this session lives; return it, for `end`."""
        return self._session.liveliness().declare_token(key)

    def follow(self, key: str, seen: Callable[[str, bool], None]) -> Any:
        """Call a function for each token that is there or comes (True), or goes (False).

        Return the declaration.
        """
        put = self._zenoh.SampleKind.PUT

        def see(sample: Any) -> None:
            seen(str(sample.key_expr), sample.kind == put)

        return self._session.liveliness().declare_subscriber(key, see, history=True)

    def serve(self, key: str, asked: Callable[[Any], None]) -> Any:
        """Call a function with each query of a key; return the declaration."""
        return self._session.declare_queryable(key, asked)

    def ask(
        self, key: str, payload: bytes, answer: Callable[[Any], None], end: Callable[[], None]
    ) -> None:
        """Ask; `answer` is called with each reply, and then `end`."""
        handlers = self._zenoh.handlers
        self._session.get(
            key,
            handler=handlers.Callback(answer, end),
            payload=payload,
            timeout=_ASK_LIMIT,
            # A stream has many replies under one key.
            consolidation=self._zenoh.ConsolidationMode.NONE,
        )

    def end(self, declared: Iterable[Any]) -> None:
        """End declarations; harmless when the session has ended."""
        for each in declared:
            try:
                each.undeclare()
            except self._zenoh.ZError:
                pass  # it went with the session

    def close(self) -> None:
        """End the session, and with it all that it declared."""
        self._session.close()


def _read(zenoh: Any, path: Path) -> Any:
    """Return the configuration that a file has."""
    what = f"zenoh cannot take {str(path)!r} as its configuration"
    if path.exists() and not path.is_file():
        # Zenoh would wait for the end of a pipe, and take no signal meanwhile.
        raise OSError(f"{what}: it is not a regular file")
    try:
        return zenoh.Config.from_file(str(path))
    except zenoh.ZError as exc:
        raise OSError(f"{what}: {_WHERE.sub('', str(exc))}") from exc


def _configure(zenoh: Any, given: Any, listen: Sequence[str], connect: Sequence[str]) -> Any:
    """Return a configuration, of a file or a new one, with the settings and endpoints of a link."""
    usual = zenoh.Config()
    made = zenoh.Config() if given is None else given
    for name, value in _SETTINGS.items():
        # What a file leaves out is as without a file. Zenoh itself would listen with tcp
        # at each address, and accept links that have no certificate.
        if value or made.get_json(name) == usual.get_json(name):
            made.insert_json5(name, json.dumps(value))
    for name, named in zip(_ENDPOINTS, (listen, connect), strict=True):
        every = list(dict.fromkeys([*named, *_endpoints_of(made, usual, name)]))
        made.insert_json5(name, json.dumps(every))
    _require_ports(json.loads(made.get_json("connect/endpoints")))
    return made


def _endpoints_of(config: Any, usual: Any, name: str) -> list[str]:
    """Return the endpoints of a file, which may have some for each mode; none that are usual."""
    text = config.get_json(name)
    found = [] if text == usual.get_json(name) else json.loads(text)
    return list(found.get("peer", ()) if isinstance(found, dict) else found)


def _require_ports(endpoints: Iterable[str]) -> None:
    """Raise for an address without a port, to which zenoh would try to connect without a word."""
    for each in endpoints:
        found = _ADDRESS.match(each)
        if found is not None and not 0 < int(found[1] or 0) <= _MOST_PORT:
            raise OSError(
                f"zenoh cannot open {each}: an endpoint has a port of at most {_MOST_PORT}, as"
                " tcp/192.0.2.7:7447"
            )


def _names_links(config: Any) -> bool:
    """Return whether a configuration says where other links are, or how they are found."""
    ways = (*_ENDPOINTS, "scouting/multicast/enabled")
    return any(json.loads(config.get_json(each)) for each in ways)
