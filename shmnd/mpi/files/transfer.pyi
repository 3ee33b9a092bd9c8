# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.files.view import View
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.point_to_point.status import Status

class Transfer:
    etypes: int
    def __init__(self, buf: Any, view: View, writes: bool, call: str) -> None: ...
    def run(self, descriptor: int, offset: int, atomic: bool) -> int: ...

def fill(status: Status | None, nbytes: int) -> None: ...
def request_of_bytes(nbytes: int) -> Request: ...
