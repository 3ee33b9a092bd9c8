# SPDX-License-Identifier: Apache-2.0
"""The file that a queue lies in: made, checked, and committed part by part."""

from shmnd.common.owned import Owned

__all__ = ["commit", "make_file"]

def commit(fd: int, at: int, nbytes: int, call: str) -> None:
    """Take the memory now: too little of it is an error here, not a signal later."""

def make_file(slots: int, limited: bool) -> Owned:
    """Make the memory of a queue of so many slots; return its descriptor."""
