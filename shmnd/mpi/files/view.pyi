# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.datatypes.type_state import TypeState

class View:
    displacement: int
    etype: TypeState
    filetype: TypeState
    datarep: str
    def __init__(
        self,
        displacement: int,
        etype: TypeState | None,
        filetype: TypeState | None,
        datarep: str,
    ) -> None: ...
    def place(self, offset: int, call: str) -> int: ...
    def etypes_before(self, place: int) -> int: ...
