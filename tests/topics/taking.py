# SPDX-License-Identifier: Apache-2.0
"""What the tests of topics share."""

from shmnd import ipc

PATIENCE = 20.0
"""Seconds: far more than any wait here takes."""


def everything(sub: ipc.Subscriber) -> list[ipc.Sample]:
    """Return all samples that have arrived."""
    return list(iter(sub.try_receive, None))
