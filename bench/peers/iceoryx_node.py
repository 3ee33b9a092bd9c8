# SPDX-License-Identifier: Apache-2.0
"""The node of iceoryx2 that a process has, and its services of bytes."""

import ctypes
import importlib
from importlib.metadata import version
from typing import Any, Final


class IceoryxNode:
    """The package, loaded; a node; and the services, which are to live as long as their ports."""

    def __init__(self) -> None:
        # Any: its stubs are there only where it is installed.
        self.iox: Final[Any] = importlib.import_module("iceoryx2")
        self.iox.set_log_level(self.iox.LogLevel.Error)
        self._node: Any = self.iox.NodeBuilder.new().create(self.iox.ServiceType.Ipc)
        self._services: list[Any] = []

    def describe(self) -> dict[str, str]:
        """Return the version of the package."""
        return {"iceoryx2": version("iceoryx2")}

    def _builder(self, name: str) -> Any:
        return self._node.service_builder(self.iox.ServiceName.new(name))

    def topic(self, name: str, buffer: int, **limits: int) -> Any:
        """Return a service whose publishers wait for subscribers that are `buffer` samples behind.

        `limits` name further calls of the builder, with their arguments.
        """
        builder = (
            self._builder(name)
            .publish_subscribe(self.iox.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(buffer)
        )
        for limit, value in limits.items():
            builder = getattr(builder, limit)(value)
        return self._kept(builder)

    def event(self, name: str) -> Any:
        """Return a service of events."""
        return self._kept(self._builder(name).event())

    def _kept(self, builder: Any) -> Any:
        service = builder.open_or_create()
        self._services.append(service)
        return service

    def close(self) -> None:
        """Release the services and the node; the ports are gone before."""
        self._services.clear()
        self._node = None
