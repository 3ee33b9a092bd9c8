# SPDX-License-Identifier: Apache-2.0
"""Every ordering that the headers name has a model here."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def labels(folder: str, pattern: str) -> set[str]:
    texts = (path.read_text() for path in (ROOT / folder).rglob(pattern))
    return {label for text in texts for label in re.findall(r"SYNC ([a-z]+(?:-[a-z]+)*)", text)}


def test_every_label_has_its_model() -> None:
    named = labels("shmnd/ring", "*.h") | labels("shmnd/mpi", "*.h")
    assert len(named) > 10
    assert named - labels("tests/model", "test_*.py") == set()
