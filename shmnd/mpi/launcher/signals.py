# SPDX-License-Identifier: Apache-2.0
"""The signals of a job: how the launcher takes them, and gives them back."""

import atexit
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""End the job. Ctrl-C (SIGINT) does so, too, in two steps."""
PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Are for the program: the ranks get them."""
_ALWAYS: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, Any], None]


class Taken(NamedTuple):
    """Signals that call functions of the job, each with what it did before."""

    before: dict[signal.Signals, Any]

    def give_back(self) -> None:
        """Restore the handlers that the signals had before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def end_at_once(self, code: int) -> None:
        """Have each of them end this process with an exit code, which is on its way out with it.

        The interpreter gives them their defaults back while it ends, but for those ignored.
        """
        for number in self.before:
            signal.signal(number, lambda *_: os._exit(code))
        atexit.register(self._ignore)

    def _ignore(self) -> None:
        for number in self.before:
            signal.signal(number, signal.SIG_IGN)


def take(handlers: Mapping[signal.Signals, Handler]) -> Taken:
    """Let signals call functions; return the handlers that they had before.

    A signal that is ignored, such as a hangup under nohup, stays ignored.
    """
    return Taken(
        {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if number in _ALWAYS or signal.getsignal(number) is not signal.SIG_IGN
        }
    )


def stop_here() -> None:
    """Stop this process until it is continued, as SIGTSTP does that no function takes.

    The kernel does not stop it where no shell could continue it.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)
