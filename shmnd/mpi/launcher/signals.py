# SPDX-License-Identifier: Apache-2.0
"""The signals of a job: how the launcher takes them, and gives them back."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""End the job. Ctrl-C (SIGINT) does so, too, in two steps."""
PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Are for the program: the ranks get them."""
_ALWAYS: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, Any], None]


def take(handlers: Mapping[signal.Signals, Handler]) -> Callable[[], None]:
    """Have signals call functions; return the way back.

    One that is ignored, such as a hangup under nohup, stays so.
    """
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if number in _ALWAYS or signal.getsignal(number) is not signal.SIG_IGN
    }

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return give_back


def stop_here() -> None:
    """Stop this process until it is continued, as SIGTSTP does that no function takes.

    The kernel does not stop it where no shell could continue it.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)
