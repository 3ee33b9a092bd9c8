# SPDX-License-Identifier: Apache-2.0
"""Both versions of the interface in the same few words, for processes that use either.

A request is named by its line and a tuple of one's own; both come back with its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

import shmnd
import shmnd.nd1 as nd
from shmnd import MrFlag, OpFlag, RequestType, Status

WAIT: Final = 20.0
"""Seconds after which what must happen counts as missing."""
RECEIVES: Final = 6
REQUESTS: Final = 16
_QUEUE: Final = 1024
_READS: Final = 4
_MARGIN: Final = 4096
_CANARY: Final = 0xC5
_RIGHTS: Final = OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE

Address = tuple[str, int]
What = tuple[Any, ...]


class Ended(NamedTuple):
    """A request that is over."""

    line: Any
    what: What
    status: Status
    nbytes: int


class Memory:
    """Registered memory, shared or private, between margins that no process may write."""

    def __init__(self, version_api: Version, nbytes: int, *, private: bool) -> None:
        room = nbytes + 2 * _MARGIN
        whole: Any = np.zeros(room, np.uint8) if private else version_api.adapter.allocate(room)
        self._margins = (whole[:_MARGIN], whole[-_MARGIN:])
        for margin in self._margins:
            margin[:] = _CANARY
        self.array = whole[_MARGIN:-_MARGIN]
        self.address = int(self.array.ctypes.data)
        self.handle = version_api.register(self.array)

    def is_intact(self) -> bool:
        """Nothing was written next to it."""
        return all(bool((margin == _CANARY).all()) for margin in self._margins)


class Port(Protocol):
    """One line's queue pair, connector and windows, in one version."""

    address: Address

    def make(self) -> None: ...
    def receive(self, what: What, memory: Memory, offset: int, nbytes: int) -> None: ...
    def send(self, what: What, memory: Memory, offset: int, nbytes: int, ends: int) -> None: ...
    def move(
        self, what: What, memory: Memory, offset: int, nbytes: int, there: tuple[int, int]
    ) -> None: ...
    def bind(self, what: What, memory: Memory, nbytes: int, told: What | None) -> int: ...
    def invalidate(self, what: What) -> None: ...
    def connect(self, to: Address, data: bytes) -> Any: ...
    def complete(self) -> Any: ...
    def accept(self) -> Any: ...
    def private_data(self) -> bytes: ...
    def hear_the_end(self) -> Any: ...
    def disconnect(self) -> Any: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Version(Protocol):
    """A process's adapter, its queue and its listener, in one version."""

    adapter: Any
    address: Address

    def register(self, array: Any) -> Any: ...
    def port(self, line: Any, *, shared: bool) -> Port: ...
    def request(self, port: Any) -> Any: ...
    def ended(self, timeout: float) -> Iterator[Ended]: ...


# -- version 2 ------------------------------------------------------------------------------------


class Two:
    """Version 2; its lines may take their receives from a shared queue."""

    def __init__(self) -> None:
        self.adapter = shmnd.open_adapter(rnr_timeout=WAIT)
        self.queue = self.adapter.create_completion_queue(_QUEUE)
        self.srq = self.adapter.create_shared_receive_queue(64)
        self.listener = self.adapter.create_listener()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.address = self.listener.get_local_address()

    def register(self, array: Any) -> shmnd.MemoryRegion:
        region = self.adapter.create_memory_region()
        region.register(array, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        return region

    def port(self, line: Any, *, shared: bool) -> TwoPort:
        return TwoPort(self, line, shared)

    def request(self, port: TwoPort) -> Any:
        return self.listener.get_connection_request(port.connector)

    def post_shared(self, what: What, memory: Memory, offset: int, nbytes: int) -> None:
        self.srq.receive(memory.handle.sge(offset, nbytes), what)

    def ended(self, timeout: float) -> Iterator[Ended]:
        for result in self.queue.wait(64, timeout):
            what, line = result.request_context, result.queue_pair_context
            assert (result.request_type is RequestType.RECEIVE) == (what[0] in {"in", "shared"})
            yield Ended(line, what, result.status, result.bytes_transferred)


class TwoPort:
    """A line of version 2."""

    def __init__(self, version_api: Two, line: Any, shared: bool) -> None:
        self.version_api, self.line, self.shared = version_api, line, shared
        self.connector = version_api.adapter.create_connector()
        self.windows: dict[str, shmnd.MemoryWindow] = {}
        self.pair: Any = None

    def make(self) -> None:
        adapter, queue = self.version_api.adapter, self.version_api.queue
        if self.shared:
            self.pair = adapter.create_queue_pair_with_srq(
                queue, queue, self.version_api.srq, context=self.line, initiator_depth=REQUESTS
            )
        else:
            self.pair = adapter.create_queue_pair(
                queue, queue, context=self.line, receive_depth=RECEIVES, initiator_depth=REQUESTS
            )

    def receive(self, what: What, memory: Memory, offset: int, nbytes: int) -> None:
        self.pair.receive(memory.handle.sge(offset, nbytes), what)

    def send(self, what: What, memory: Memory, offset: int, nbytes: int, ends: int) -> None:
        sge = memory.handle.sge(offset, nbytes)
        if ends:
            self.pair._send_and_invalidate(sge, ends, what)
        else:
            self.pair.send(sge, what)

    def move(
        self, what: What, memory: Memory, offset: int, nbytes: int, there: tuple[int, int]
    ) -> None:
        call = self.pair.write if what[0] == "write" else self.pair.read
        call(memory.handle.sge(offset, nbytes), *there, what)

    def bind(self, what: What, memory: Memory, nbytes: int, told: What | None) -> int:
        window = self.windows.get(what[1])
        if window is None:
            window = self.windows[what[1]] = self.version_api.adapter.create_memory_window()
            window._set_invalidate_context(told)
        self.pair.bind(memory.handle, window, memory.address, nbytes, what, flags=_RIGHTS)
        return window.remote_token

    def invalidate(self, what: What) -> None:
        self.pair.invalidate(self.windows[what[1]], what)

    def connect(self, to: Address, data: bytes) -> Any:
        return self.connector.connect(self.pair, to, _READS, _READS, data)

    def complete(self) -> Any:
        return self.connector.complete_connect()

    def accept(self) -> Any:
        return self.connector.accept(self.pair, _READS, _READS)

    def private_data(self) -> bytes:
        return self.connector.get_private_data()

    def hear_the_end(self) -> Any:
        return self.connector.notify_disconnect()

    def disconnect(self) -> Any:
        return self.connector.disconnect()

    def flush(self) -> None:
        self.pair.flush()

    def close(self) -> None:
        self.connector.close()
        if self.pair is not None:
            self.pair.close()
        for window in self.windows.values():
            window.close()


# -- version 1 ------------------------------------------------------------------------------------


class One:
    """Version 1."""

    def __init__(self) -> None:
        self.adapter = nd.Provider().open_adapter("127.0.0.1", rnr_timeout=WAIT)
        self.queue = self.adapter.create_completion_queue(_QUEUE)
        self.listener = self.adapter.listen()
        self.address = ("127.0.0.1", self.listener.assigned_port)
        self.asked: dict[nd.Result, tuple[Any, What]] = {}
        self.told: dict[nd.Result, tuple[Any, What]] = {}  # of windows: they come again

    def register(self, array: Any) -> int:
        handle, over = self.adapter.register_memory(array)
        over.result(WAIT)
        return handle

    def port(self, line: Any, *, shared: bool) -> OnePort:
        del shared  # version 1 has none
        return OnePort(self, line)

    def request(self, port: OnePort) -> Any:
        return self.listener.get_connection_request(port.connector)

    def ended(self, timeout: float) -> Iterator[Ended]:
        for result in self.queue.wait(64, timeout):
            line, what = self.told[result] if result in self.told else self.asked.pop(result)
            yield Ended(line, what, result.status, result.bytes_transferred)


class OnePort:
    """A line of version 1."""

    def __init__(self, version_api: One, line: Any) -> None:
        self.version_api, self.line = version_api, line
        self.connector = version_api.adapter.create_connector()
        self.windows: dict[str, nd.MemoryWindow] = {}
        self.endpoint: Any = None

    def _asking(self, what: What, call: Any, *arguments: Any) -> Any:
        result = nd.Result()
        self.version_api.asked[result] = (self.line, what)
        try:
            return call(result, *arguments)
        except BaseException:
            del self.version_api.asked[result]
            raise

    def make(self) -> None:
        queue = self.version_api.queue
        self.endpoint = self.connector.create_endpoint(
            queue, queue, RECEIVES, REQUESTS, 1, 1, _READS, _READS
        )

    def receive(self, what: What, memory: Memory, offset: int, nbytes: int) -> None:
        sge = nd.Sge(memory.address + offset, nbytes, memory.handle)
        self._asking(what, self.endpoint.receive, [sge])

    def send(self, what: What, memory: Memory, offset: int, nbytes: int, ends: int) -> None:
        sge = nd.Sge(memory.address + offset, nbytes, memory.handle)
        if ends:
            descriptor = nd.MwDescriptor(0, 0, ends)
            self._asking(what, self.endpoint.send_and_invalidate, [sge], descriptor)
        else:
            self._asking(what, self.endpoint.send, [sge])

    def move(
        self, what: What, memory: Memory, offset: int, nbytes: int, there: tuple[int, int]
    ) -> None:
        call = self.endpoint.write if what[0] == "write" else self.endpoint.read
        sge = nd.Sge(memory.address + offset, nbytes, memory.handle)
        self._asking(what, call, [sge], nd.MwDescriptor(there[0], nbytes, there[1]), 0)

    def bind(self, what: What, memory: Memory, nbytes: int, told: What | None) -> int:
        window = self.windows.get(what[1])
        if window is None:
            gone = nd.Result() if told else None
            if gone is not None:
                self.version_api.told[gone] = (self.line, told or ())
            window = self.windows[what[1]] = self.version_api.adapter.create_memory_window(gone)
        descriptor: nd.MwDescriptor = self._asking(
            what, self.endpoint.bind, memory.handle, window, memory.address, nbytes, _RIGHTS
        )
        return descriptor.token

    def invalidate(self, what: What) -> None:
        self._asking(what, self.endpoint.invalidate, self.windows[what[1]])

    def connect(self, to: Address, data: bytes) -> Any:
        return self.connector.connect(self.endpoint, to, private_data=data)

    def complete(self) -> Any:
        return self.connector.complete_connect()

    def accept(self) -> Any:
        return self.connector.accept(self.endpoint)

    def private_data(self) -> bytes:
        return self.connector.get_connection_data()[2]

    def hear_the_end(self) -> Any:
        return self.connector.notify_disconnect()

    def disconnect(self) -> Any:
        return self.connector.disconnect()

    def flush(self) -> None:
        self.endpoint.flush()

    def close(self) -> None:
        self.connector.close()
        if self.endpoint is not None:
            self.endpoint.close()
        for window in self.windows.values():
            self.version_api.told.pop(window._invalidate_result, None)  # type: ignore[arg-type]
            window.close()
