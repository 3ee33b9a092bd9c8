# SPDX-License-Identifier: Apache-2.0
"""The floor under every transport that reaches private memory: process_vm_readv of one core.

One pinned process reads its own memory as it would another's: the kernel does the same work. Where
it refuses that between processes, this figure compares with nothing.
"""

import ctypes
import mmap
import os
import time
from typing import Any, ClassVar

from ..measure.question import Question
from ..measure.reading import Reading
from .memcpy import Memcpy, MemcpyEnd


class KernelCopy(Memcpy):
    """One pinned process that copies between private pages by a system call."""

    name: ClassVar[str] = "process_vm_readv"
    end: ClassVar[str] = ".floors.kernel:KernelCopyEnd"
    shared: ClassVar[bool] = False


class _Stretch(ctypes.Structure):
    _fields_: ClassVar = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class KernelCopyEnd(MemcpyEnd):
    """Copies by the call, one for each message."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._read.restype = ctypes.c_ssize_t

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Copy `count` times; return the seconds that the calls took."""
        target, source = (_stretch(area) for area in self.areas(question.size))
        read, pid, one = self._read, os.getpid(), ctypes.c_ulong(1)
        none, to, from_ = ctypes.c_ulong(0), ctypes.byref(target), ctypes.byref(source)
        start = time.perf_counter()
        for _ in range(count):
            copied = read(pid, to, one, from_, one, none)
        seconds = time.perf_counter() - start
        if copied != question.size:
            raise OSError(ctypes.get_errno(), "process_vm_readv")
        return Reading(seconds)


def _stretch(area: mmap.mmap) -> _Stretch:
    return _Stretch(ctypes.addressof(ctypes.c_char.from_buffer(area)), len(area))
