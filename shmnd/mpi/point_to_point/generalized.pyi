# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from shmnd.mpi.point_to_point.request import Request

class Grequest(Request):
    @classmethod
    def Start(
        cls,
        query_fn: Callable[..., None] | None = None,
        free_fn: Callable[..., None] | None = None,
        cancel_fn: Callable[..., None] | None = None,
        args: tuple[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Grequest: ...
    def Free(self) -> None: ...
    def Complete(self) -> None: ...
    def complete(self, obj: Any = None) -> None: ...

def watched(
    test: Callable[[], bool], then: Callable[[], Any], call: str, title: str
) -> Request: ...
