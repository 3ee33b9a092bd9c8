# SPDX-License-Identifier: Apache-2.0
import weakref
from collections.abc import Iterable
from typing import Any

from shmnd.ring.queues.polling import PollingCore

def others_are_idle(
    references: Iterable[weakref.ref[Any]], alone: object, announcing: bool
) -> bool: ...

class SleepingCore(PollingCore): ...
