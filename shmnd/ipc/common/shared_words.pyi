# SPDX-License-Identifier: Apache-2.0
"""Words, cells, signals and gates in shared memory: what events and blackboards are made of."""

from typing import Any, Final

__all__ = ["LONG", "SIGNALS", "Words", "cell_bytes"]

LONG: Final[int]
SIGNALS: Final[int]

def cell_bytes(nbytes: int) -> int:
    """Return the bytes of a cell for a value of so many bytes."""

class Words:
    """Mapped memory."""

    def __new__(cls, memory: Any, writable: bool = True) -> Words: ...
    @property
    def writable(self) -> bool:
        """Whether this process may write it."""
    def __len__(self) -> int: ...
    def load(self, offset: int) -> int:
        """Return a word, and see all that was written before it."""
    def store(self, offset: int, value: int) -> None:
        """Write a word behind all that was written before."""
    def set_bits(self, offset: int, bits: int) -> None:
        """Set bits of a word that other processes set too."""
    def bits(self, offset: int, words: int) -> list[int]: ...
    def joined(self) -> None:
        """Publish all earlier stores before the addresses of sleepers are loaded."""
    def copy(self, offset: int, nbytes: int) -> bytes:
        """Return a private copy of some bytes."""
    def write(self, offset: int, data: bytes) -> None:
        """Write bytes that no other process reads yet."""
    def write_cell(self, offset: int, value: Any) -> int:
        """Write the next version of a value; return its number."""
    def read_cell(self, offset: int, value: Any, longest: float = 1.0) -> int:
        """Copy the newest version of a value; return its number, 0 for none.

        -1 where it was written anew during each of many readings, or for `longest` seconds.
        """
    def cell_version(self, offset: int) -> int:
        """Return the number of the newest version; 0 for none."""
    def signal_each(self, offsets: list[int], number: int) -> None:
        """Signal a number at each of these, to all of them; the list is empty then."""
    def signalled(self, offset: int) -> bool:
        """Whether there is a number to take."""
    def take_signals(self, offset: int, found: set[int]) -> None:
        """Take all numbers that were signalled into a set."""
    def clear(self, offset: int, nbytes: int) -> None:
        """Set bytes to zero that no other process uses."""
    def arm(self, offset: int, descriptor: bool = False) -> int:
        """Arm a gate; return its word. The caller polls once more before it sleeps."""
    def sleep(self, offset: int, word: int, seconds: float) -> None:
        """Sleep at an armed gate until it opens, and at most a tenth of a second."""
    def open(self, offset: int) -> int:
        """After a change: wake all sleepers of a gate; not 0 when descriptors are to be rung."""
    def rung(self, offset: int, word: int) -> None:
        """After the descriptors were rung."""
