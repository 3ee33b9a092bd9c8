# SPDX-License-Identifier: Apache-2.0
"""Two ends of a connection of version 1, and the steps that connect them."""

import functools
import time
from typing import Any

import shmnd.nd1 as nd
from shmnd import Status
from spi.harness import WAIT, Late

FILL = 0xA5


class Memory:
    """Registered memory of one end."""

    def __init__(self, adapter: nd.Adapter, nbytes: int) -> None:
        self.array = adapter.allocate(nbytes)
        self.array[:] = FILL
        self.view = memoryview(self.array)
        self.address = int(self.array.ctypes.data)
        self.length = nbytes
        self.handle, registered = adapter.register_memory(self.array)
        registered.result(WAIT)

    def sge(self, offset: int = 0, length: int | None = None) -> nd.Sge:
        length = self.length - offset if length is None else length
        return nd.Sge(self.address + offset, length, self.handle)

    def put(self, data: bytes, offset: int = 0) -> None:
        self.view[offset : offset + len(data)] = data

    def get(self, length: int, offset: int = 0) -> bytes:
        return bytes(self.view[offset : offset + length])


class End:
    """An adapter and one object of each kind, made when first used."""

    def __init__(self, **options: Any) -> None:
        self.options = {
            "inbound_entries": 16,
            "outbound_entries": 16,
            "inbound_sge": 4,
            "outbound_sge": 4,
            "inbound_read_limit": 8,
            "outbound_read_limit": 8,
        } | {name: options.pop(name) for name in list(options) if name != "rnr_timeout"}
        self.adapter = nd.Provider().open_adapter("127.0.0.1", **options)
        self.kept: list[Any] = []

    @functools.cached_property
    def cq(self) -> nd.CompletionQueue:
        return self.adapter.create_completion_queue(256)

    @functools.cached_property
    def connector(self) -> nd.Connector:
        return self.adapter.create_connector()

    @functools.cached_property
    def endpoint(self) -> nd.Endpoint:
        return self.connector.create_endpoint(self.cq, self.cq, **self.options)

    @functools.cached_property
    def listen(self) -> nd.Listen:
        return self.adapter.listen()

    @functools.cached_property
    def file(self) -> Any:
        return self.adapter.get_file_handle()

    def memory(self, nbytes: int) -> Memory:
        memory = Memory(self.adapter, nbytes)
        self.kept.append(memory)
        return memory

    def reap(self, count: int = 1, timeout: float = WAIT) -> list[nd.Result]:
        """Exactly the next results."""
        deadline = time.monotonic() + timeout
        taken: list[nd.Result] = []
        while len(taken) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late(f"{len(taken)} of {count} results: {taken}")
            taken += self.cq.wait(max=count - len(taken), timeout=left)
        return taken

    def close(self) -> None:
        self.kept.clear()
        self.adapter.close()

    def dispose(self) -> None:
        self.close()
        vars(self).clear()


class Pair:
    """Two ends and the traffic between them."""

    def __init__(self, active: End, passive: End) -> None:
        self.active = active
        self.passive = passive
        self.connecting: Any = None
        self.accepting: Any = None

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.passive.listen.assigned_port

    def offer(self, private_data: bytes = b"") -> None:
        """Asked, and the passive side knows."""
        address = self.address()
        waiting = self.passive.listen.get_connection_request(self.passive.connector)
        self.connecting = self.active.connector.connect(
            self.active.endpoint, address, private_data=private_data
        )
        waiting.result(WAIT)

    def accept(self, private_data: bytes = b"") -> None:
        """Accepted, and the active side knows."""
        passive = self.passive
        self.accepting = passive.connector.accept(passive.endpoint, private_data)
        self.connecting.result(WAIT)

    def connect(self) -> "Pair":
        self.offer()
        self.accept()
        self.active.connector.complete_connect().result(WAIT)
        self.accepting.result(WAIT)
        return self

    def hang_up(self, end: End) -> None:
        """One end disconnects, and the other one has heard of it."""
        other = self.passive if end is self.active else self.active
        heard = other.connector.notify_disconnect()
        end.connector.disconnect().result(WAIT)
        heard.result(WAIT)

    def both_reap(self, end: End, count: int = 1, timeout: float = WAIT) -> list[nd.Result]:
        """The next results of one end, while the other polls as a living program does."""
        other = self.passive if end is self.active else self.active
        deadline = time.monotonic() + timeout
        taken: list[nd.Result] = []
        while len(taken) < count:
            taken += end.cq.wait(max=count - len(taken), timeout=0.002)
            assert other.cq.get_results(0) == []
            other.cq._gather()
            if time.monotonic() > deadline:
                raise Late(f"{len(taken)} of {count} results: {taken}")
        return taken

    def window(
        self, owner: End, memory: Memory, flags: int, told: nd.Result | None = None
    ) -> tuple[nd.MemoryWindow, nd.MwDescriptor]:
        """A window over all of a memory, bound and reaped."""
        window = owner.adapter.create_memory_window(told)
        bound = nd.Result()
        descriptor = owner.endpoint.bind(
            bound, memory.handle, window, memory.address, memory.length, flags
        )
        assert owner.reap() == [bound]
        assert bound.status is Status.SUCCESS
        owner.kept.append(window)
        return window, descriptor

    def dispose(self) -> None:
        self.connecting = self.accepting = None
        self.active.dispose()
        self.passive.dispose()
