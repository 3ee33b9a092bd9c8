# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.communicators.comm_state import CommState

def next_tag(comm: Any, call: str, root: int = -1) -> int: ...
def to_job(state: CommState, place: int) -> int: ...
def exchange(
    comm: Any,
    context: int,
    tag: int,
    sends: list[tuple[int, bytes]],
    receives: list[int],
) -> list[bytes]: ...
