# SPDX-License-Identifier: Apache-2.0
"""The subjects of measurements: shmnd itself, a peer, or a floor such as memcpy.

To add a peer, write one module in `peers/`, or in `floors/`: a `Subject` for the process that
leads, and the class of its ends if it is driven from Python.
"""

import abc
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from ..measure.question import Question
from ..measure.reading import Reading
from ..workers.child import HarnessError
from ..workers.harness import Stage, Workers

_IMPORT_LIMIT = 30.0


class Subject(abc.ABC):
    """A transport, seen from the process that leads the run."""

    name: ClassVar[str]
    """What tables and reports call it."""
    install: ClassVar[str] = ""
    """The command that installs it."""

    def missing(self) -> str | None:
        """Return why it cannot be used here; None when it can."""
        return None

    @abc.abstractmethod
    def answers(self, question: Question) -> bool:
        """Return whether this question can be asked of it."""

    @abc.abstractmethod
    def start(self, stage: Stage) -> None:
        """Start its processes, to stay for the whole run."""

    @abc.abstractmethod
    def measure(self, question: Question, count: int, record: bool = False) -> Reading:
        """Do `count` rounds; return seconds per message.

        With `record`, return the time of each round, too, where it can be measured.
        """

    def stop(self, *, orderly: bool = True) -> None:  # noqa: B027  # not all have something to end
        """End its processes."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the subject, once it has started."""
        return {}


class WorkerSubject(Subject):
    """A transport that is driven from Python, by worker processes that stay for the run."""

    end: ClassVar[str]
    """The class of its ends, as `module:class`."""
    apart: ClassVar[bool] = False
    """Its server may be one that was started apart."""
    needs: ClassVar[str] = ""
    """A Python module that it cannot do without."""

    def __init__(self, options: Mapping[str, Any] | None = None, python: str | None = None) -> None:
        self._options = dict(options or {})
        self.python = python or sys.executable
        """The interpreter of its workers."""
        self._workers: Workers | None = None
        self._connected: set[Question] = set()
        self._versions: dict[str, str] = {}

    def missing(self) -> str | None:
        """Return why the module cannot be imported; None when it can."""
        if not self.needs:
            return None
        # Not a module of the current folder, which `-c` searches first.
        program = f"import sys; sys.path[:] = filter(None, sys.path); import {self.needs}"
        try:
            found = subprocess.run(
                [self.python, "-c", program], capture_output=True, timeout=_IMPORT_LIMIT
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"cannot run {self.python}: {exc}"
        if found.returncode != 0:
            return f"no {self.needs} for {self.python}: {self.install}"
        return None

    def launch(self, stage: Stage) -> Workers:
        """Start the worker processes; a pair, unless a subclass says otherwise."""
        return Workers.start(stage, python=self.python, apart=self.apart)

    def start(self, stage: Stage) -> None:
        """Start the workers and have them load the transport."""
        self._workers = self.launch(stage)
        self._versions = self._workers.open(self.end, self._options)

    def connect(self, question: Question) -> None:
        """Connect for a question, unless that was done already."""
        if question not in self._connected:
            self._running().connect(question)
            self._connected.add(question)

    def measure(self, question: Question, count: int, record: bool = False) -> Reading:
        """Return the reading of `count` rounds at both ends."""
        self.connect(question)
        return self._running().run(question, count, record).per(count * question.ways)

    def _running(self) -> Workers:
        if self._workers is None:
            raise HarnessError("is not running")
        return self._workers

    def stop(self, *, orderly: bool = True) -> None:
        """End the workers."""
        if self._workers is not None:
            workers, self._workers = self._workers, None
            self._connected.clear()
            workers.stop(orderly=orderly)

    def versions(self) -> dict[str, str]:
        """Return the versions that the workers loaded."""
        return self._versions
