# SPDX-License-Identifier: Apache-2.0
"""Addresses of memory, and sums and differences of them."""

from typing import Any

from shmnd.mpi.datatypes import packing


def Get_address(location: Any) -> int:
    """Get the address of a location in memory."""
    return packing.address(location)


def Aint_add(base: int, disp: int) -> int:
    """Return the sum of base address and displacement."""
    return base + disp


def Aint_diff(addr1: int, addr2: int) -> int:
    """Return the difference between absolute addresses."""
    return addr1 - addr2
