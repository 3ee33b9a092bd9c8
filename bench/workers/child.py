# SPDX-License-Identifier: Apache-2.0
"""A started process with its process group: how it ended, and how it is ended."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

TERM_LIMIT = 2.0
"""Seconds for a process to end after SIGTERM."""


class HarnessError(Exception):
    """A worker or a program failed; the message is fit for a row of a table."""


class Child:
    """A started process, its process group, and what it wrote to its standard error."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        # Not a pipe, which no thread would read while the process runs.
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop()
        self.name = Path(argv[0]).name
        try:
            # A group of its own: Ctrl-C reaches the harness alone, which then ends the group.
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=None if env is None else {**os.environ, **env},
                process_group=0,
            )
        except OSError as exc:
            self._stderr.close()
            raise HarnessError(f"cannot start {argv[0]}: {exc.strerror}") from exc

    def last_words(self) -> str:
        """Return the line of its standard error that most likely says what went wrong."""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        words = [line.strip() for line in lines if line.strip(" -\t")]
        return words[-1] if words else ""

    def post_mortem(self) -> str:
        """Return how it ended, for an error message."""
        try:
            code = self.process.wait(TERM_LIMIT)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        words = self.last_words()
        return f"{how}: {words}" if words else how

    def finish(self, limit: float) -> str:
        """Wait until it ended well; return its standard output."""
        try:
            output, _ = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as exc:
            raise HarnessError(f"{self.name} did not end within {limit:g} s") from exc
        if self.process.returncode != 0:
            raise HarnessError(f"{self.name} {self.post_mortem()}")
        return bytes(output).decode(errors="replace")

    def stop(self, patience: float = 0.0) -> None:
        """Wait so long for it to end, then end it and what it started, by force if need be."""
        if not self._ends_within(patience):
            self._signal(signal.SIGTERM)
        if not self._ends_within(TERM_LIMIT):
            self._signal(signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._stderr.close()

    def _ends_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _signal(self, signum: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, signum)
        except ProcessLookupError:
            pass  # it ended between the check and the signal
