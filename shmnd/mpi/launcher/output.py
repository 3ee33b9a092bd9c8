# SPDX-License-Identifier: Apache-2.0
"""What the launcher writes: lines of ranks, each with its rank before it, and its own words.

The launcher never waits for its reader, so that it sees deaths, limits and signals meanwhile.
Output that no reader has taken is kept, and the pipes of the ranks are not read: the ranks wait.
Where output of ranks cannot be written at all, the job ends. Words of the launcher are dropped
then: the job does not depend on them.
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
_POLL_SECONDS: Final = 0.2


class OutputError(OSError):
    """Output of ranks cannot be written, as on a disk that is full: why, in the system's words."""


class Target:
    """A stream of the launcher; one of several that lead to the same file keep one order."""

    def __init__(self, stream: TextIO, like: Target | None = None) -> None:
        self._stream: Final = stream
        self._left: deque[tuple[int, memoryview, bool]] = deque() if like is None else like._left
        """Bytes that are to be written, where, and whether the job needs them."""
        self._lost = False
        """Whether the output of ranks cannot be written."""

    def put(self, data: bytes, *, needed: bool = True) -> None:
        """Write this behind the rest, as far as that needs no wait."""
        if self._lost and needed:
            return
        self._stream.flush()
        self._left.append((self._stream.fileno(), memoryview(data), needed))
        self.write()

    def write(self) -> None:
        """Write the rest, as far as that needs no wait."""
        while self._left and takes(self._left[0][0]):
            descriptor, data, needed = self._left[0]
            try:
                data = data[os.write(descriptor, data[:_FITS]) :]
            except BlockingIOError:
                return  # another process has made it one that does not wait, and filled it
            except OSError as error:
                if needed:
                    self._left.clear()  # no reader can take it, nor what follows
                    self._lost = True
                    if isinstance(error, BrokenPipeError):
                        raise
                    raise OutputError(error.strerror) from error
                data = data[:0]
            if data:
                self._left[0] = descriptor, data, needed
            else:
                self._left.popleft()

    def waits(self) -> int | None:
        """Return the descriptor that takes no more while something is left."""
        return self._left[0][0] if self._left else None


class RankPipe:
    """One pipe of one rank, whose lines are written whole, each with the rank before it."""

    def __init__(self, descriptor: int, rank: int, target: Target, *, coloured: bool) -> None:
        self.descriptor: Final = descriptor
        self.target: Final = target
        self._unfinished: Final[list[bytes]] = []
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
        self._unfinished.append(first)
        if others:
            lines = [b"".join(self._unfinished), *others]
            self._unfinished[:] = [lines.pop()]
            self._put(lines)
        return True

    def end(self) -> None:
        """Take the line whose end has not come, as one."""
        line = b"".join(self._unfinished)
        self._unfinished.clear()
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
        self._pipes: Final[list[RankPipe]] = []
        self._paused: Final[set[RankPipe]] = set()
        """Pipes that are not read, because their target takes nothing."""
        self._watched: Final[set[int]] = set()

    def say(self, text: str) -> None:
        """Write words of the launcher."""
        self._err.put(f"shmnd mpiexec: {text}\n".encode(), needed=False)

    def has_terminal(self) -> bool:
        """Return whether a person may read the words of the launcher as they come."""
        return sys.stderr.isatty()

    def show(self, out: int, err: int, rank: int) -> None:
        """Pass on what a rank writes into two pipes."""
        for end, target, stream in ((out, self._out, sys.stdout), (err, self._err, sys.stderr)):
            pipe = RankPipe(end, rank, target, coloured=stream.isatty())
            self._pipes.append(pipe)
            self._selector.register(end, selectors.EVENT_READ, pipe)

    def read(self, pipe: RankPipe) -> None:
        """Take what a pipe has, unless its target waits."""
        if pipe not in self._paused and pipe.target.waits() is None and not pipe.pass_on():
            self._selector.unregister(pipe.descriptor)
            self._pipes.remove(pipe)

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
        self._pause_pipes(bool(waiting))

    def _pause_pipes(self, any_waits: bool) -> None:
        """Read no pipe whose target waits, and read the others again."""
        if not any_waits and not self._paused:
            return
        for pipe in self._pipes:
            waits = pipe.target.waits() is not None
            if waits and pipe not in self._paused:
                self._selector.unregister(pipe.descriptor)
                self._paused.add(pipe)
            elif not waits and pipe in self._paused:
                self._selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)
                self._paused.discard(pipe)

    def is_open(self) -> bool:
        """Return whether there is, or can come, something to write."""
        return bool(self._pipes) or self.waits()

    def waits(self) -> bool:
        """Return whether something is left that no reader has taken."""
        return any(target.waits() is not None for target in (self._out, self._err))

    def take_last(self) -> None:
        """Take the last output of ranks whose pipes another process still holds."""
        for pipe in self._pipes:
            if select.select([pipe.descriptor], [], [], 0)[0]:
                pipe.pass_on()
            pipe.end()

    def finish(self, gives_up: Callable[[], bool]) -> None:
        """Write the whole rest, unless the launcher gives it up."""
        while self.waits() and not gives_up():
            for target in (self._out, self._err):
                if (descriptor := target.waits()) is not None:
                    takes(descriptor, _POLL_SECONDS)
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
