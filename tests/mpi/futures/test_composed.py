# SPDX-License-Identifier: Apache-2.0
"""Futures that end when others have, pools whose initializer fails, and ranks that work."""

import concurrent.futures as cf
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi.futures import (
    MPICommExecutor,
    MPIPoolExecutor,
    ThreadPoolExecutor,
    collect,
    compose,
)
from shmnd.mpi.futures.aplus import ThenableFuture


class Special(Future[Any]):
    """A future of a type of its own."""


def several() -> list[Future[Any]]:
    return [Special() for _ in range(3)]


def test_a_collection_of_which_one_fails_and_a_later_one_succeeds_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = several()
    for each in given:
        each.set_running_or_notify_cancel()  # it cannot be cancelled any more
    made = collect(given)
    given[0].set_exception(LookupError("first"))
    given[1].set_result(1)
    given[2].set_result(2)
    with pytest.raises(LookupError, match="first"):
        made.result(0)
    assert not caplog.records


def test_a_collection_has_all_results_in_order() -> None:
    given = several()
    made = collect(given)
    for k in (2, 0, 1):
        assert not made.done()
        assert not made.running()
        given[k].set_result(k)
    assert type(made) is Special
    assert made.result(0) == [0, 1, 2]
    assert collect([]).result(0) == []


def test_one_that_fails_ends_its_collection_and_cancels_the_others() -> None:
    given = several()
    made = collect(given)
    given[1].set_exception(KeyError("k"))
    assert isinstance(made.exception(0), KeyError)
    assert [each.cancelled() for each in given] == [True, False, True]


def test_one_that_is_cancelled_cancels_its_collection() -> None:
    given = several()
    made = collect(given)
    given[2].cancel()
    assert cf.wait([made], 0).done == {made}
    assert made.cancelled()
    assert all(each.cancelled() for each in given)


def test_a_collection_that_is_cancelled_cancels_all() -> None:
    given = several()
    collect(given).cancel()
    assert all(each.cancelled() for each in given)


def test_the_end_of_a_future_that_could_not_be_cancelled_does_not_matter_any_more() -> None:
    given = several()
    made = collect(given)
    given[0].set_running_or_notify_cancel()
    made.cancel()
    given[0].set_result(1)
    assert made.cancelled()


def test_a_composed_future_and_its_base_are_cancelled_together() -> None:
    base: Future[Any] = Special()
    made = compose(base)
    assert type(made) is Special
    assert not made.running()
    base.cancel()
    assert made.cancelled()
    base = Special()
    compose(base).cancel()
    assert base.cancelled()


def test_a_composed_future_has_the_result_of_its_hooks() -> None:
    base: Future[Any] = Future()
    doubled = compose(base, lambda value: 2 * value)
    failed = compose(base, lambda value: value / 0)
    handled = compose(failed, excepthook=lambda error: type(error))
    raised = compose(failed, excepthook=lambda _: KeyError())
    base.set_result(21)
    assert doubled.result(0) == 42
    assert isinstance(failed.exception(0), ZeroDivisionError)
    assert handled.result(0) is ZeroDivisionError
    assert isinstance(raised.exception(0), KeyError)


def test_a_future_waits_for_the_future_that_its_callback_returns() -> None:
    base, later = ThenableFuture(), ThenableFuture()
    made = base.then(lambda _: later)
    base.set_result(1)
    assert not made.done()
    later.set_result(2)
    assert made.result(0) == 2


def test_failures_pass_through_until_a_callback_takes_them() -> None:
    base = ThenableFuture()
    passed = base.then(lambda value: value + 1)
    taken = passed.catch(str)
    ignored = passed.catch()
    another = passed.catch(lambda _: ValueError())
    base.set_exception(OSError("text"))
    assert isinstance(passed.exception(0), OSError)
    assert taken.result(0) == "text"
    assert ignored.result(0) is None
    assert isinstance(another.exception(0), ValueError)


def test_a_future_that_would_wait_for_itself_fails() -> None:
    base, other = ThenableFuture(), ThenableFuture()
    made = base.then(lambda _: made)
    round_about = base.then(lambda _: other)
    other.set_result(round_about)
    base.set_result(1)
    for each in (made, round_about):
        assert "chain cycle detected" in str(each.exception(0))


def test_a_cancelled_future_cancels_only_later_futures() -> None:
    first = ThenableFuture()
    second = first.then()
    third = second.then()
    second.cancel()
    assert third.cancelled()
    first.set_result(1)
    assert first.result(0) == 1


def _fails() -> None:
    raise OSError("the initializer")


def test_a_failed_initializer_breaks_a_pool_of_threads_also_with_a_cancelled_task() -> None:
    with ThreadPoolExecutor(1, initializer=_fails) as executor:
        begun = [executor.submit(abs, -1) for _ in range(1)]
        with pytest.raises(cf.BrokenExecutor, match="the initializer"):
            begun[0].result()
        with pytest.raises(cf.BrokenExecutor):
            executor.submit(abs, -1)


def test_a_communicator_serves_an_executor_again_after_its_end() -> None:
    pools = MPICommExecutor()
    for _ in range(2):
        with pools as executor:
            assert executor is not None
            with pytest.raises(RuntimeError):
                pools.__enter__()
            assert executor.submit(abs, -1).result() == 1


def test_bootup_leaves_the_error_of_an_initializer_to_the_tasks() -> None:
    with ThreadPoolExecutor(1, initializer=_fails) as executor:
        executor.bootup()
        with pytest.raises(cf.BrokenExecutor, match="the initializer"):
            executor.submit(abs, -1)


def test_options_that_are_none_equal_omitted_options() -> None:
    with MPIPoolExecutor(1, globals=None, env=None, path=None, wdir=None) as executor:
        assert executor.submit(abs, -1).result() == 1


def test_an_exception_of_a_rank_that_works_has_its_traceback() -> None:
    ran = launch(
        2,
        "-m",
        "mpi4py.futures",
        "-c",
        """
from mpi4py.futures import MPIPoolExecutor, aplus, pool, util
error = MPIPoolExecutor().submit(int, "no number").exception()
print(type(error).__name__, "Traceback" in str(error.__cause__))
""",
    )
    assert ran.stdout == "ValueError True\n"


PROGRAM = """
import pickle
from mpi4py.futures import MPIPoolExecutor

class Point:
    def __init__(self, x):
        self.x = x

class Wrong(Exception):
    pass

def fail(x):
    raise Wrong(x)

def square(x):
    return x * x

def squared_by_a_copy(x):
    return pickle.loads(pickle.dumps(square))(x)

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        print(executor.submit(Point, 3).result().x)
        print(repr(executor.submit(fail, 3).exception()))
        print(executor.submit(squared_by_a_copy, 3).result())
"""


def test_workers_return_objects_that_the_program_defines(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ran = launch(2, "-m", "mpi4py.futures", str(script))
    assert ran.stdout == "3\nWrong(3)\n9\n"
