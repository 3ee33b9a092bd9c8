# SPDX-License-Identifier: Apache-2.0
"""Who uses a queue: a member is a process, and its page says what it takes and holds."""

from typing import Self

class QueueMembers:
    """This process's membership of a queue."""

    def __new__(cls, fd: int, *args: object) -> Self: ...
    @property
    def fd(self) -> int:
        """The descriptor of the memory."""
    @property
    def me(self) -> int:
        """Which member this process is."""
    def keep_open(self, fd: int) -> None:
        """Keep another descriptor of the file: to close one would end the locks of all."""
    def lives(self, number: int) -> bool:
        """Whether a member lives."""
    def pids(self) -> set[int]:
        """The processes of the other members; 0 for one that this process cannot name."""
    def lives_as(self, number: int, pid: int) -> bool:
        """Whether a process still is this member."""
    def taker(self, pos: int) -> int:
        """The member whose last item was the one at a position; -1 when each took others since."""
    def announce(self) -> None:
        """Ring those that sleep: they watch this process from now on."""
    def reap(self) -> int:
        """Take over what members that died have left; return how many there were."""
    def reap_one(self, number: int) -> bool:
        """Take over what one member left, if it is dead."""
    def reaped(self) -> None:
        """Wake the waiters for what a dead member had: they may have polled before."""
    def inherit(self, number: int) -> None:
        """Take the memory of a dead member, whose lock is held; those that know its parts do."""
    def forget_stream(self, number: int) -> None:
        """Note that the number of a stream that was ended may be used again."""
    def stream_ended(self, member: int, number: int) -> bool:
        """Whether a member has ended the stream of a request."""
