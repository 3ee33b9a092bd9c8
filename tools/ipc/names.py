# SPDX-License-Identifier: Apache-2.0
"""Names of topics on a command line."""

import argparse

from shmnd.ipc.common.limits import name_of

__all__ = ["topic"]


def topic(text: str) -> str:
    """Read the name of a topic."""
    try:
        return name_of(text, "topic")
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
