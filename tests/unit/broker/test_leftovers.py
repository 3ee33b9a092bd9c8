# SPDX-License-Identifier: Apache-2.0
"""The fixture that watches over all other tests is watched here."""

import os
import re
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
CENSUS = CONFTEST.with_name("census.py")


@pytest.fixture
def verdict(pytester: pytest.Pytester) -> pytest.Pytester:
    """A test session of its own under the real conftest, with a grace that is over soon."""
    short, times = re.subn(r"(?<=^GRACE: Final = )[\d.]+$", "0.1", CONFTEST.read_text(), flags=re.M)
    assert times == 1
    pytester.makeconftest(short)
    pytester.makepyfile(census=CENSUS.read_text())
    return pytester


LEAVING = {
    "a descriptor": ("os.dup(0)", "*descriptor *"),
    "a process": ("KEPT.append(subprocess.Popen(['sleep', '60']))", "*process * sleep *"),
    "a name": ("NAME.touch()", "*/dev/shm/shmnd-left"),
    "a mapping": (
        "fd = os.memfd_create('shmnd-left'); os.truncate(fd, 4096);"
        " KEPT.append(mmap.mmap(fd, 4096)); os.close(fd)",
        "*mapping * of /memfd:shmnd-left*",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LEAVING)
def test_leftovers_are_named(verdict: pytest.Pytester, what: str) -> None:
    code, line = LEAVING[what]
    verdict.makepyfile(
        f"""
        import mmap, os, pathlib, subprocess, pytest

        KEPT = []
        NAME = pathlib.Path("/dev/shm/shmnd-left")

        @pytest.fixture(scope="module", autouse=True)
        def tidy():
            yield
            NAME.unlink(missing_ok=True)
            for kept in KEPT:
                if isinstance(kept, subprocess.Popen):
                    kept.kill()
                    kept.wait()

        def test_leaves():
            {code}

        def test_is_not_blamed_for_its_predecessor():
            pass
        """
    )
    result = verdict.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*left behind:", line])


@pytest.mark.slow
def test_cycles_and_helpers_are_not_blamed(verdict: pytest.Pytester) -> None:
    verdict.makepyfile(
        """
        import multiprocessing, os, threading, time
        from multiprocessing import resource_tracker

        def test_cycle():
            class Holder:
                def __init__(self):
                    self.me, self.file = self, os.fdopen(os.dup(0))
                def __del__(self):
                    self.file.close()
            Holder()

        def test_ends_soon():
            fd = os.dup(0)
            threading.Timer(0.03, os.close, (fd,)).start()

        def test_tracker():
            resource_tracker.ensure_running()
        """
    )
    verdict.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


@pytest.mark.slow
def test_a_test_is_not_blamed_for_names_of_others(verdict: pytest.Pytester) -> None:
    """Names come and go, so that some are there at every look, and a process changes its name."""
    verdict.makepyfile(
        """
        import ctypes, os, pathlib, threading, pytest

        def come_and_go(ended):
            number, names = 0, []
            while not ended.is_set() or names:
                number += 1
                if not ended.is_set():
                    names.append(pathlib.Path(f"/dev/shm/shmnd-left-{os.getpid()}-{number}"))
                    names[-1].touch()
                    ended.wait(0.02)
                if len(names) > 1 or ended.is_set():
                    names.pop(0).unlink()

        @pytest.fixture(scope="module", autouse=True)
        def others():
            ended = threading.Event()
            thread = threading.Thread(target=come_and_go, args=(ended,))
            thread.start()
            yield
            ended.set()
            thread.join()

        @pytest.fixture(scope="module", autouse=True)
        def child():
            into, out = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(out)
                os.read(into, 1)
                ctypes.CDLL(None).prctl(15, b"renamed", 0, 0, 0)
                os.read(into, 1)
                os._exit(0)
            os.close(into)
            yield pid, out
            os.close(out)
            os.waitpid(pid, 0)

        def test_that_leaves_nothing(child):
            pid, out = child
            os.write(out, b"x")
            while pathlib.Path(f"/proc/{pid}/comm").read_text() != "renamed\\n":
                pass
        """
    )
    verdict.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_failure_is_reported_alone(verdict: pytest.Pytester) -> None:
    verdict.makepyfile(
        """
        import os

        def test_fails():
            os.dup(0)
            assert False
        """
    )
    verdict.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)


def test_the_broker_is_a_private_one(runtime_dir: Path) -> None:
    assert os.environ["SHMND_RUNTIME_DIR"] == str(runtime_dir)
    assert "SHMND_NAMESPACE" not in os.environ
    assert runtime_dir.stat().st_mode & 0o777 == 0o700
