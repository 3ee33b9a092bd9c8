# SPDX-License-Identifier: Apache-2.0
"""Names on a command line."""

import argparse
import os

from shmnd.ipc.common.limits import checked_name

__all__ = ["topic", "written"]


def written(text: str) -> str:
    """Return a name, or a pattern of names, as it was written.

    Terminals write UTF-8. Where the locale of the command is ASCII (`LC_ALL=POSIX` without the
    UTF-8 mode of Python), Python leaves such bytes undecoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="surrogateescape")
    return text


def topic(text: str) -> str:
    """Return the name of a topic, checked."""
    try:
        return checked_name(written(text), "topic")
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
