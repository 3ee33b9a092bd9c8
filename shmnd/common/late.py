# SPDX-License-Identifier: Apache-2.0
"""asyncio, loaded when it is first used.

It takes a third as many instructions to load as all of shmnd, and most processes run no event loop.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio as asyncio
else:

    class _Asyncio:
        """The module, whose names become attributes here as they are used."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module("asyncio"), name)
            setattr(self, name, value)
            return value

    asyncio = _Asyncio()

__all__ = ["asyncio", "running_loop"]


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None. One that runs has loaded asyncio."""
    if "asyncio" not in sys.modules:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
