# SPDX-License-Identifier: Apache-2.0
"""What rings the bells of other processes: a socket of this one."""

from __future__ import annotations

import socket
import weakref
from typing import Final

from shmnd.common.closing import when_dropped
from shmnd.common.descriptors import file_of, is_still, taking_from_the_system
from shmnd.common.interruption import Ignoring
from shmnd.common.streams import socket_clear_of_streams

__all__ = ["DATAGRAMS", "ringer"]

DATAGRAMS: Final = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
_ADDRESS: Final = 6
"""Bytes of an address that the kernel chooses: 0 and five digits (unix(7), autobind)."""


class Ringer:
    """Rings bells. It has its socket from the beginning: a change has to be rung in any case.

    The socket ends when the ringer is gone, not in a `__del__`: within that another thread could
    still find the ringer by its weak reference, and ring nothing from then on.
    """

    def __init__(self) -> None:
        with taking_from_the_system("ring"):
            self._socket = socket_clear_of_streams(socket.socket(socket.AF_UNIX, DATAGRAMS))
            when_dropped(self, _close, self._socket, file_of(self._socket.fileno()))

    def ring(self, addresses: list[bytes]) -> None:
        """Make the bells at these addresses readable."""
        for address in addresses:
            if len(address) != _ADDRESS or address[0]:
                continue  # damaged memory: no address that the kernel chose
            with Ignoring(OSError):  # full: it was rung; closed: it does not sleep
                self._socket.sendto(b"!", address)


def _close(ended: socket.socket, file: tuple[int, int]) -> None:
    """Close a socket, unless the program has closed its descriptor, which is another file's now."""
    if is_still(ended.fileno(), file):
        ended.close()
    else:
        ended.detach()


_ringers: weakref.WeakValueDictionary[str, Ringer] = weakref.WeakValueDictionary()
"""That of this process, as long as an object may ring."""


def ringer() -> Ringer:
    """Return what rings bells; keep it as long as it may be needed."""
    found = _ringers.get("")
    if found is None:
        found = _ringers[""] = Ringer()
    return found
