# SPDX-License-Identifier: Apache-2.0
"""Translation of the core's statuses to those of version 1, for calls, operations and requests.

Some statuses came with version 2. A program of version 1 does not expect them and would take them
for something fatal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shmnd.overlapped import Overlapped as Overlapped2
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Overlapped", "in_words_of_version_1", "translated"]

_WORDS: Final[Mapping[Status, Status]] = MappingProxyType(
    {
        Status.IO_TIMEOUT: Status.TIMEOUT,
        Status.SHARING_VIOLATION: Status.ADDRESS_ALREADY_EXISTS,
        Status.TOO_MANY_ADDRESSES: Status.INSUFFICIENT_RESOURCES,
        Status.NETWORK_UNREACHABLE: Status.HOST_UNREACHABLE,
        Status.BAD_NETWORK_NAME: Status.INVALID_ADDRESS,
        Status.INVALID_BUFFER_SIZE: Status.BUFFER_OVERFLOW,
    }
)

# In version 2 an Accept, too, is refused.
_OF_ACCEPT: Final = MappingProxyType({Status.CONNECTION_REFUSED: Status.CONNECTION_ABORTED})


# Names of version 2 in the core's messages to users, and those of version 1.
_NAMES: Final = (
    ("create_queue_pair", "create_endpoint"),
    ("QueuePair", "Endpoint"),
    ("queue pair", "endpoint"),
    ("initiator requests", "outbound requests"),
    ("the listener", "the listen"),
    ("Listener.", "Listen."),
    ("MemoryRegion", "memory handle"),
    ("the region", "the registration"),
)


def _reworded(detail: str) -> str:
    for theirs, ours in _NAMES:
        detail = detail.replace(theirs, ours)
    return detail


def translated(status: Status) -> Status:
    """Return the status that version 1 has for one of the core."""
    return _WORDS.get(status, status)


@contextmanager
def in_words_of_version_1(
    call: str, special: Mapping[Status, Status] = MappingProxyType({})
) -> Iterator[None]:
    """Raise an error of the core as an error of a call of version 1.

    `special` translates the statuses for which this call has another one.
    """
    try:
        yield
    except NdError as err:
        status = special.get(err.status) or translated(err.status)
        raise error(status, call, _reworded(detail_of(err)), required=err.required) from None


class Overlapped(Overlapped2):
    """An operation of version 1. TIMEOUT is a failure, although its bits say success.

    Its end is that of the core, which no handler of a signal can interrupt; what a program reads
    of it is in the words of version 1.
    """

    __slots__ = ()

    def _seen(self) -> Status:
        status = super()._seen()
        if self.call == "Connector.accept":
            status = _OF_ACCEPT.get(status, status)
        return translated(status)

    def _reported_detail(self) -> str:
        return _reworded(self._detail)

    def _raise_if_failed(self) -> None:
        if self._seen() is Status.TIMEOUT:
            detail = self._reported_detail() or "the peer did not do its part"
            raise error(Status.TIMEOUT, self.call, detail)
        super()._raise_if_failed()
