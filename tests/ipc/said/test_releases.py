# SPDX-License-Identifier: Apache-2.0
"""Memory of another release of shmnd is refused, by words that name the cause."""

import hashlib
import os
import re
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

from shmnd import NdError, ipc

IPC: Final = Path(ipc.__file__).parent
LAYOUTS: Final = {
    "queue/queue_layout.h": ("SHMND_QUEUE_MAGIC 0x32657565757173ull", "471fd2401fad"),
    "topic/board/board.h": ("SHMND_BOARD_VERSION 4u", "29f821b292ee"),
}
"""The version of each layout, and a digest of its structs."""
_OPEN = """
import sys
from shmnd import NdError, ipc
try:
    ipc.Queue(name=sys.argv[1])
except NdError as exc:
    print(exc)
"""


@pytest.mark.parametrize("header", LAYOUTS)
def test_another_layout_has_another_version(header: str) -> None:
    """Change the version and the digest here together with the structs."""
    text = (IPC / header).read_text()
    version, digest = LAYOUTS[header]
    assert f"#define {version}" in text
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    structs = re.findall(r"^(?:struct \w+|enum \w*) ?\{.*?\};", plain, re.DOTALL | re.MULTILINE)
    assert len(structs) > 3
    words = " ".join(" ".join(structs).split())
    assert hashlib.blake2b(words.encode(), digest_size=6).hexdigest() == digest


def test_a_queue_of_another_release_is_refused() -> None:
    name = f"queue-{uuid.uuid4().hex}"
    with ipc.Queue(name=name) as queue:
        os.pwrite(queue._core.fd, b"squeue1", 0)
        ran = subprocess.run(
            [sys.executable, "-c", _OPEN, name], capture_output=True, text=True, timeout=60,
            check=True,
        )  # fmt: skip
        assert "made by another release of shmnd; run the same one" in ran.stdout
        os.pwrite(queue._core.fd, struct.pack("Q", 5), 0)
        ran = subprocess.run(
            [sys.executable, "-c", _OPEN, name], capture_output=True, text=True, timeout=60,
            check=True,
        )  # fmt: skip
        assert "was not made as a queue" in ran.stdout


def test_a_blackboard_of_another_release_is_refused() -> None:
    name = f"board-{uuid.uuid4().hex}"
    with ipc.Blackboard(name, {"a": "u1"}) as board:
        memoryview(board._map)[:8] = struct.pack("Q", 7)
        with (
            pytest.raises(NdError, match="made by another release of shmnd; run the same one"),
            ipc.BlackboardReader(name) as reader,
        ):
            reader.keys()
