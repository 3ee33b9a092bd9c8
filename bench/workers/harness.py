# SPDX-License-Identifier: Apache-2.0
"""Processes for benchmarks: started pinned, waited for with a bound, and never left behind.

Three nets hold each other up. `Stage` ends what it started, in order, also after Ctrl-C. The
kernel ends the children when this process dies without a chance to do so (`leash`). A worker
that hangs in a transport ends itself by an alarm.
"""

import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ..measure.question import Question
from ..measure.reading import Reading
from .child import TERM_LIMIT, Child, HarnessError
from .control import Channel, ChannelClosed, Conversation
from .worker import CLIENT, SERVER

START_LIMIT = 20.0
"""Seconds for two processes to start, load their transport and report."""
COMMAND_LIMIT = 60.0
"""Seconds for one command; rounds last tenths of a second."""
_QUIT_LIMIT = 5.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

# Has the package found under its name whatever the interpreter has installed: the peers live in
# environments of their own, and in a source tree its folder bears another name. A module
# of the current folder must not be used, although `python -c` would search there first.
_BOOTSTRAP = """\
import sys
sys.path[:] = filter(None, sys.path)
import importlib.util as util
spec = util.spec_from_file_location(
    "shmnd_bench", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
package = util.module_from_spec(spec)
sys.modules["shmnd_bench"] = package
spec.loader.exec_module(package)
from shmnd_bench.workers.worker import main
sys.exit(main(sys.argv[2:]))
"""
_PACKAGE = Path(__file__).resolve().parents[1]


class FarServer(Protocol):
    """A server that was started by another process."""

    def line(self) -> Conversation:
        """Return a conversation with it for one transport."""

    def close(self) -> None:
        """Close it."""


class Stage:
    """All processes of one benchmark run; leaving the `with` block ends them."""

    def __init__(self, cpus: Sequence[int], server: "FarServer | None" = None) -> None:
        self.cpus = tuple(cpus)
        self.server = server
        """Started apart, it is the server of the transports that can have one there."""
        self.children: list[Child] = []
        self._workers: list[Workers] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        for workers in [*self._workers]:
            workers.stop(orderly=False)
        for child in [*self.children]:
            self.discard(child)
        if self.server is not None:
            self.server.close()

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Child:
        """Start a program that ties and pins itself."""
        child = Child(argv, env)
        self.children.append(child)
        return child

    def start_linked(
        self, argv: Sequence[str], *, role: int | None = None, env: Mapping[str, str] | None = None
    ) -> Child:
        """Start any program, tied to this process, on the CPU of a role if one is given."""
        cpus = self.cpus if role is None else self.cpus[role : role + 1]
        leash = [sys.executable, str(_PACKAGE / "workers" / "leash.py"), str(os.getpid())]
        child = self.start([*leash, ",".join(map(str, cpus)), *argv], env=env)
        child.name = Path(argv[0]).name
        return child

    def discard(self, child: Child, patience: float = 0.0) -> None:
        """End one process."""
        child.stop(patience)
        if child in self.children:
            self.children.remove(child)

    def enlist(self, workers: "Workers") -> None:
        """Take on the workers of a transport, to be ended with the rest."""
        self._workers.append(workers)

    def dismiss(self, workers: "Workers") -> None:
        """Forget workers that were stopped."""
        if workers in self._workers:
            self._workers.remove(workers)


class Workers:
    """The worker processes of one transport: a pair, or one alone."""

    def __init__(self, stage: Stage, roles: Sequence[int] = (CLIENT, SERVER)) -> None:
        self._stage = stage
        self._roles = tuple(roles)
        self._children: list[Child] = []
        self._channels: dict[int, Conversation] = {}
        self._far: frozenset[int] = frozenset()
        """Roles of processes that were started elsewhere."""

    @classmethod
    def start(
        cls,
        stage: Stage,
        roles: Sequence[int] = (CLIENT, SERVER),
        python: str = sys.executable,
        *,
        apart: bool = False,
    ) -> Self:
        """Start one process per role with an interpreter, by default the one that runs this.

        With `apart`, the server is the one that was started apart, if there is one.
        """
        self = cls(stage, roles)
        if apart and stage.server is not None:
            self._far = frozenset({SERVER})
            self._channels[SERVER] = stage.server.line()

        def launch(control: str) -> list[Child]:
            parent = ["--parent", str(os.getpid())]
            return [
                stage.start([python, *worker_arguments(control, str(role), stage), *parent])
                for role in self._roles
                if role not in self._far
            ]

        self._launch(launch)
        return self

    @classmethod
    def start_by(
        cls,
        stage: Stage,
        launch: Callable[[str], list[Child]],
        roles: Sequence[int] = (CLIENT, SERVER),
    ) -> Self:
        """Start processes by a launcher such as mpiexec; `launch` gets the path of the socket."""
        self = cls(stage, roles)
        self._launch(launch)
        return self

    def _launch(self, launch: Callable[[str], list[Child]]) -> None:
        # In the abstract space: no file that a killed run would leave behind.
        control = f"shmnd-bench-{os.urandom(8).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{control}")
            listener.listen(len(self._roles))
            self._children = launch(control)
            self._stage.enlist(self)
            try:
                self._welcome(listener, time.monotonic() + START_LIMIT)
            except BaseException:
                self.stop(orderly=False)
                raise

    def _welcome(self, listener: socket.socket, deadline: float) -> None:
        listener.settimeout(0.1)
        while len(self._channels) < len(self._roles):
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                self._check_start(deadline)
                continue
            sock.setblocking(True)
            if _user_of(sock) != os.geteuid():
                sock.close()
                continue
            channel = Channel(sock)
            try:
                self._channels[int(channel.receive(START_LIMIT)["hello"])] = channel
            except (ChannelClosed, TimeoutError) as exc:
                channel.close()
                raise HarnessError(f"a worker did not report: {exc}") from exc

    def _check_start(self, deadline: float) -> None:
        for child in self._children:
            if child.process.poll() is not None:
                raise HarnessError(f"a worker {child.post_mortem()}")
        if time.monotonic() > deadline:
            raise HarnessError(f"workers did not start within {START_LIMIT:g} s")

    def open(self, end: str, options: Mapping[str, Any]) -> dict[str, str]:
        """Load the transport in each process; return its versions."""
        answers = self._all({"do": "open", "end": end, "options": dict(options)}, START_LIMIT)
        versions: dict[str, str] = answers[self._roles[0]]
        return versions

    def connect(self, question: Question) -> None:
        """Let the ends connect for a question."""
        asked = {"question": question.as_json()}
        offer: dict[str, Any] = {}
        if SERVER in self._roles:
            self._post(SERVER, {"do": "offer", **asked}, COMMAND_LIMIT)
            offer = self._gather([SERVER], COMMAND_LIMIT)[SERVER]
        self._all({"do": "join", **asked, "offer": offer}, COMMAND_LIMIT)

    def meet(self, question: Question) -> None:
        """Let each process connect with every other."""
        asked = {"question": question.as_json()}
        offers = self._all({"do": "offer", **asked}, COMMAND_LIMIT)
        offer = {"offers": [offers[role] for role in self._roles]}
        self._all({"do": "join", **asked, "offer": offer}, COMMAND_LIMIT)

    def run(self, question: Question, count: int, record: bool = False) -> Reading:
        """Do `count` rounds; return the times by the client's clock, of each round if it can."""
        asked = {"question": question.as_json(), "count": count, "record": record}
        message = {"do": "run", **asked}
        return Reading.from_json(self._all(message, COMMAND_LIMIT)[CLIENT])

    def _all(self, message: Mapping[str, Any], limit: float) -> dict[int, Any]:
        # The server first: it is ready before the client begins.
        for role in sorted(self._roles, reverse=True):
            self._post(role, message, limit)
        return self._gather(self._roles, limit)

    def _post(self, role: int, message: Mapping[str, Any], limit: float) -> None:
        try:
            self._channels[role].send({**message, "limit": limit})
        except ChannelClosed as exc:
            raise HarnessError(f"the {_name(role)} {self._why_gone(role)}") from exc

    def _gather(self, roles: Sequence[int], limit: float) -> dict[int, Any]:
        """Return one answer per role; fail as soon as one of them fails."""
        deadline = time.monotonic() + limit + TERM_LIMIT
        answers: dict[int, Any] = {}
        with selectors.DefaultSelector() as selector:
            for role in roles:
                selector.register(self._channels[role], selectors.EVENT_READ, role)
            for role in [role for role in roles if self._channels[role].pending()]:
                answers[role] = self._take(role, limit)
                selector.unregister(self._channels[role])
            while len(answers) < len(roles):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise HarnessError(f"no answer within {limit:g} s")
                for key, _ in ready:
                    answers[key.data] = self._take(key.data, limit)
                    selector.unregister(key.fileobj)
        return answers

    def _take(self, role: int, limit: float) -> object:
        try:
            answer = self._channels[role].receive(limit)
        except (ChannelClosed, TimeoutError) as exc:
            raise HarnessError(f"the {_name(role)} {self._why_gone(role)}") from exc
        if "error" in answer:
            raise HarnessError(f"the {_name(role)} failed: {answer['error']}")
        return answer["ok"]

    def _why_gone(self, role: int) -> str:
        if role in self._far:
            return "is gone"
        # One child per role, or one launcher for all of them.
        place = self._roles.index(role) if len(self._children) == len(self._roles) else 0
        return self._children[place].post_mortem()

    def stop(self, *, orderly: bool = True) -> None:
        """Let the ends close in an orderly way unless they failed, then end the processes."""
        deadline = time.monotonic() + (_QUIT_LIMIT if orderly else 0.0)
        for channel in self._channels.values():
            try:
                channel.send({"do": "quit"})
            except ChannelClosed:
                pass  # it is gone already
        for channel in self._channels.values():
            _drain(channel, deadline)
            channel.close()
        self._channels.clear()
        for child in self._children:
            self._stage.discard(child, max(0.0, deadline - time.monotonic()))
        self._children.clear()
        self._stage.dismiss(self)


def _user_of(sock: socket.socket) -> int:
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid


def _drain(channel: Conversation, deadline: float) -> None:
    """Wait until the worker has closed its end; what it still says is of no interest."""
    try:
        while True:
            channel.receive(max(0.0, deadline - time.monotonic()))
    except (ChannelClosed, TimeoutError):
        pass


def _name(role: int) -> str:
    return {CLIENT: "client", SERVER: "server"}.get(role, f"process {role}")


def worker_arguments(control: str, role: str, stage: Stage) -> list[str]:
    """Return the arguments that make any Python interpreter a worker."""
    cpus = ",".join(map(str, stage.cpus))
    return [
        *("-c", _BOOTSTRAP, str(_PACKAGE)),
        *("--control", control, "--role", role, "--cpus", cpus),
    ]
