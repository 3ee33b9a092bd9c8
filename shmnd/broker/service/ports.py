# SPDX-License-Identifier: Apache-2.0
"""The port space: which object has which address, port and protocol.

A port is held by one holder per host. The any-address holds the port on every host of its family
(`::` on both families, as a dual-stack socket does), so two holders never cover the same address
and at most one answers for it. There is no waiting time: a released port is free at once.
"""

from __future__ import annotations

import random
from typing import Final, Generic, TypeVar

from shmnd.broker.protocol import Refusal, written
from shmnd.status import Status

__all__ = ["EPHEMERAL", "PortSpace", "covers"]

EPHEMERAL: Final = range(49152, 65536)
"""Where port 0 is chosen from."""

_ANY4: Final = "0.0.0.0"
_ANY6: Final = "::"

Holder = TypeVar("Holder")


def covers(bound: str, host: str) -> bool:
    """Return whether something bound to one host also answers for another."""
    return bound in (host, _ANY6) or (bound == _ANY4 and ":" not in host)


class PortSpace(Generic[Holder]):
    """The owner of each port. Hosts must be in canonical spelling."""

    def __init__(self, *, first: int | None = None) -> None:
        self._holders: dict[tuple[int, int], dict[str, Holder]] = {}
        self._exhausted: set[tuple[int, str]] = set()
        # A new broker starts at random: ports that clients still hold from an earlier one, and
        # have not yet claimed again, are then seldom given away.
        self._next = random.choice(EPHEMERAL) if first is None else first

    def bind(self, protocol: int, host: str, port: int, holder: Holder) -> int:
        """Assign a port to a holder, for 0 a free one, and return it. Refusal if it is taken."""
        if port == 0:
            port = self._choose(protocol, host)
        elif not self._free(protocol, host, port):
            raise Refusal(
                Status.SHARING_VIOLATION,
                f"{written((host, port))} is in use (protocol {protocol}); 0 takes a free port",
            )
        self._holders.setdefault((protocol, port), {})[host] = holder
        return port

    def release(self, protocol: int, host: str, port: int) -> None:
        """Make a port free again."""
        holders = self._holders[protocol, port]
        del holders[host]
        if not holders:
            del self._holders[protocol, port]
        self._exhausted.clear()

    def find(self, protocol: int, host: str, port: int) -> Holder | None:
        """Return the object that answers for an address."""
        holders = self._holders.get((protocol, port), {})
        for bound in (host, _ANY4, _ANY6):
            if bound in holders and covers(bound, host):
                return holders[bound]
        return None

    def holders(self, protocol: int, host: str, port: int) -> list[Holder]:
        """Return the objects that hold an address, or one of those that an any-address covers."""
        if host in (_ANY4, _ANY6):
            bound = self._holders.get((protocol, port), {}).items()
            return [holder for at, holder in bound if covers(at, host) or covers(host, at)]
        holder = self.find(protocol, host, port)
        return [] if holder is None else [holder]

    def _free(self, protocol: int, host: str, port: int) -> bool:
        return not self.holders(protocol, host, port)

    def _choose(self, protocol: int, host: str) -> int:
        if (protocol, host) not in self._exhausted:
            for _ in EPHEMERAL:
                port = self._next
                self._next = port + 1 if port + 1 in EPHEMERAL else EPHEMERAL[0]
                if self._free(protocol, host, port):
                    return port
            # Repeated requests of one client must not delay the others by a search each.
            self._exhausted.add((protocol, host))
        raise Refusal(
            Status.TOO_MANY_ADDRESSES,
            f"no port from {EPHEMERAL[0]} to {EPHEMERAL[-1]} is free on {host}",
        )
