# SPDX-License-Identifier: Apache-2.0
"""Bind and Invalidate run code of Python between their checks and their post. Another thread may
come in between; here its calls are made there.
"""

from collections.abc import Callable
from typing import Any

import pytest

from shmnd import OpFlag, Status
from shmnd.memory_window import MemoryWindow
from spi.harness import End, final, nd_error, statuses
from spi.pair import Pair

pytestmark = pytest.mark.active_end_here

DEPTH = 3


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], None]:
    """Have a function called once within the next Bind or Invalidate."""

    def arrange(method: str, call: Callable[[], Any]) -> None:
        original = getattr(MemoryWindow, method)

        def patched(self: MemoryWindow, *args: Any) -> Any:
            monkeypatch.setattr(MemoryWindow, method, original)
            call()
            return original(self, *args)

        monkeypatch.setattr(MemoryWindow, method, patched)

    return arrange


def bind(end: End, buffer: Any, window: Any) -> None:
    end.qp.bind(buffer.mr, window, buffer.address, 16, window, flags=OpFlag.ALLOW_READ)


def fill(end: End) -> list[str]:
    """Post Sends that find no receive, until the queue is full."""
    posted = []
    with nd_error(Status.NO_MORE_ENTRIES):
        while len(posted) <= 2 * DEPTH:
            end.qp.send(None, f"send {len(posted)}")
            posted.append(f"send {len(posted)}")
    return posted


@pytest.mark.parametrize("method", ["_bind", "_invalidate"])
def test_no_more_entries_are_used_than_there_are(
    make_pair: Callable[..., Pair], meanwhile: Any, method: str
) -> None:
    """One thread binds or invalidates, and another one fills the queue."""
    pair = make_pair(depth=DEPTH)
    pair.connect()
    end = pair.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    end.kept.append(window)
    posted: list[str] = []
    if method == "_invalidate":
        bind(end, buffer, window)
        assert statuses(end.reap()) == [Status.SUCCESS]
    meanwhile(method, lambda: posted.extend(fill(end)))
    if method == "_bind":
        bind(end, buffer, window)
    else:
        end.qp.invalidate(window, window)
    assert len(posted) == DEPTH - 1
    with nd_error(Status.NO_MORE_ENTRIES):
        end.qp.send(None, "one too many")
    for _ in posted:
        pair.passive.qp.receive(None)
    came = [result.request_context for result in pair.reap(end, DEPTH)]
    assert came == ["send 0", "send 1", window]


@pytest.mark.parametrize("method", ["_bind", "_invalidate"])
def test_a_call_that_fails_leaves_its_entry_free(
    make_pair: Callable[..., Pair], meanwhile: Any, method: str
) -> None:
    pair = make_pair(depth=1)
    pair.connect()
    end = pair.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    end.kept.append(window)

    def fail() -> None:
        raise MemoryError

    meanwhile(method, fail)
    with pytest.raises(MemoryError):
        bind(end, buffer, window) if method == "_bind" else end.qp.invalidate(window)
    bind(end, buffer, window)
    assert statuses(end.reap()) == [Status.SUCCESS]


@pytest.mark.parametrize("method", ["_bind", "_invalidate"])
def test_a_queue_pair_that_is_closed_meanwhile_takes_no_request(
    connected: Pair, meanwhile: Any, method: str
) -> None:
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    end.kept.append(window)
    if method == "_invalidate":
        bind(end, buffer, window)
        assert statuses(end.reap()) == [Status.SUCCESS]
    meanwhile(method, end.qp.close)
    with nd_error(Status.CONNECTION_INVALID, match=method[1:]):
        bind(end, buffer, window) if method == "_bind" else end.qp.invalidate(window)
    assert end.leftover() == []
    assert final(buffer.mr.deregister()) == Status.SUCCESS, "the window is not bound"


def test_the_second_of_two_threads_finds_the_window_bound(connected: Pair, meanwhile: Any) -> None:
    """Both are within their call; the first has the window."""
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    end.kept.append(window)
    meanwhile("_bind_now", lambda: bind(end, buffer, window))
    bind(end, buffer, window)
    assert statuses(end.reap(2)) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]


def test_a_window_that_is_closed_within_its_bind_grants_nothing(
    connected: Pair, meanwhile: Any
) -> None:
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    end.kept.append(window)
    meanwhile("_bind_now", window.close)
    bind(end, buffer, window)
    end.reap()
    assert not window._is_bound()
    assert final(buffer.mr.deregister()) == Status.SUCCESS


def test_a_window_that_is_being_closed_is_not_bound(
    connected: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread binds it when the close has withdrawn its token."""
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    bind(end, buffer, window)
    drop = window._drop

    def drop_and_bind() -> int:
        token: int = drop()
        monkeypatch.undo()
        with nd_error(Status.INVALID_PARAMETER_3, match="the window is closed"):
            bind(end, buffer, window)
        return token

    monkeypatch.setattr(window, "_drop", drop_and_bind)
    window.close()
    assert statuses(end.reap()) == [Status.SUCCESS]
    assert final(buffer.mr.deregister()) == Status.SUCCESS


class Order:
    """A registry that notes which tokens are withdrawn, settled and released, and in which order;
    something is done when the first one is withdrawn.
    """

    def __init__(self, registry: Any, meanwhile: Callable[[], Any]) -> None:
        self.registry, self.meanwhile = registry, meanwhile
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.registry, name)

    def withdraw(self, token: int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.calls.append(("withdraw", token))
        self.registry.withdraw(token)

    def settled(self, token: int) -> bool:
        self.calls.append(("settled", token))
        return bool(self.registry.settled(token))

    def release(self, token: int) -> None:
        self.calls.append(("release", token))
        self.registry.release(token)


@pytest.mark.parametrize("unbound", ["many windows", "one while its memory is deregistered"])
def test_memory_is_released_after_no_copy_by_a_window_can_begin(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, unbound: str
) -> None:
    """A copy that begins after one has been looked for is not waited for."""
    end = make_pair().connect().active
    buffer = end.memory(64)
    many = unbound == "many windows"
    windows = [end.adapter.create_memory_window() for _ in range(70 if many else 1)]
    for window in windows:
        bind(end, buffer, window)
        assert statuses(end.reap()) == [Status.SUCCESS]
    tokens = [window.remote_token for window in windows]
    region = buffer.mr.local_token
    order = Order(end.adapter._registry, (lambda: None) if many else buffer.mr.close)
    monkeypatch.setattr(end.adapter, "_registry", order)
    for window in windows:
        window.close()
    buffer.mr.close()
    for token in tokens:
        withdrawn = order.calls.index(("withdraw", token))
        assert ("settled", token) not in order.calls[:withdrawn]
        assert withdrawn < order.calls.index(("release", region))


class _Registry:
    """A registry in which another thread acts once a window was bound."""

    def __init__(self, registry: Any, act: Callable[[], Any]) -> None:
        self._registry, self._act = registry, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def bind(self, *args: Any) -> int:
        token: int = self._registry.bind(*args)
        self._act()
        return token


@pytest.mark.parametrize("act", ["deregisters", "closes"])
def test_a_window_does_not_outlive_an_end_by_another_thread_within_its_bind(
    connected: Pair, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    ends = buffer.mr.deregister if act == "deregisters" else window.close
    monkeypatch.setattr(end.adapter, "_registry", _Registry(end.adapter._registry, ends))
    bind(end, buffer, window)
    assert "bound to" not in repr(window)
    assert not end.adapter._registry.is_bound(window.remote_token)
    assert statuses(end.reap()) == [Status.SUCCESS]


class _Copied(_Registry):
    """The same, of memory that a peer copies meanwhile: its deregistration waits for that."""

    copied = True

    def settled(self, token: int) -> bool:
        return not self.copied and bool(self._registry.settled(token))


def test_a_window_is_not_bound_to_memory_whose_deregistration_waits_for_a_copy(
    connected: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = connected.active
    buffer, window = end.memory(64), end.adapter.create_memory_window()
    ended: list[Any] = []
    copied = _Copied(end.adapter._registry, lambda: ended.append(buffer.mr.deregister()))
    monkeypatch.setattr(end.adapter, "_registry", copied)
    bind(end, buffer, window)
    assert not ended[0].done()
    assert "bound to" not in repr(window)
    assert not end.adapter._registry.is_bound(window.remote_token)
    copied.copied = False
    assert final(ended[0]) == Status.SUCCESS
    assert statuses(end.reap()) == [Status.SUCCESS]
