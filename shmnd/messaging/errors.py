# SPDX-License-Identifier: Apache-2.0
"""What the calls of a connection raise that has ended."""

from __future__ import annotations

__all__ = ["PeerClosedError", "ServerClosedError", "ended"]


class PeerClosedError(BrokenPipeError, EOFError):
    """A message cannot be sent: the peer has closed the connection."""


class ServerClosedError(OSError):
    """The server was closed: it accepts no connections any more."""


def ended(call: str, peer: str, reason: str, *, sending: bool) -> OSError | EOFError:
    """Return the error of a call; `reason` is empty where the peer has closed the connection."""
    if not reason:
        text = f"{call}: the peer {peer} has closed the connection"
        return PeerClosedError(text) if sending else EOFError(text)
    return ConnectionResetError(
        f"{call}: {reason}: the peer {peer} died, or disconnected without closing"
    )
