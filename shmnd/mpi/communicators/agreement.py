# SPDX-License-Identifier: Apache-2.0
"""Agreements among ranks some of which may die: the launcher decides.

The launcher hears of every death first and outlives all ranks. A rank sends it what it gives to an
agreement, over a socket pair that it inherited (`shmnd mpiexec --enable-recovery`); when every
member has given something or has died, the launcher sends the same answer to all that live.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from typing import Any, Final

VARIABLE: Final = "SHMND_MPI_AGREEMENT"
"""The environment variable that names the descriptor of the socket."""
_MOST: Final = 1 << 16

_answers: Final[dict[tuple[int, int], dict[str, Any]]] = {}
_asked: Final[Counter[int]] = Counter()


def _inherited() -> socket.socket | None:
    number = os.environ.get(VARIABLE)
    if number is None:
        return None
    launcher = socket.socket(fileno=os.dup(int(number)))
    launcher.setblocking(False)
    return launcher


_launcher: Final = _inherited()


class Question:
    """What this rank gives to one agreement, and later its answer."""

    def __init__(self, context: int, members: list[int], value: int, known: list[int]) -> None:
        """Send it: ranks of the job, a number, and the deaths that the program knows of."""
        _asked[context] += 1
        self._key: Final = (context, _asked[context])
        asked = {"key": self._key, "members": members, "value": value, "known": known}
        assert _launcher is not None
        _launcher.setblocking(True)
        _launcher.send(json.dumps(asked).encode())
        _launcher.setblocking(False)

    def answered(self) -> bool:
        """Return whether the answer is there."""
        assert _launcher is not None
        while self._key not in _answers:
            try:
                answer = json.loads(_launcher.recv(_MOST))
            except BlockingIOError:
                return False
            _answers[tuple(answer["key"])] = answer
        return True

    def answer(self) -> dict[str, Any]:
        """Return it: `value`, the first one's `first`, `failed` members, and `unknown` deaths."""
        return _answers.pop(self._key)


class Open:
    """One agreement under way, at the launcher."""

    def __init__(self, members: list[int]) -> None:
        """Begin with the members, ranks of the job."""
        self.members: Final = members
        self.given: Final[dict[int, dict[str, Any]]] = {}

    def decided(self, gone: set[int]) -> dict[str, Any] | None:
        """Return the answer, None as long as a living member has given nothing."""
        if any(rank not in self.given and rank not in gone for rank in self.members):
            return None
        values = [self.given[rank]["value"] for rank in sorted(self.given)]
        agreed = values[0]
        for value in values[1:]:
            agreed &= value
        failed = [rank for rank in self.members if rank in gone]
        known = set(failed)
        for rank in self.given.keys() - gone:
            known &= set(self.given[rank]["known"])
        unknown = [rank for rank in failed if rank not in known]
        return {"value": agreed, "first": values[0], "failed": failed, "unknown": unknown}


class Agreements:
    """All agreements of a job, at the launcher."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: Final[dict[tuple[int, int], Open]] = {}
        self._gone: Final[set[int]] = set()

    def given(self, rank: int, message: bytes) -> list[tuple[int, bytes]]:
        """Take what a rank gives; return answers with the ranks that they are for."""
        asked = json.loads(message)
        key = (int(asked["key"][0]), int(asked["key"][1]))
        members = sorted({int(each) for each in asked["members"]})
        self._open.setdefault(key, Open(members)).given[rank] = asked
        return self._decide()

    def died(self, rank: int) -> list[tuple[int, bytes]]:
        """Note that a rank has ended; return answers that this decides."""
        self._gone.add(rank)
        return self._decide()

    def _decide(self) -> list[tuple[int, bytes]]:
        answers = []
        for key, each in list(self._open.items()):
            decision = each.decided(self._gone)
            if decision is not None:
                del self._open[key]
                text = json.dumps({"key": key, **decision}).encode()
                answers += [(rank, text) for rank in each.given if rank not in self._gone]
        return answers
