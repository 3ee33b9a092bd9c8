# SPDX-License-Identifier: Apache-2.0
"""The two ends of a benchmark as two commands: the client sets the options, and reports.

The server offers what a worker process offers, and nothing but connections of shmnd: a client
names parameters, which are read and checked here, and no program. What else a command starts,
peers or all to all, runs where the client is.
"""

import argparse
import contextlib
import functools
import gc
import json
from collections.abc import Sequence
from typing import Any, Final

from ..measure.environment import choose_cpus
from ..subjects.connecting import Connecting
from ..subjects.nd1 import ShmndNd1
from ..subjects.own import HOST, Shmnd
from ..workers import lines
from ..workers.harness import Stage
from ..workers.leash import pin
from ..workers.lines import Exchange
from ..workers.worker import SERVER, Worker

DEFAULT: Final = (HOST, 18515)
"""Where perftest's programs meet, too."""
_LIMIT: Final = 20.0
_ENDS: Final = frozenset({Shmnd.end, ShmndNd1.end, Connecting.end})


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options that run the ends of a command apart."""
    parser.set_defaults(command=command)
    where = _text(DEFAULT)
    group = parser.add_argument_group("both ends apart").add_mutually_exclusive_group()
    group.add_argument(
        "--server",
        type=address,
        nargs="?",
        const=DEFAULT,
        metavar="HOST:PORT",
        help=f"run as the server of one client, which sets all other options (default {where})",
    )
    group.add_argument(
        "--client",
        type=address,
        metavar="HOST[:PORT]",
        help="measure with the server at this address",
    )


def refuse_options(parser: argparse.ArgumentParser, reason: str) -> None:
    """Let a command that has only one end reject the options for two."""

    class Refuse(argparse.Action):
        def __call__(
            self, parser: argparse.ArgumentParser, _: object, __: object, option: str | None = None
        ) -> None:
            parser.error(f"argument {option}: {reason}")

    for option in ("--server", "--client"):
        parser.add_argument(option, nargs="?", action=Refuse, help=argparse.SUPPRESS)


def address(text: str) -> tuple[str, int]:
    """Return the address of a server."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT[1])
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address as {_text(DEFAULT)}")
    return host, int(port)


def _text(where: tuple[str, int]) -> str:
    host, port = where
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe(args: argparse.Namespace) -> str:
    """Return where the server of a run was; nothing when it was started with the client."""
    return f"with the server at {_text(args.client)}" if args.client is not None else ""


def stage(args: argparse.Namespace, cpus: Sequence[int]) -> Stage:
    """Return the stage of a run, with a server on another host if one was named."""
    if args.client is None:
        return Stage(cpus)
    import shmnd

    from ..workers.connection import WireChannel

    adapter = shmnd.open_adapter(args.client[0], namespace=args.namespace)
    channel = WireChannel(adapter)
    asked = json.dumps({"command": args.command}).encode()
    try:
        connecting = channel.connector.connect(channel.qp, args.client, private_data=asked)
        connecting.result(_LIMIT)
        channel.connector.complete_connect().result(_LIMIT)
        channel.receive(_LIMIT)  # its greeting, as of any worker
    except ConnectionRefusedError as exc:
        reason = _reason(channel)
        channel.close()
        raise ConnectionError(f"{_text(args.client)}: {reason or exc}") from exc
    except BaseException:
        channel.close()
        raise
    return Stage(cpus, Exchange(channel))


def _reason(channel: Any) -> str:
    """Return why a server refused, if it sent a reason."""
    with contextlib.suppress(Exception):
        return str(bytes(channel.connector.get_private_data()).rstrip(b"\0").decode())
    return ""


def serve(args: argparse.Namespace) -> int:
    """Serve one client, and return the exit code."""
    import shmnd

    from ..workers.connection import WireChannel

    adapter = shmnd.open_adapter(args.server[0], namespace=args.namespace)
    channel = WireChannel(adapter)
    try:
        listener = adapter.create_listener()
        listener.bind(args.server)
        listener.listen()
        where = _text(args.server)
        print(f"listening on {where} for: shmnd bench {args.command} --client {where}", flush=True)
        connector = _welcome(adapter, listener, channel, args.command)
        listener.close()
        pin((args.pin or choose_cpus([]))[SERVER : SERVER + 1])
        gc.disable()
        lines.serve(channel, functools.partial(_Guarded, args.namespace))
        connector.close()
    finally:
        gc.enable()
        channel.close()
    return 0


def _welcome(adapter: Any, listener: Any, channel: Any, command: str) -> Any:
    """Wait for a client of the same command, and return its connector.

    Other clients get an error that names the command.
    """
    while True:
        connector = adapter.create_connector()
        listener.get_connection_request(connector).result()
        if _asks_for(bytes(connector.get_private_data()), command):
            connector.accept(channel.qp).result(_LIMIT)
            return connector
        connector.reject(f"it serves: shmnd bench {command}".encode())
        connector.close()


def _asks_for(private_data: bytes, command: str) -> bool:
    try:
        asked = json.loads(private_data.rstrip(b"\0"))
    except ValueError:
        return False
    return isinstance(asked, dict) and asked.get("command") == command


class _Guarded(Worker):
    """A worker that loads ends of shmnd only, in the server's own namespace."""

    def __init__(self, namespace: str | None) -> None:
        super().__init__(SERVER)
        self._namespace = namespace

    def open(self, end: str, options: dict[str, Any]) -> object:
        """Return one of the ends that a client may ask for, opened."""
        if end not in _ENDS:
            raise ValueError(f"no end {end!r} can be used from afar")
        mine = {"engine": str(options.get("engine")), "namespace": self._namespace}
        return super().open(end, mine)
