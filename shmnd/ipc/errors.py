# SPDX-License-Identifier: Apache-2.0
"""The errors of `shmnd.ipc`."""

__all__ = [
    "Closed",
    "LoanLimit",
    "NoPublisher",
    "PeerLost",
    "RemoteError",
    "TypeMismatch",
    "unusable",
]


class Closed(RuntimeError):
    """The object was closed, or belongs to the parent of a process that was forked."""


def unusable(call: str, what: str, *, closed: bool) -> Closed:
    """Return the error of a call to an object that is closed, or else that is the parent's."""
    why = "is closed" if closed else "belongs to the parent of this process"
    return Closed(f"{call}: the {what} {why}; make a new one")


class NoPublisher(ConnectionError):
    """No publisher of the topic is there."""


class LoanLimit(RuntimeError):
    """A bound of memory or of held samples is reached."""


class TypeMismatch(TypeError):
    """Two ends of one name disagree about the type of what they exchange."""


class PeerLost(ConnectionError):
    """The process at the other end has died, or let go of this end."""


class RemoteError(RuntimeError):
    """A request failed with an error that this process does not know."""
