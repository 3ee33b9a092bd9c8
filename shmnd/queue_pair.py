# SPDX-License-Identifier: Apache-2.0
"""The queue pair: compiled as a whole, since every call on it is on the path of a message."""

from shmnd.ring import QueuePair

__all__ = ["QueuePair"]
