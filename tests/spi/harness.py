# SPDX-License-Identifier: Apache-2.0
"""One end of a connection, in this process or in a child, behind one face.

A test is written against an `End` for the active and one for the passive side (`spi.pair`). `End`
objects and everything they hand out either live here or are reached through a `Proxy`; a test
cannot tell, except by identity. So `is` is checked with contexts of the local end.
"""

import contextlib
import dataclasses
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import shmnd
import shmnd.runtime.pending
import shmnd.runtime.progress
import shmnd.runtime.request_progress
from shmnd import MrFlag, NdError, OpFlag, RequestType, Status
from shmnd.ring.process.waiting import set_longest_at_word, set_longest_sleep

EPHEMERAL = range(49152, 65536)
"""Ports that the provider chooses from."""
WAIT = 30.0
"""No wait in this suite is longer than this many seconds, unless it says so."""

LOCAL = MrFlag.ALLOW_LOCAL_WRITE
REMOTE = MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
UNSERVED = "192.0.2.1"
"""A documentation address: no host has it, so no adapter serves it."""

FILL = 0xA5
"""What fresh memory holds, so that a byte that was not moved differs from a zero."""


# A sleeping thread polls each second even if nothing woke it, so that a lost wake-up would
# pass for a slow one. Not here: it sleeps until the wait of the test is over.
set_longest_sleep(3600.0)
set_longest_at_word(3600.0)
for _module in (shmnd.runtime.pending, shmnd.runtime.progress, shmnd.runtime.request_progress):
    assert hasattr(_module, "LONGEST_SLEEP")
    setattr(_module, "LONGEST_SLEEP", 3600.0)  # noqa: B010 - it is Final


class Late(AssertionError):
    """Something that had to happen did not happen in time."""


class Completion(NamedTuple):
    """The fields of a Result, as plain data."""

    status: Status
    bytes_transferred: int
    queue_pair_context: Any
    request_context: Any
    request_type: RequestType

    @classmethod
    def of(cls, result: Any) -> "Completion":
        return cls(*(getattr(result, name) for name in cls._fields))


def statuses(completions: list[Completion]) -> list[Status]:
    return [Status(completion.status) for completion in completions]


def contexts(completions: list[Completion]) -> list[Any]:
    return [completion.request_context for completion in completions]


def succeeded(completions: list[Completion], nbytes: int = 0) -> list[Any]:
    """The contexts of requests that all succeeded; each Receive among them has so many bytes."""
    for each in completions:
        assert each.status == Status.SUCCESS, each
        received = each.request_type is RequestType.RECEIVE
        assert each.bytes_transferred == (nbytes if received else 0), each
    return contexts(completions)


@contextlib.contextmanager
def nd_error(status: Status, match: str | None = None) -> Iterator[Any]:
    """The block raises NdError with exactly this status (and a message that matches)."""
    with pytest.raises(NdError, match=match) as caught:
        yield caught
    assert caught.value.status == status, f"{caught.value.status!r}: {caught.value}"


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Status:
    """The status that a call ends with, whether it shows at once or through its Overlapped."""
    try:
        overlapped = call(*args, **options)
        if overlapped is not None:
            overlapped.result(timeout=WAIT)
    except NdError as error:
        return Status(error.status)
    return Status.SUCCESS


def final(overlapped: Any) -> Status:
    """The final status of a pending operation."""
    return outcome(lambda: overlapped)


def wait_completion(cq: Any, count: int = 1, timeout: float = WAIT) -> list[Completion]:
    """Take exactly `count` completions from a queue that no other thread polls."""
    deadline = time.monotonic() + timeout
    taken: list[Completion] = []
    while len(taken) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late(f"{len(taken)} of {count} completions after {timeout} s: {taken}")
        taken += map(Completion.of, cq.wait(max=count - len(taken), timeout=left))
    return taken


def wait_until(condition: Callable[[], bool], what: str, timeout: float = WAIT) -> None:
    """Poll repeatedly, for states that nothing announces."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Late(f"not within {timeout} s: {what}")
        time.sleep(0)


class Buffer:
    """Registered memory of one end."""

    def __init__(
        self, adapter: Any, nbytes: int, flags: int, *, private: bool = False, peers: str = "write"
    ) -> None:
        self.memory: Any = bytearray(nbytes) if private else adapter.allocate(nbytes, peers=peers)
        self.view = memoryview(self.memory).cast("B")
        self.view[:] = bytes([FILL]) * nbytes
        self.mr = adapter.create_memory_region()
        self.mr.register(self.memory, flags).result(timeout=WAIT)

    def register(self, flags: int) -> None:
        """Register the memory again, after it was deregistered."""
        self.mr.register(self.memory, flags).result(timeout=WAIT)

    @property
    def address(self) -> int:
        return int(self.mr.address)

    @property
    def length(self) -> int:
        return int(self.mr.length)

    @property
    def local_token(self) -> int:
        return int(self.mr.local_token)

    @property
    def remote_token(self) -> int:
        return int(self.mr.remote_token)

    def sge(self, offset: int = 0, length: int | None = None) -> Any:
        return self.mr.sge(offset, length)

    def raw_sge(self, offset: int, length: int, token: int | None = None) -> Any:
        """An unchecked entry: any address, length and token."""
        return shmnd.Sge(
            self.address + offset, length, self.local_token if token is None else token
        )

    def put(self, data: bytes, offset: int = 0) -> None:
        self.view[offset : offset + len(data)] = data

    def get(self, length: int | None = None, offset: int = 0) -> bytes:
        end = len(self.view) if length is None else offset + length
        return bytes(self.view[offset:end])

    def spin_until(self, offset: int, value: int, timeout: float = WAIT) -> bytes:
        """Watch a byte and make no call of the library meanwhile; all bytes as they are then."""
        deadline = time.monotonic() + timeout
        while self.view[offset] != value:
            if time.monotonic() > deadline:
                raise Late(f"byte {offset} is {self.view[offset]:#x}, not {value:#x}")
        return self.get()


class Side:
    """Named signals between the two ends, for tests that run both at the same time."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.seen: list[str] = []

    @classmethod
    def both(cls) -> tuple["Side", "Side"]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def signal(self, name: str) -> None:
        self.channel.send(name.encode())

    def await_signal(self, name: str, timeout: float = 2 * WAIT) -> None:
        deadline = time.monotonic() + timeout
        while name not in self.seen:
            self.channel.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                message = self.channel.recv(256)
            except TimeoutError:
                raise Late(f"the other end never signalled {name!r}, only {self.seen}") from None
            if not message:
                raise Late(f"the other end is gone and never signalled {name!r}")
            self.seen.append(message.decode())
        self.seen.remove(name)

    def drain(self) -> None:
        self.seen.clear()
        self.channel.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.channel.recv(256):
                pass

    def dispose(self) -> None:
        self.channel.close()


@dataclasses.dataclass(frozen=True)
class Options:
    """What an End is made of."""

    host: str = "127.0.0.1"
    depth: int = 64
    sge: int = 4
    inline: int = 0
    cq_depth: int = 256
    srq: bool = False
    srq_depth: int = 64
    srq_threshold: int = 0
    separate_cqs: bool = False
    context: Any = None
    rnr_timeout: float | None = 60.0
    """Longer than any machine stalls; None for the default of the library."""


class End:
    """One side of a connection: an adapter and one object of each kind, made when first used."""

    def __init__(self, options: Options, side: Side | None = None) -> None:
        self.options = options
        self.side = side
        self.completions: list[Completion] = []
        self.kept: list[Any] = []
        limit = {} if options.rnr_timeout is None else {"rnr_timeout": options.rnr_timeout}
        self.adapter: Any = shmnd.open_adapter(options.host, **limit)

    @property
    def host(self) -> str:
        return self.options.host

    @functools.cached_property
    def info(self) -> Any:
        return self.adapter.query()

    @functools.cached_property
    def file(self) -> Any:
        return self.adapter.create_overlapped_file()

    @functools.cached_property
    def cq(self) -> Any:
        return self._make_cq()

    @functools.cached_property
    def receive_cq(self) -> Any:
        return self._make_cq() if self.options.separate_cqs else self.cq

    @functools.cached_property
    def srq(self) -> Any:
        return self.adapter.create_shared_receive_queue(
            self.options.srq_depth,
            self.options.sge,
            self.options.srq_threshold,
            overlapped_file=self.file,
        )

    @functools.cached_property
    def qp(self) -> Any:
        return self._make_qp()

    @functools.cached_property
    def connector(self) -> Any:
        return self._make_connector()

    @functools.cached_property
    def listener(self) -> Any:
        return self.adapter.create_listener(overlapped_file=self.file)

    # More of a kind. They are kept until the test is over, as a program would keep them: the end
    # of life of an object ends what it does.

    def new_cq(self, depth: int | None = None) -> Any:
        return self._keep(self._make_cq(depth))

    def new_connector(self) -> Any:
        return self._keep(self._make_connector())

    def new_qp(self, **changes: Any) -> Any:
        """A queue pair as the options want it, changed here and there."""
        return self._keep(self._make_qp(**changes))

    @property
    def self(self) -> "End":
        return self

    def new_deepest_qp(self, srq: bool) -> None:
        """A queue pair at the advertised maxima, and its end."""
        info = self.info
        limits = {
            "initiator_depth": info.max_initiator_queue_depth,
            "max_initiator_sge": info.max_initiator_sge,
            "inline_size": info.max_inline_data_size,
        }
        if srq:
            self.adapter.create_queue_pair_with_srq(self.cq, self.cq, self.srq, **limits).close()
        else:
            limits |= {
                "receive_depth": info.max_receive_queue_depth,
                "max_receive_sge": info.max_receive_sge,
            }
            self.adapter.create_queue_pair(self.cq, self.cq, **limits).close()

    def _keep(self, made: Any) -> Any:
        self.kept.append(made)
        return made

    def _make_cq(self, depth: int | None = None) -> Any:
        return self.adapter.create_completion_queue(
            depth or self.options.cq_depth, overlapped_file=self.file
        )

    def _make_connector(self) -> Any:
        return self.adapter.create_connector(overlapped_file=self.file)

    def _make_qp(self, **changes: Any) -> Any:
        options = self.options
        receive_cq = changes.pop("receive_cq") if "receive_cq" in changes else self.receive_cq
        initiator_cq = changes.pop("initiator_cq") if "initiator_cq" in changes else self.cq
        wanted: dict[str, Any] = {
            "context": options.context,
            "initiator_depth": options.depth,
            "max_initiator_sge": options.sge,
            "inline_size": options.inline,
        }
        if options.srq:
            return self.adapter.create_queue_pair_with_srq(
                receive_cq, initiator_cq, self.srq, **(wanted | changes)
            )
        wanted |= {"receive_depth": options.depth, "max_receive_sge": options.sge}
        return self.adapter.create_queue_pair(receive_cq, initiator_cq, **(wanted | changes))

    def memory(
        self, nbytes: int, flags: int = LOCAL, *, private: bool = False, peers: str = "write"
    ) -> Buffer:
        made = Buffer(self.adapter, nbytes, flags, private=private, peers=peers)
        buffer: Buffer = self._keep(made)
        return buffer

    def garbage_sge(self, length: int = 1) -> Any:
        """An entry with a token that was never given out."""
        return shmnd.Sge(0x1000, length, 0xFFFFFFFE)

    def raw_sge(self, address: int, length: int, token: int) -> Any:
        """An unchecked entry."""
        return shmnd.Sge(address, length, token)

    def listen(self, backlog: int = 0, port: int = 0) -> tuple[str, int]:
        self.listener.bind((self.host, port))
        self.listener.listen(backlog)
        host, port = self.listener.get_local_address()
        return host, port

    def receiver(self) -> Any:
        """What takes Receives: the shared queue or the queue pair itself."""
        return self.srq if self.options.srq else self.qp

    def gather(self, timeout: float = 0.0) -> int:
        """Take what the completion queue has into `completions`, which tests reap from."""
        results = self.cq.wait(timeout=timeout) if timeout else self.cq.get_results()
        self.completions += map(Completion.of, results)
        return len(self.completions)

    def take(self, count: int | None = None) -> list[Completion]:
        count = len(self.completions) if count is None else count
        taken, self.completions = self.completions[:count], self.completions[count:]
        return taken

    def reap(self, count: int = 1, timeout: float = WAIT) -> list[Completion]:
        """Exactly the next `count` completions; the other end makes no call meanwhile."""
        deadline = time.monotonic() + timeout
        while len(self.completions) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late(f"{len(self.completions)} of {count} completions: {self.completions}")
            self.gather(left)
        return self.take(count)

    def leftover(self) -> list[Completion]:
        """Completions that are there now, taken."""
        self.gather()
        return self.take()

    def still_pending(self, overlapped: Any) -> bool:
        """Drive everything once, then tell whether the operation is unfinished."""
        self.file.poll()
        return not overlapped.done() and overlapped.status == Status.PENDING

    def fill_initiator_queue(self) -> int:
        """Post Sends that wait for a Receive until the queue is full; how many fitted."""
        for count in range(1 << 20):
            try:
                self.qp.send(None, context=count)
            except NdError as error:
                if error.status == Status.NO_MORE_ENTRIES:
                    return count
                raise
        raise AssertionError("a million Sends are outstanding and the queue is not full")

    def run(self, role: Callable[..., Any], *args: Any) -> Any:
        """Run one side of a scenario here."""
        return role(self, *args)

    def drop(self, name: str) -> None:
        """Forget an object without closing it: its end of life must do."""
        vars(self).pop(name)

    def forget(self, name: str) -> None:
        """Close an object if there is one; the next use makes another."""
        made = vars(self).pop(name, None)
        if made is not None:
            made.close()

    def signal(self, name: str) -> None:
        assert self.side is not None
        self.side.signal(name)

    def await_signal(self, name: str, timeout: float = 2 * WAIT) -> None:
        assert self.side is not None
        self.side.await_signal(name, timeout)

    def close(self) -> None:
        self.adapter.close()

    def dispose(self) -> None:
        """Close everything and forget it, when the test is over."""
        adapter = vars(self).pop("adapter", None)
        if adapter is not None:
            adapter.close()
        vars(self).clear()


class in_background:  # noqa: N801 - reads as a verb where it is used
    """A call that runs in a thread of its own until it ends."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(call, *args), daemon=True)
        self.thread.start()

    def _run(self, call: Callable[..., Any], *args: Any) -> None:
        try:
            self.value = call(*args)
        except BaseException as error:  # raised again in the waiter
            self.error = error

    def wait(self, timeout: float = 5 * WAIT) -> BaseException | None:
        self.thread.join(timeout)
        return Late("a role did not end") if self.thread.is_alive() else self.error

    def result(self, timeout: float = 5 * WAIT) -> Any:
        error = self.wait(timeout)
        if error is not None:
            raise error
        return self.value


SEND_FLAGS = (
    OpFlag.SILENT_SUCCESS | OpFlag.READ_FENCE | OpFlag.SEND_AND_SOLICIT_EVENT | OpFlag.INLINE
)


def exhaust_ports(end: End) -> set[int]:
    """Bind one connector after the other to port 0 until none is left; the ports that were given.

    Only a connecting or listening object tells its port, so listeners are used.
    """
    ports: set[int] = set()
    for _ in range(1 << 16):
        listener = end.adapter.create_listener()
        try:
            listener.bind((end.host, 0))
        except NdError as error:
            if error.status == Status.TOO_MANY_ADDRESSES:
                return ports
            raise
        listener.listen()
        port = listener.get_local_address()[1]
        assert port not in ports
        ports.add(port)
        end.kept.append(listener)
    raise AssertionError("more ports than there are")
