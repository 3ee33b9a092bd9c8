# SPDX-License-Identifier: Apache-2.0
"""CPython's own tests of multiprocessing's queues, run against ours."""

import multiprocessing
import unittest
from typing import Any, ClassVar

import pytest

from shmnd import ipc

theirs = pytest.importorskip(
    "test._test_multiprocessing",
    reason="this Python was installed without its own tests (package `test`)",
)
_WITH_PROCESSES = ("test_put", "test_get", "test_fork", "test_task_done")
_OTHERS = {
    "test_closed_queue_put_get_exceptions",
    "test_no_import_lock_contention",
    "test_queue_feeder_on_queue_feeder_error",
    "test_timeout",
}
"""They make a multiprocessing.Queue by its own name: run with that name leading to ours."""
TESTS = sorted(name for name in dir(theirs._TestQueue) if name.startswith("test_"))


def test_there_are_tests_to_run() -> None:
    assert len(TESTS) >= 8


class _Ours(theirs._TestQueue, unittest.TestCase):  # type: ignore[misc, name-defined]
    """Their tests, with our queues and the processes of one start method."""

    __test__ = False  # run below, once for each start method
    TYPE = "processes"
    Queue = staticmethod(ipc.Queue)
    JoinableQueue = staticmethod(ipc.JoinableQueue)
    context: ClassVar[Any]

    @property
    def Process(self) -> Any:  # noqa: N802
        return self.context.Process

    @property
    def Event(self) -> Any:  # noqa: N802
        return self.context.Event


def _run(name: str, method: str) -> unittest.TestResult:
    _Ours.context = multiprocessing.get_context(method)
    result = unittest.TestResult()
    _Ours(name).run(result)
    return result


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, "fork") for name in TESTS]
    + [(name, method) for name in _WITH_PROCESSES for method in ("spawn", "forkserver")],
)
def test_a_queue_passes_the_tests_of_cpython(
    name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in _OTHERS:
        monkeypatch.setattr(multiprocessing, "Queue", ipc.Queue)
        monkeypatch.setattr(multiprocessing, "JoinableQueue", ipc.JoinableQueue)
        monkeypatch.setattr(multiprocessing.queues, "Queue", ipc.Queue)
    monkeypatch.setattr(theirs, "DELTA", 0.1)
    for number in (1, 2, 3):
        monkeypatch.setattr(theirs, f"TIMEOUT{number}", 0.1 * number)
    result = _run(name, method)
    assert not result.skipped, result.skipped
    assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)
    assert result.testsRun == 1


def test_names_are_all_there() -> None:
    plain = {name for name in dir(multiprocessing.queues.JoinableQueue) if name[0] != "_"}
    assert plain <= set(dir(ipc.JoinableQueue))
