# SPDX-License-Identifier: Apache-2.0
"""The two ends of a benchmark as two commands: the client says what is measured, and reports.

The server offers what a worker process offers, and nothing but traffic of shmnd: a client names
parameters, which are read and checked here, and no program.
"""

import argparse
import contextlib
import functools
import gc
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from .environment import choose_cpus
from .harness import Stage
from .leash import pin
from .own import HOST
from .worker import SERVER, Worker

DEFAULT: Final = (HOST, 18515)
"""Where perftest's programs meet, too."""
_LIMIT: Final = 20.0
_END: Final = ".own:ShmndEnd"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that run the ends apart."""
    where = f"{DEFAULT[0]}:{DEFAULT[1]}"
    group = parser.add_argument_group("both ends apart").add_mutually_exclusive_group()
    group.add_argument(
        "--server",
        type=address,
        nargs="?",
        const=DEFAULT,
        metavar="HOST:PORT",
        help=f"be the server of one client, which says all the rest (default {where})",
    )
    group.add_argument(
        "--client",
        type=address,
        metavar="HOST[:PORT]",
        help="measure with the server that listens there",
    )


def address(text: str) -> tuple[str, int]:
    """Read where a server listens."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT[1])
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address as {DEFAULT[0]}:{DEFAULT[1]}")
    return host, int(port)


def stage_of(args: argparse.Namespace, command: str) -> Callable[[Sequence[int]], Stage]:
    """Give what makes the stage of a run: with a server elsewhere if one was named."""
    if args.client is None:
        return Stage
    return functools.partial(_stage_with, args, command)


def _stage_with(args: argparse.Namespace, command: str, cpus: Sequence[int]) -> Stage:
    import shmnd

    from .wire import WireChannel

    adapter = shmnd.open_adapter(args.client[0], namespace=args.namespace)
    channel = WireChannel(adapter)
    asked = json.dumps({"command": command}).encode()
    try:
        connecting = channel.connector.connect(channel.qp, args.client, private_data=asked)
        connecting.result(_LIMIT)
        channel.connector.complete_connect().result(_LIMIT)
        channel.receive(_LIMIT)  # its greeting, as of any worker
    except ConnectionRefusedError as exc:
        reason = _reason(channel)
        channel.close()
        raise ConnectionError(f"{args.client[0]}:{args.client[1]}: {reason or exc}") from exc
    except BaseException:
        channel.close()
        raise
    return Stage(cpus, remote={SERVER: channel})


def _reason(channel: Any) -> str:
    """Give why a server refused, if it said so."""
    with contextlib.suppress(Exception):
        return str(bytes(channel.connector.get_private_data()).rstrip(b"\0").decode())
    return ""


def serve(args: argparse.Namespace, command: str) -> int:
    """Be the server of one client."""
    import shmnd

    from .wire import WireChannel

    host, port = args.server
    adapter = shmnd.open_adapter(host, namespace=args.namespace)
    channel = WireChannel(adapter)
    try:
        listener = adapter.create_listener()
        listener.bind((host, port))
        listener.listen()
        print(
            f"listening on {host}:{port} for: shmnd bench {command} --client {host}:{port}",
            flush=True,
        )
        connector = _welcome(adapter, listener, channel, command)
        listener.close()
        pin((args.pin or choose_cpus([]))[SERVER : SERVER + 1])
        gc.disable()
        _Guarded(channel, args.namespace).serve()
        connector.close()
    finally:
        gc.enable()
        channel.close()
    return 0


def _welcome(adapter: Any, listener: Any, channel: Any, command: str) -> Any:
    """Wait for a client of the same command; others are told what this is."""
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
    """A worker that loads one end only, in the server's own namespace."""

    def __init__(self, channel: Any, namespace: str | None) -> None:
        super().__init__(channel, SERVER)
        self._namespace = namespace

    def open(self, end: str, options: dict[str, Any]) -> object:
        """Open an end for traffic of shmnd."""
        if end != _END:
            raise ValueError(f"no end {end!r} can be used from afar")
        mine = {"engine": str(options.get("engine")), "namespace": self._namespace}
        return super().open(end, mine)
