# SPDX-License-Identifier: Apache-2.0
"""The signals that end a job: how the launcher takes them, and gives them back."""

import signal
from collections.abc import Callable
from typing import Any


def take(
    interrupted: Callable[[int, Any], None], ended: Callable[[int, Any], None]
) -> Callable[[], None]:
    """Have Ctrl-C call one function, and SIGTERM and a hangup the other; return the way back.

    A hangup that is ignored, as under nohup, stays so.
    """
    before = {signal.SIGINT: signal.signal(signal.SIGINT, interrupted)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, ended)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, ended)

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return give_back
