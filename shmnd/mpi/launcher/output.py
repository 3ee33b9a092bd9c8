# SPDX-License-Identifier: Apache-2.0
"""Output of ranks, line by line, each with its rank before it."""

from __future__ import annotations

import os
from typing import BinaryIO, Final

_COLOURS: Final = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_AT_ONCE: Final = 65536


class Lines:
    """One pipe of one rank. Whole lines are written, and the rest at the end."""

    def __init__(self, descriptor: int, rank: int, target: BinaryIO) -> None:
        self.descriptor: Final = descriptor
        self._target: Final = target
        self._rest = b""
        head = f"[{rank}] "
        if target.isatty():
            head = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{head}\x1b[0m"
        self._head: Final = head.encode()

    def pass_on(self) -> bool:
        """Write the lines that have come; return False when the pipe has ended."""
        data = os.read(self.descriptor, _AT_ONCE)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if not data and self._rest:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._target.write(b"".join(self._head + line + b"\n" for line in lines))
            self._target.flush()
        return bool(data)
