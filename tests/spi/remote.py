# SPDX-License-Identifier: Apache-2.0
"""A child process that holds one end, and proxies that make its objects look local.

Requests and replies are pickles over a socket pair. Plain data travels by value; objects of the
library and of the harness stay where they are and travel as handles. Errors are raised again on
this side with what they carried.
"""

import ctypes
import enum
import gc
import io
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from threading import RLock
from typing import Any, cast

import numpy as np

import shmnd
from census import open_files
from spi.harness import Buffer, Completion, End, Options, Side
from spi.pair import Pair

REPLY_TIMEOUT = 60.0
"""Longer than every bounded wait inside a call; a child that is silent for so long is stuck."""

PR_SET_PDEATHSIG = 1
KINDS = ("anon_inode:[event", "anon_inode:[pidfd]", "/memfd:", "/dev/shm/", "socket:")


class RemoteDied(AssertionError):
    """The child ended, or had to be ended, before it answered."""


def holdings() -> Counter[str]:
    """Descriptors and mappings of this process that a library of this kind may leave behind."""
    gc.collect()
    held: Counter[str] = Counter()
    for path in open_files():
        held.update(kind for kind in KINDS if path.startswith(kind))
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.startswith(("dev/shm/", "memfd:")):
            held["mapping"] += 1
    return held


# The child


class _Table:
    """Objects that the parent holds handles of."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.counts: Counter[int] = Counter()

    def export(self, obj: Any) -> int:
        """One handle per object, so that equal handles mean the same object."""
        handle = id(obj)
        self.objects[handle] = obj
        self.counts[handle] += 1
        return handle

    def drop(self, handle: int) -> None:
        self.counts[handle] -= 1
        if not self.counts[handle]:
            del self.counts[handle], self.objects[handle]


def _stays(obj: Any) -> bool:
    if isinstance(obj, (enum.Enum, BaseException, type, shmnd.AdapterInfo)):
        return False
    if isinstance(obj, (End, Buffer, np.ndarray, memoryview)):
        return True
    return type(obj).__module__.partition(".")[0] == "shmnd"


class _ChildPickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, table: _Table) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.table = table

    def persistent_id(self, obj: Any) -> Any:
        if _stays(obj) and type(obj).__name__ != "Result":
            return self.table.export(obj), type(obj).__name__
        return None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ == "Result":
            return Completion, tuple(Completion.of(obj))
        return NotImplemented


class _ChildUnpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, table: _Table) -> None:
        super().__init__(stream)
        self.table = table

    def persistent_load(self, pid: Any) -> Any:
        return self.table.objects[pid]


class _Child:
    """The loop of the child: one request, one reply."""

    def __init__(self, channel: Connection, side: Side) -> None:
        self.channel = channel
        self.side = side
        self.table = _Table()
        self.ends: list[End] = []
        self.baseline = holdings()
        gc.freeze()  # imported modules stay: no later collection visits them

    def serve(self) -> None:
        while True:
            try:
                request = self.channel.recv_bytes()
            except (EOFError, OSError):
                return
            reply = self._reply(request)
            self.channel.send_bytes(reply)

    def _reply(self, request: bytes) -> bytes:
        try:
            drops, operation, args = _ChildUnpickler(io.BytesIO(request), self.table).load()
            for handle in drops:
                self.table.drop(handle)
            answer = (True, getattr(self, "do_" + operation)(*args))
        except BaseException as error:
            trace = traceback.format_exc()
            # The frames would keep the objects of a test alive.
            answer = (False, (error.with_traceback(None), trace))
            error.__context__ = error.__cause__ = None
        stream = io.BytesIO()
        try:
            _ChildPickler(stream, self.table).dump(answer)
        except Exception as error:
            stream = io.BytesIO()
            trace = traceback.format_exc()
            pickle.dump((False, (TypeError(f"cannot travel: {error}"), trace)), stream)
        return stream.getvalue()

    def do_get(self, obj: Any, name: str) -> tuple[bool, Any]:
        value = getattr(obj, name)
        return (True, None) if callable(value) else (False, value)

    def do_call(self, obj: Any, name: str, args: Any, options: Any) -> Any:
        return getattr(obj, name)(*args, **options)

    def do_open(self, options: Options, environment: dict[str, str]) -> End:
        os.environ.update(environment)
        end = End(options, self.side)
        self.ends.append(end)
        return end

    def do_reset(self) -> dict[str, int]:
        """Close everything; return the resources still held beyond those of the beginning."""
        while self.ends:
            self.ends.pop().dispose()
        self.table = _Table()
        self.side.drain()
        return dict(holdings() - self.baseline)


def serve(channel_fd: int, side_fd: int) -> None:
    """Run the child on inherited descriptors until the parent closes its ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Child(Connection(channel_fd), Side(socket.socket(fileno=side_fd))).serve()


# The parent


class Proxy:
    """An object that lives in the child."""

    __slots__ = ("__weakref__", "_handle", "_kind", "_process", "_session")

    def __init__(self, process: "RemoteProcess", handle: int, kind: str) -> None:
        self._process = process
        self._handle = handle
        self._kind = kind
        self._session = process.session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        is_call, value = self._process.request("get", self, name)
        if not is_call:
            return value

        def method(*args: Any, **options: Any) -> Any:
            return self._process.request("call", self, name, args, options)

        return method

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxy) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return f"<{self._kind} {self._handle:#x} in process {self._process.pid}>"

    def __del__(self) -> None:
        if self._session == self._process.session:
            self._process.drops.append(self._handle)


class _ParentPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj._handle if isinstance(obj, Proxy) else None


class _ParentUnpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, process: "RemoteProcess") -> None:
        super().__init__(stream)
        self.process = process

    def persistent_load(self, pid: Any) -> Any:
        return Proxy(self.process, *pid)


class RemoteProcess:
    """The child: started when needed, used by many tests, replaced after its death."""

    def __init__(self) -> None:
        self.session = 0  # handles of an earlier session mean nothing any more
        self.drops: list[int] = []
        self.lock = RLock()
        self.child: subprocess.Popen[bytes] | None = None
        self.channel: Connection | None = None
        self.side: Side | None = None

    @property
    def pid(self) -> int:
        return self.child.pid if self.child else 0

    def start(self) -> None:
        if self.child is not None:
            return
        ours, theirs = socket.socketpair()
        self.side, their_side = Side.both()
        boot = (
            "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "importlib.import_module(sys.argv[2]).serve(int(sys.argv[3]), int(sys.argv[4]))"
        )
        fds = (theirs.fileno(), their_side.channel.fileno())
        command = [sys.executable, "-c", boot, json.dumps(sys.path), __name__, *map(str, fds)]
        self.child = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL)
        theirs.close()
        their_side.dispose()
        self.channel = Connection(ours.detach())

    def request(self, operation: str, *args: Any) -> Any:
        with self.lock:
            if self.channel is None:
                raise RemoteDied("the child is not running")
            drops, self.drops = self.drops, []
            stream = io.BytesIO()
            _ParentPickler(stream, pickle.HIGHEST_PROTOCOL).dump((drops, operation, args))
            try:
                self.channel.send_bytes(stream.getvalue())
                if not self.channel.poll(REPLY_TIMEOUT):
                    raise EOFError(f"no reply to {operation} {args[1:]}")
                reply = self.channel.recv_bytes()
            except (EOFError, OSError) as error:
                code = self.kill()
                raise RemoteDied(f"the child is gone (exit code {code}): {error!r}") from error
        good, value = _ParentUnpickler(io.BytesIO(reply), self).load()
        if good:
            return value
        failure, trace = value
        failure.add_note(f"raised in process {self.pid}:\n{trace}")
        raise failure

    def open(self, options: Options) -> End:
        self.start()
        # The place of the broker was not settled yet when the child was started.
        environment = {k: v for k, v in os.environ.items() if k.startswith("SHMND_")}
        return cast("End", self.request("open", options, environment))

    def reset(self) -> dict[str, int]:
        """Close all that the child opened; what it still holds."""
        if self.child is None:
            return {}
        self.session += 1
        self.drops = []
        left = self.request("reset")
        assert self.side is not None
        self.side.drain()
        return cast("dict[str, int]", left)

    def kill(self) -> int:
        """End the child at once, as a crash would; its exit code."""
        if self.child is None:
            return 0
        self.child.kill()
        code = self.child.wait()
        assert self.channel is not None
        assert self.side is not None
        self.channel.close()
        self.side.dispose()
        self.child = self.channel = self.side = None
        self.session += 1
        self.drops = []
        return code


class Ends:
    """Makes the ends and pairs of one test, and closes them."""

    def __init__(self, remote: RemoteProcess) -> None:
        self.remote = remote
        self.opened: list[Any] = []

    def here(self, side: Side | None = None, **options: Any) -> End:
        end = End(Options(**options), side)
        self.opened.append(end)
        return end

    def there(self, **options: Any) -> End:
        return self.remote.open(Options(**options))

    def pair(
        self,
        mode: str,
        *,
        remote: str = "passive",
        active: dict[str, Any] | None = None,
        passive: dict[str, Any] | None = None,
        **options: Any,
    ) -> Pair:
        """Two ends with the same options, except for what `active` and `passive` change.

        Mode `one`: both in this process; `two`: the `remote` one in the child; `swapped`: the
        other one in the child.
        """
        wanted = {"active": options | (active or {}), "passive": options | (passive or {})}
        if mode == "one":
            sides = Side.both()
            self.opened += sides
            ends = {
                name: self.here(s, **wanted[name]) for name, s in zip(wanted, sides, strict=True)
            }
        else:
            self.remote.start()
            local = "active" if remote == "passive" else "passive"
            if mode == "swapped":
                remote, local = local, remote
            ends = {
                remote: self.there(**wanted[remote]),
                local: self.here(self.remote.side, **wanted[local]),
            }
        pair = Pair(ends["active"], ends["passive"], in_one_process=mode == "one")
        self.opened.append(pair)
        return pair

    def close(self) -> None:
        errors = []
        while self.opened:
            try:
                self.opened.pop().dispose()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
