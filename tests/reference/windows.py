# SPDX-License-Identifier: Apache-2.0
"""Memory windows of the random programs: Bind and Invalidate."""

from __future__ import annotations

from reference.memory import Grant, Window
from reference.model import Request
from reference.posts import Posts
from reference.stage import Pair
from shmnd import OpFlag, RequestType, Status
from spi.harness import LOCAL


class Windows(Posts):
    """What programs do with the windows of a node."""

    def bind(self, pair: Pair, window: Window, start: int, length: int, flags: int) -> bool:
        """Bind a window over a stretch of the side's target."""
        side = pair.model
        if window.state == "lost":
            return False
        if flags & OpFlag.ALLOW_WRITE and not pair.target.slab.flags & LOCAL:
            return False
        number, context = self._context(pair.node)
        silent = bool(flags & OpFlag.SILENT_SUCCESS)
        request = Request(number, RequestType.BIND, 0, silent=silent)
        if window.state == "bound":
            doubtful = window.side is None or window.side.connection.may_be_over()
            if doubtful:
                return False
            request.must_fail = frozenset({Status.INVALID_DEVICE_REQUEST})
        address = pair.target.slab.address + start
        posted = self._post(
            pair,
            request,
            context,
            None,
            lambda: pair.qp.bind(
                pair.target.slab.buffer.mr, window.real, address, length, context, flags=flags
            ),
        )
        if not posted or request.must_fail:
            return posted
        rights = "r" * bool(flags & OpFlag.ALLOW_READ) + "w" * bool(flags & OpFlag.ALLOW_WRITE)
        token = window.real.remote_token
        grant = Grant(token, pair.target, start, length, rights, side.other)
        if side.connection.may_be_over():
            grant.state = "unsure"
        window.state, window.grant, window.side = "bound", grant, side
        pair.grants.append(grant)

        def over() -> None:
            if not succeeded:
                window.state = "lost"
                self._grant_ends(grant, "unsure")

        succeeded: list[bool] = []
        request.effect = lambda: succeeded.append(True)
        request.release = over
        return posted

    def invalidate(self, pair: Pair, window: Window, flags: int = 0) -> bool:
        """Take a window's token back."""
        if window.state == "lost":
            return False
        number, context = self._context(pair.node)
        silent = bool(flags & OpFlag.SILENT_SUCCESS)
        request = Request(number, RequestType.INVALIDATE, 0, silent=silent)
        grant = window.grant
        if window.state != "bound" or window.side is not pair.model:
            request.must_fail = frozenset({Status.INVALID_DEVICE_REQUEST})
        posted = self._post(
            pair,
            request,
            context,
            None,
            lambda: pair.qp.invalidate(window.real, context, flags=flags),
        )
        if not posted or request.must_fail:
            return posted
        assert grant is not None
        self._grant_ends(grant, "unsure")
        window.state, window.grant, window.side = "free", None, None
        request.effect = lambda: self._grant_ends(grant, "dead")

        def over() -> None:
            if grant.state != "dead" and window.state == "free":
                window.state = "lost"

        request.release = over
        return posted
