# SPDX-License-Identifier: Apache-2.0
"""`shmnd ipc`: what there is, and samples of topics printed, recorded and replayed."""

from typing import Final

VERBS: Final = {
    verb: f"shmnd_tools.ipc.{verb}"
    for verb in ("list", "info", "echo", "publish", "rate", "record", "replay", "watch", "link")
}
