# SPDX-License-Identifier: Apache-2.0
"""What the launcher writes: lines of ranks, each with its rank before it, and its own words.

The launcher never waits for its reader, so that it sees deaths, limits and signals meanwhile.
Output that no reader has taken is kept, and the pipes of the ranks rest: the ranks wait.
"""

from __future__ import annotations

import os
import select
import selectors
import sys
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

_COLOURS: Final = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_AT_ONCE: Final = 65536
_FITS: Final = 4096
"""Bytes that a pipe takes without a wait once it says that it takes any (PIPE_BUF of Linux)."""
_LOOK_SECONDS: Final = 0.2


class Target:
    """A stream of the launcher; one of several that lead to the same file keep one order."""

    def __init__(self, stream: TextIO, like: Target | None = None) -> None:
        self._stream: Final = stream
        self._left: deque[tuple[int, memoryview]] = deque() if like is None else like._left
        """Bytes that are to be written, and where."""

    def put(self, data: bytes) -> None:
        """Write this behind the rest, as far as that needs no wait."""
        self._stream.flush()
        self._left.append((self._stream.fileno(), memoryview(data)))
        self.write()

    def write(self) -> None:
        """Write the rest, as far as that needs no wait."""
        while self._left and takes(self._left[0][0]):
            descriptor, data = self._left[0]
            try:
                data = data[os.write(descriptor, data[:_FITS]) :]
            except BlockingIOError:
                return  # another process has made it one that does not wait, and filled it
            except OSError:
                self._left.clear()  # no reader can take it
                raise
            if data:
                self._left[0] = descriptor, data
            else:
                self._left.popleft()

    def waits(self) -> int | None:
        """Return the descriptor that takes no more while something is left."""
        return self._left[0][0] if self._left else None


class Lines:
    """One pipe of one rank. Whole lines are written, and the rest at the end."""

    def __init__(self, descriptor: int, rank: int, target: Target, *, coloured: bool) -> None:
        self.descriptor: Final = descriptor
        self.target: Final = target
        self._rest: Final[list[bytes]] = []
        """The parts of a line whose end has not come; joined once, however long it is."""
        head = f"[{rank}] "
        if coloured:
            head = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{head}\x1b[0m"
        self._head: Final = head.encode()

    def pass_on(self) -> bool:
        """Take the lines that have come; return False when the pipe has ended."""
        data = os.read(self.descriptor, _AT_ONCE)
        if not data:
            self.end()
            return False
        first, *others = data.split(b"\n")
        self._rest.append(first)
        if others:
            lines = [b"".join(self._rest), *others]
            self._rest[:] = [lines.pop()]
            self._put(lines)
        return True

    def end(self) -> None:
        """Take the line whose end has not come, as one."""
        line = b"".join(self._rest)
        self._rest.clear()
        if line:
            self._put([line])

    def _put(self, lines: list[bytes]) -> None:
        self.target.put(b"".join(self._head + line + b"\n" for line in lines))


class Output:
    """The streams of the launcher, and the pipes of ranks that lead to them."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector: Final = selector
        self._out: Final = Target(sys.stdout)
        self._err: Final = Target(sys.stderr, self._out if _same(sys.stdout, sys.stderr) else None)
        self._pipes: Final[list[Lines]] = []
        self._resting: Final[set[Lines]] = set()
        """Pipes that are not read, because their target takes nothing."""
        self._watched: Final[set[int]] = set()

    def say(self, text: str) -> None:
        """Write words of the launcher."""
        self._err.put(f"shmnd mpiexec: {text}\n".encode())

    def show(self, out: int, err: int, rank: int) -> None:
        """Pass on what a rank writes into two pipes."""
        for pipe, target, stream in ((out, self._out, sys.stdout), (err, self._err, sys.stderr)):
            lines = Lines(pipe, rank, target, coloured=stream.isatty())
            self._pipes.append(lines)
            self._selector.register(pipe, selectors.EVENT_READ, lines)

    def read(self, lines: Lines) -> None:
        """Take what a pipe has, unless its target waits."""
        if lines not in self._resting and lines.target.waits() is None and not lines.pass_on():
            self._selector.unregister(lines.descriptor)
            self._pipes.remove(lines)

    def write(self) -> None:
        """Write the rest, and read the pipes whose targets take it."""
        waiting = set()
        for target in (self._out, self._err):
            target.write()
            if (descriptor := target.waits()) is not None:
                waiting.add(descriptor)
        for descriptor in self._watched - waiting:
            self._selector.unregister(descriptor)
        for descriptor in waiting - self._watched:
            self._selector.register(descriptor, selectors.EVENT_WRITE, self)
        self._watched.clear()
        self._watched.update(waiting)
        self._rest(bool(waiting))

    def _rest(self, any_waits: bool) -> None:
        """Leave the pipes alone whose targets wait, and take the others up again."""
        if not any_waits and not self._resting:
            return
        for lines in self._pipes:
            waits = lines.target.waits() is not None
            if waits and lines not in self._resting:
                self._selector.unregister(lines.descriptor)
                self._resting.add(lines)
            elif not waits and lines in self._resting:
                self._selector.register(lines.descriptor, selectors.EVENT_READ, lines)
                self._resting.discard(lines)

    def is_open(self) -> bool:
        """Return whether there is, or can come, something to write."""
        return bool(self._pipes) or self.waits()

    def waits(self) -> bool:
        """Return whether something is left that no reader has taken."""
        return any(target.waits() is not None for target in (self._out, self._err))

    def leave(self) -> None:
        """Take the last output of ranks whose pipes another process still holds."""
        for lines in self._pipes:
            if select.select([lines.descriptor], [], [], 0)[0]:
                lines.pass_on()
            lines.end()

    def finish(self, gives_up: Callable[[], bool]) -> None:
        """Write the whole rest, unless the launcher gives it up."""
        while self.waits() and not gives_up():
            for target in (self._out, self._err):
                if (descriptor := target.waits()) is not None:
                    takes(descriptor, _LOOK_SECONDS)
                target.write()


def takes(descriptor: int, seconds: float = 0) -> bool:
    """Return whether a write needs no wait: it succeeds, or fails at once."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _same(one: TextIO, other: TextIO) -> bool:
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):
        return False  # a test has put something else in its place
