# SPDX-License-Identifier: Apache-2.0
"""Requests about names, and about adapters that meet."""

from __future__ import annotations

from collections.abc import Sequence

from shmnd.broker.protocol import Fields, PassedFd
from shmnd.broker.service.adapters import own_adapter
from shmnd.broker.service.directory import Directory
from shmnd.broker.service.records import Process

__all__ = ["NameRequests"]


class NameRequests:
    """Handlers of the requests by which a process uses the directory.

    Each handler returns the fields of its reply.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def announce(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Announce a record of the process, or its new data."""
        self._directory.announce(process, own_adapter(process, fields["adapter"]), fields)
        return {}

    def retract(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Retract a record."""
        self._directory.retract(process, fields["object"])
        return {}

    def find(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Return records of a kind and name."""
        return self._directory.find(fields)

    def watch(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Begin to report changes of records to the process."""
        self._directory.watch(process, fields["kind"], fields["name"])
        return {}

    def unwatch(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Report changes of these records no more."""
        self._directory.unwatch(process, fields["kind"], fields["name"])
        return {}

    def meet(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Introduce an adapter of the process and a peer's, now or once the peer has opened it."""
        adapter = own_adapter(process, fields["adapter"])
        return {"met": self._directory.meet(process, adapter, fields["peer"])}

    def part(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """End a meeting."""
        self._directory.part(process, fields["adapter"], fields["peer"])
        return {}
