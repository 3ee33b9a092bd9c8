# SPDX-License-Identifier: Apache-2.0
"""The memory of a queue: who uses it, and who has which part of it."""

from typing import Self

def make_file(slots: int, limited: bool) -> int:
    """Make the memory of a queue of so many slots; return its descriptor."""

class QueueMemory:
    """This process's part in a queue."""

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
    def reap(self) -> int:
        """Take over what members that died have left; return how many there were."""
    def reap_one(self, number: int) -> bool:
        """Take over what one member left, if it is dead."""
