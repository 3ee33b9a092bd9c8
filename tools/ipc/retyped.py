# SPDX-License-Identifier: Apache-2.0
"""Topics whose type changes while a command reads them, as of a publisher that was started anew."""

import sys

from shmnd import ipc

from ..output import printable

__all__ = ["next_sample"]


def next_sample(sub: ipc.Subscriber) -> ipc.Sample | None:
    """Return the next sample if there is one; print where the type changes."""
    try:
        return sub.try_receive()
    except ipc.TypeMismatch:
        before = sub.type
        sub.adopt()
    print(
        f"shmnd: the type of {printable(sub.name)} was {printable(repr(before))}, and is "
        f"{printable(repr(sub.type))} from here on",
        file=sys.stderr,
        flush=True,
    )
    return sub.try_receive()
