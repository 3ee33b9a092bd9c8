# SPDX-License-Identifier: Apache-2.0
"""Pools with the interface of multiprocessing: the tasks of a call, when its result is there."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from shmnd.mpi.util.pool import AsyncResult, ThreadPool

WORKERS = 2
ITEMS = 20

ARGUMENTS = [(item,) for item in range(ITEMS)]

CALLS: dict[str, Callable[..., list[int]]] = {
    "map": lambda pool, **given: pool.map(abs, range(ITEMS), **given),
    "map_async": lambda pool, **given: pool.map_async(abs, range(ITEMS), **given).get(60),
    "starmap": lambda pool, **given: pool.starmap(abs, ARGUMENTS, **given),
    "starmap_async": lambda pool, **given: pool.starmap_async(abs, ARGUMENTS, **given).get(60),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("chunksize", "tasks"), [(None, 7), (1, 20), (5, 4), (6, 4), (99, 1)])
def test_items_go_in_chunks(
    call: str, chunksize: int | None, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a size, the chunks are such that each worker has up to four: 3 items, 7 chunks."""
    pool = ThreadPool(WORKERS)
    begun: list[Any] = []
    submit = pool.executor.submit

    def counted(*given: Any) -> Any:
        begun.append(given)
        return submit(*given)

    monkeypatch.setattr(pool.executor, "submit", counted)
    given = {} if chunksize is None else {"chunksize": chunksize}
    assert CALLS[call](pool, **given) == list(range(ITEMS))
    assert len(begun) == tasks
    pool.close()
    pool.join()


@pytest.mark.parametrize("call", CALLS)
def test_a_chunk_of_no_items_is_refused(call: str) -> None:
    pool = ThreadPool(WORKERS)
    with pytest.raises(ValueError, match="chunksize=0: expected 1 or more"):
        CALLS[call](pool, chunksize=0)
    pool.close()
    pool.join()


@pytest.mark.parametrize("fails", [False, True])
def test_a_result_is_there_when_its_callback_has_returned(fails: bool) -> None:
    """As in multiprocessing: programs read what the callback has kept."""
    future: Future[int] = Future()
    kept: list[object] = []

    def keep(value: object) -> None:
        assert not result.ready()
        with pytest.raises(ValueError, match="has not completed"):
            result.successful()
        with pytest.raises(TimeoutError):
            result.get(0)
        kept.append(value)

    result = AsyncResult(future, keep, keep)
    if fails:
        future.set_exception(error := LookupError("none"))
        assert kept == [error]
    else:
        future.set_result(5)
        assert kept == [5]
    result.wait(0)
    assert result.ready()
    assert result.successful() == (not fails)


def test_a_task_that_never_began_is_an_error_for_its_callback() -> None:
    future: Future[int] = Future()
    errors: list[BaseException] = []
    result = AsyncResult(future, None, errors.append)
    future.cancel()
    assert [type(error) for error in errors] == [TimeoutError]
    assert not result.successful()
    with pytest.raises(TimeoutError, match="terminated before the task began"):
        result.get()


@pytest.mark.parametrize("first", ["fails", "succeeds"])
def test_a_map_raises_the_first_error_in_order(first: str) -> None:
    """Also where the one of a later item is there earlier."""
    later = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            later.wait(60)
        if item == 0 and first == "succeeds":
            return item
        raise LookupError(item)

    pool = ThreadPool(WORKERS)
    result = pool.map_async(work, range(ITEMS), 1)
    following = pool.apply_async(later.set)  # begins behind the errors of all later items
    following.get(60)
    expected = "0" if first == "fails" else "1"
    with pytest.raises(LookupError, match=f"^{expected}$"):
        result.get(60)
    pool.close()
    pool.join()


def test_the_items_behind_an_error_do_not_begin() -> None:
    submitted = threading.Event()
    begun: list[int] = []

    def work(item: int) -> int:
        submitted.wait(60)
        begun.append(item)
        raise LookupError(item)

    pool = ThreadPool(1)
    result = pool.map_async(work, range(ITEMS), 1)
    submitted.set()
    with pytest.raises(LookupError, match=r"^0$"):
        result.get(60)
    pool.close()
    pool.join()
    assert begun == [0]


def test_a_map_of_many_items_has_their_results_in_order() -> None:
    pool = ThreadPool(WORKERS)
    assert pool.map_async(abs, range(5000), 1).get(60) == list(range(5000))
    assert pool.map_async(abs, []).get(60) == []
    pool.close()
    pool.join()
