# SPDX-License-Identifier: Apache-2.0
"""`shmnd ipc`: topics, services, events and blackboards, listed, printed, recorded and replayed."""

from typing import Final

VERBS: Final = {
    verb: f"shmnd_tools.ipc.{verb}"
    for verb in ("list", "info", "echo", "publish", "rate", "record", "replay", "watch", "link")
}
