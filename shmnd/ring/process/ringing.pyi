# SPDX-License-Identifier: Apache-2.0
from typing import Any

class RingsCore:
    _doorbells: dict[int, Any]
    def ready(
        self, found: list[tuple[int, int]] | None = None, woken: bool = False
    ) -> tuple[bool, list[int]]: ...
