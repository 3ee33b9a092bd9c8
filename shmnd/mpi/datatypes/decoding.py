# SPDX-License-Identifier: Apache-2.0
"""What a datatype is made of, and its code in Python, as functions of mpi4py return them."""

from __future__ import annotations

from typing import Any

from shmnd.mpi.datatypes.datatype import Datatype


def _datatype_decode(
    datatype: Datatype, mark: bool = False
) -> tuple[Datatype, str, dict[str, Any]]:
    """Return what `Datatype.decode` returns."""
    return datatype.decode()


def _typecode(datatype: Datatype) -> str | None:
    """Return the character code of a datatype, or None."""
    return datatype.typechar if datatype.is_predefined and datatype.typechar else None
