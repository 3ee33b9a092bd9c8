# SPDX-License-Identifier: Apache-2.0
"""A Bind that fails, or that a signal handler interrupts, leaves nothing bound."""

from pathlib import Path
from typing import Any

import pytest

import shmnd
import shmnd.connector
import shmnd.handshake.port
import shmnd.listener
import shmnd.runtime.broker.exchange
from interrupting import Alarm
from shmnd import NdError, Status
from spi.harness import nd_error
from stepping import stepped

KINDS = ["listener", "connector"]
FILES = {
    str(Path(str(module.__file__)))
    for module in (
        shmnd.connector,
        shmnd.listener,
        shmnd.handshake.port,
        shmnd.runtime.broker.exchange,
    )
}
"""Where an interruption may find a port bound that has no owner yet."""


def made(adapter: shmnd.Adapter, kind: str) -> Any:
    return getattr(adapter, f"create_{kind}")()


def bound_again(obj: Any, address: tuple[str, int]) -> None:
    """Bind what may be bound by now."""
    try:
        obj.bind(address)
    except NdError as exc:
        assert exc.status is Status.ADDRESS_ALREADY_ASSOCIATED, exc


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_port_is_free_again_after_a_bind_that_was_interrupted(kind: str) -> None:
    """The object may bind it once more, and another one when it is closed."""
    address = "127.0.0.1", 5000
    with shmnd.open_adapter() as adapter:
        followed = adapter._engine._objects
        before, at, place = len(followed), 0, "none yet"
        while place:
            obj = made(adapter, kind)
            place = stepped(at, lambda obj=obj: obj.bind(address), FILES.__contains__, Alarm)  # type: ignore[misc]
            bound_again(obj, address)
            assert len(followed) == before + 1, place
            obj.close()
            assert len(followed) == before, place
            with adapter.create_listener() as other:
                other.bind(address)
            at += 1
    assert at > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_bind_that_is_refused_leaves_no_record(kind: str) -> None:
    with shmnd.open_adapter() as adapter, adapter.create_listener() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        obj = made(adapter, kind)
        followed = adapter._engine._objects
        before = len(followed)
        for _ in range(3):
            with nd_error(Status.SHARING_VIOLATION):
                obj.bind(holder.get_local_address())
            with nd_error(Status.INVALID_ADDRESS):
                obj.bind(("10.1.2.3", 1))
            assert len(followed) == before
        obj.bind(("127.0.0.1", 0))
        assert len(followed) == before + 1
        obj.close()
        assert len(followed) == before
