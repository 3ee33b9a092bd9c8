# SPDX-License-Identifier: Apache-2.0
"""Output of ranks, line by line, each with its rank before it."""

from __future__ import annotations

import os
import select
from typing import BinaryIO, Final

_COLOURS: Final = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_AT_ONCE: Final = 65536


class Lines:
    """One pipe of one rank. Whole lines are written, and the rest at the end."""

    def __init__(self, descriptor: int, rank: int, target: BinaryIO) -> None:
        self.descriptor: Final = descriptor
        self._target: Final = target
        self._rest: Final[list[bytes]] = []
        """The parts of a line whose end has not come; joined once, however long it is."""
        head = f"[{rank}] "
        if target.isatty():
            head = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{head}\x1b[0m"
        self._head: Final = head.encode()

    def pass_on(self) -> bool:
        """Write the lines that have come; return False when the pipe has ended."""
        data = os.read(self.descriptor, _AT_ONCE)
        if not data:
            self.end()
            return False
        first, *others = data.split(b"\n")
        self._rest.append(first)
        if others:
            lines = [b"".join(self._rest), *others]
            self._rest[:] = [lines.pop()]
            self._write(lines)
        return True

    def end(self) -> None:
        """Write the line whose end has not come, as one."""
        line = b"".join(self._rest)
        self._rest.clear()
        if line:
            self._write([line])

    def _write(self, lines: list[bytes]) -> None:
        """Write lines, also where another process has made the target one that does not wait."""
        self._target.flush()
        left = memoryview(b"".join(self._head + line + b"\n" for line in lines))
        while left:
            try:
                left = left[os.write(self._target.fileno(), left) :]
            except BlockingIOError:
                select.select([], [self._target], [])
