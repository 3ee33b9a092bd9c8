# SPDX-License-Identifier: Apache-2.0
"""ZeroMQ over a Unix socket, from Python: a PAIR of sockets of pyzmq."""

import functools
import importlib
import shutil
import tempfile
from typing import Any, ClassVar

from ..measure.question import Question
from .two_sided import Call, TwoSided, TwoSidedEnd


class ZeroMq(TwoSided):
    """Two processes on `ipc://`."""

    name: ClassVar[str] = "pyzmq ipc"
    install: ClassVar[str] = "pip install pyzmq"
    end: ClassVar[str] = ".peers.zeromq:ZeroMqEnd"
    sleeps: ClassVar[bool] = True
    needs: ClassVar[str] = "zmq"


class ZeroMqEnd(TwoSidedEnd):
    """One end."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        # Any: its stubs are there only where it is installed.
        self._zmq: Any = importlib.import_module("zmq")
        self._socket = self._zmq.Context.instance().socket(self._zmq.PAIR)
        self._socket.setsockopt(self._zmq.LINGER, 0)
        self._folder: str | None = None
        self._joined = False

    def describe(self) -> dict[str, str]:
        """Return the versions of pyzmq and of the library below it."""
        return {"pyzmq": self._zmq.pyzmq_version(), "ZeroMQ": self._zmq.zmq_version()}

    def offer(self, question: Question) -> dict[str, Any]:
        """Bind, once, and return the address."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="shmnd-bench-")
            self._socket.bind(f"ipc://{self._folder}/pair")
        return {"address": f"ipc://{self._folder}/pair"}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Connect, once; the sockets serve all questions."""
        if not self._joined and self._folder is None:
            self._socket.connect(offer["address"])
        self._joined = True

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return calls that copy messages up to the size from which pyzmq itself would not."""
        copy = question.size < self._zmq.COPY_THRESHOLD
        send = functools.partial(self._socket.send, bytes(question.size), copy=copy)
        return send, functools.partial(self._socket.recv, copy=copy)

    def close(self) -> None:
        """Close the socket and remove its name."""
        self._socket.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
