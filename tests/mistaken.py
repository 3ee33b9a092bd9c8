# SPDX-License-Identifier: Apache-2.0
"""The whole texts of errors, as they stand in a file with a line for each mistake."""

import re
from collections.abc import Callable
from pathlib import Path


def said(mistake: Callable[[], object], varying: dict[str, str]) -> str:
    """Return the text of a mistake. What differs from run to run is replaced, in that order."""
    try:
        mistake()
    except Exception as exc:
        text = f"{type(exc).__name__}: {exc}"
    else:
        text = "(no error)"
    for pattern, plain in varying.items():
        text = re.sub(pattern, plain, text)
    return " ".join(text.split())


def texts_in(path: Path) -> dict[str, str]:
    """Return the texts as they are to be, by the names of the mistakes."""
    return dict(line.split(" | ", 1) for line in path.read_text().splitlines())
