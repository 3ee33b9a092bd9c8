# SPDX-License-Identifier: Apache-2.0
"""The compiled part of `ipc.Queue`: items go into shared memory and come out of it."""

from collections.abc import Callable, MutableMapping

from shmnd.ipc.queue.queue_items import QueueItems

__all__ = ["QueueCore"]

class QueueCore(QueueItems):
    """A queue as this process uses it."""

    unreadable: Callable[[Exception], Exception] | None
    """What an item that cannot be unpacked raises, called with its exception; None: that itself."""
    def __init__(
        self, fd: int, ring_descriptors: Callable[[list[bytes]], None] | None = None
    ) -> None: ...
    @property
    def slots(self) -> int:
        """How many items the line holds."""
    @property
    def limited(self) -> bool:
        """Whether the program limits how many there are."""
    @property
    def process(self) -> int:
        """The number of this process, for `born`: a child that is forked off has another one."""
    def push(
        self,
        box: list[int],
        wake: bool = True,
        noted: tuple[MutableMapping[int, int], int] | None = None,
        born: int = 0,
    ) -> bool:
        """Append the packed item of a box, and empty it; False when there is no room.

        A caller that is interrupted in it, or behind it, sees by the box whether the item is put.
        Its position is entered in `noted`, a dict and a key. `born` is of the process that put it.
        """
    def put_or_drop(self, obj: object, wake: bool) -> bool:
        """Put an object without waiting; False when there is no room."""
    def passed(self, pos: int) -> bool:
        """Whether the item at a position was taken."""
    def taken(self) -> int:
        """How many items were taken so far."""
    def full(self) -> bool:
        """Whether an item had no room now."""
    def qsize(self) -> int:
        """How many items there are; a guess while others put and get."""
    def empty(self) -> bool:
        """Whether nothing is there to be taken."""
    def keep(self, found: object, born: int = 0) -> None:
        """Keep an item that was taken for an interrupted caller: the next get returns it.

        `born` is of the process that took it: a child that was forked meanwhile keeps nothing.
        """
    def wait_for_room(self, timeout_ns: int) -> bool:
        """Wait until an item may have room; False when none came in time."""
    def wake(self) -> None:
        """Have the threads that sleep here for items and for room check again.

        It is for objects that were closed before. Other processes check again, too.
        """
    def end_stream(self, number: int) -> None:
        """Note that this process reads no more answers to a request, and wake their server."""
    def end_streams(self) -> None:
        """Note that this process reads no more answers at all, and wake the servers."""
    def arm_descriptor(self, address: bytes, what: int = 0) -> bool:
        """Be rung at an address for an item (0), room (1) or the last item done (2); return whether
        that is there now.
        """
    def disarm_descriptor(self) -> None:
        """Be rung no more."""
    def addresses(self) -> list[bytes]:
        """Where members want to be rung."""
    def unfinished(self) -> int:
        """How many items were put and not reported as done, nor taken by a process that died."""
    def task_done(self) -> bool:
        """Report an item as done; False when there is none to report."""
    def join(self, timeout_ns: int) -> bool:
        """Wait until no item is unfinished; False when the time ends first."""
    def set_behind(self, items: int) -> None:
        """Publish how many items this process keeps until there is room."""
