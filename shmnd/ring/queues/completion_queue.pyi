# SPDX-License-Identifier: Apache-2.0
import weakref
from collections.abc import Iterable
from typing import Any

from shmnd.ring.queues.polling import PollingCore, Result

def others_are_idle(
    references: Iterable[weakref.ref[Any]], alone: object, announcing: bool
) -> bool: ...

class CompletionCore(PollingCore):
    def get_results(self, max: int = 64) -> list[Result]: ...
    def wait(self, max: int = 64, timeout: float | None = None) -> list[Result]: ...
    def wait_one(self, timeout: float | None = None) -> Result: ...
