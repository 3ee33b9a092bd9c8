# SPDX-License-Identifier: Apache-2.0
from typing import Any, Self, SupportsIndex, overload

import numpy as np
from typing_extensions import Buffer

class SharedArray(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """A numpy array of bytes in shared memory, whose slices take bytes."""

    @overload  # type: ignore[override]
    def __getitem__(self, index: SupportsIndex, /) -> np.uint8: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    @overload
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...  # numpy has it from Python 3.12 on
    def copy(self, order: Any = "C") -> Any: ...

def shared_array(memory: Buffer) -> SharedArray: ...
