# SPDX-License-Identifier: Apache-2.0
from typing import Final

STATE_NAMES: Final[tuple[str, ...]]
