# SPDX-License-Identifier: Apache-2.0
"""The numbers of kinds of samples, in recordings and on the wire of links."""

from typing import Final

__all__ = ["ARRAY", "ARRAYS", "BYTES", "DESCRIBED", "KINDS", "OBJECT"]

ARRAY: Final = 1
BYTES: Final = 2
OBJECT: Final = 3
DESCRIBED: Final = 4
"""Read and not written: an array that its topic says nothing of."""
ARRAYS: Final = (ARRAY, DESCRIBED)
KINDS: Final = {"array": ARRAY, "bytes": BYTES, "object": OBJECT}
"""The number for the kind that a sample names itself."""
