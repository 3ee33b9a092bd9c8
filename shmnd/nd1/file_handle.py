# SPDX-License-Identifier: Apache-2.0
"""The file handle of an adapter, which delivers every operation that was started on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.common.closing import Closing, made_by
from shmnd.status import Status, error

if TYPE_CHECKING:
    from shmnd.overlapped import Overlapped, OverlappedFile

__all__ = ["FileHandle"]


@made_by("Adapter.get_file_handle")
class FileHandle(Closing):
    """A handle of the adapter's one overlapped file. Closing it affects no other handle."""

    def __init__(self, file: OverlappedFile) -> None:
        self._file: OverlappedFile | None = file

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be something to `poll`."""
        return self._open("FileHandle.fileno").fileno()

    def poll(self, max: int | None = None) -> list[Overlapped]:
        """Return the operations that completed since the last call on any handle. Never waits."""
        return self._open("FileHandle.poll").poll(max)

    def __repr__(self) -> str:
        return f"<FileHandle {'closed' if self._file is None else f'to {self._file!r}'}>"

    def _open(self, call: str) -> OverlappedFile:
        if self._file is None:
            raise error(
                Status.INVALID_HANDLE, call, "the handle is closed; get_file_handle makes a new one"
            )
        return self._file

    def close(self) -> None:
        """Use it no longer. The adapter's file and other handles stay."""
        self._file = None
