# SPDX-License-Identifier: Apache-2.0
"""Errors of calls that a connector refuses, with the call that must come first."""

from __future__ import annotations

from typing import Final

from shmnd.address import is_any, is_local
from shmnd.handshake.attempt import State
from shmnd.status import NdError, Status, error

__all__ = ["invalid", "require_reachable"]

_TOO_EARLY: Final = frozenset({State.NEW, State.BOUND, State.CONNECTING, State.WAITING})
"""States in which a refused call is one that came too early."""
_MISSING_CALL: Final = {
    "complete_connect": "; wait for the result of connect first",
    "accept": "; wait for the result of Listener.get_connection_request first",
    "reject": "; wait for a request, or for the result of connect, first",
    **dict.fromkeys(
        ("disconnect", "notify_disconnect"), "; connect and complete_connect, or accept, first"
    ),
    **dict.fromkeys(
        ("get_private_data", "get_private_data_into", "get_read_limits"),
        "; wait for the result of connect, or of Listener.get_connection_request, first",
    ),
    **dict.fromkeys(
        ("get_local_address", "get_peer_address"), "; connect, or take a request, first"
    ),
}
"""For each call the one that must come before it, as text of the error."""


def invalid(state: State, call: str, end: str) -> NdError:
    """Return the error of a call that the state does not permit; `end` says how it was reached."""
    if state is State.CLOSED:
        return error(Status.CONNECTION_INVALID, call, f"the connector {end}; make a new one")
    remedy = _MISSING_CALL.get(call.partition(".")[2], "") if state in _TOO_EARLY else ""
    return error(Status.CONNECTION_INVALID, call, f"the connector is {state.value}{remedy}")


def require_reachable(host: str, call: str) -> None:
    """Raise the error of a peer address that cannot be connected to from here."""
    if is_any(host):
        raise error(Status.BAD_NETWORK_NAME, call, f"{host} is not an address to connect to")
    if not is_local(host):
        raise error(
            Status.HOST_UNREACHABLE,
            call,
            f"{host} is not an address of this host, the only one served",
        )
