# SPDX-License-Identifier: Apache-2.0
"""The errors of calls of a connection that has ended.

A daemon thread whose connection, or its peer in the same process, is closed by the end of the
interpreter gets none of them: it would be printed.
"""

from __future__ import annotations

from shmnd.common.exits import stay_at_exit

__all__ = ["PeerClosedError", "ServerClosedError", "ended", "refused"]


class PeerClosedError(BrokenPipeError, EOFError):
    """A message cannot be sent: the peer has closed the connection."""


class ServerClosedError(OSError):
    """The server was closed: it accepts no connections any more."""


def refused(call: str, why: str) -> OSError:
    """Return the error of a call on a connection that is closed here, or of another process."""
    stay_at_exit()
    return OSError(f"{call}: {why}")


def ended(call: str, peer: str, reason: str, *, sending: bool) -> OSError | EOFError:
    """Return the error of a call; `reason` is empty where the peer has closed the connection."""
    stay_at_exit()
    if not reason:
        text = f"{call}: the peer {peer} has closed the connection"
        return PeerClosedError(text) if sending else EOFError(text)
    return ConnectionResetError(
        f"{call}: {reason}: the peer {peer} died, or disconnected without closing"
    )
