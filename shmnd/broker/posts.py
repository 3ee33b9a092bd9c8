# SPDX-License-Identifier: Apache-2.0
"""Messages that need no reply, and wait until the socket has room."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from shmnd.common.held import Attempted

__all__ = ["Posts"]

_MOST: Final = 65536
"""Posts that wait for a broker that does not read; beyond it the session is given up."""


class Posts:
    """Encoded messages, sent in order and each once, also where a handler of a signal raises.

    Appending may happen at any time; the rest belongs to the thread that has the session's lock.
    """

    def __init__(self) -> None:
        self._left: deque[bytes] = deque()
        self._sent: deque[int] = deque()  # not empty: the first that is left was sent already
        self._flushing = threading.Lock()
        """Held while they are sent: a guard releases it, wherever an interruption comes."""

    def __len__(self) -> int:
        return len(self._left)

    @property
    def flushing(self) -> bool:
        """Whether `flush` runs; for the holder of the session's lock, in its own call stack."""
        return self._flushing.locked()

    @property
    def too_many(self) -> bool:
        """Whether more posts wait than a broker that still reads would leave."""
        return len(self._left) > _MOST

    def append(self, post: bytes) -> None:
        """Append a post, to be sent behind the others."""
        self._left.append(post)

    def clear(self) -> None:
        """Drop all that wait."""
        # In this order: a handler that raises in between leaves no post that seems to be sent.
        self._sent.clear()
        self._left.clear()

    def flush(self, send: Callable[[bytes, deque[int]], bool]) -> bool:
        """Send as long as there is room. Return False if posts are left for lack of room.

        `send` appends to its second argument once it has sent, and returns False where it has no
        room. A handler or a finaliser that calls within it may begin a new session, which drops the
        posts. A call within another flush leaves the posts to that one, and returns True.
        """
        with Attempted(self._flushing) as first:
            while first and self._left:
                if not self._sent and not send(self._left[0], self._sent):
                    return False
                if self._sent:
                    del self._left[0], self._sent[0]
        return True
