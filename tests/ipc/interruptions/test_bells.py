# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises behind each call at a bell: no descriptor stays, none is missed."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from census import open_files
from interrupting import Alarm
from shmnd.ipc.common.ringing import Bell, sleeper_at
from stepping import stepped

PATIENCE = 20.0


def _within(path: str) -> bool:
    return path.endswith(("ringing.py", "owned.pyx", "streams.py")) and "tests" not in path


@pytest.fixture
def other() -> Iterator[int]:
    """Another process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def _sleep(bell: Bell, pid: int) -> None:
    with sleeper_at(bell) as sleeper:
        bell.drain()
        bell.watch([pid])
        bell.ring()
        sleeper.sleep(PATIENCE)
    bell.watch([])


def _sleep_in_a_task(bell: Bell, pid: int) -> None:
    async def sleeps() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of callbacks
        with bell.task() as sleeper:
            bell.watch([pid])
            bell.ring()
            await sleeper.sleep(PATIENCE)

    with asyncio.Runner() as runner:
        runner.run(sleeps())
    gc.collect()


def _close(bell: Bell, pid: int) -> None:
    bell.watch([pid])
    bell.close()


@pytest.mark.parametrize("use", [_sleep, _sleep_in_a_task, _close])
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_no_descriptor_stays(
    use: Callable[[Bell, int], None], other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    bells: list[Bell] = []

    def used() -> None:
        bells.append(Bell())
        use(bells[0], other)

    used()  # the modules that it loads
    bells.pop().close()
    gc.collect()
    files, at, place = open_files(), 0, "none yet"
    while place:
        place = stepped(at, used, _within, Alarm)
        gc.collect()  # the frames of the exception
        while bells:
            assert not bells[-1]._sleepers
            assert not bells[-1]._loops
            bells.pop().close()
        gc.collect()
        assert open_files() == files, f"behind call {at}: {place}"
        at += 1
    assert at > 20


def test_a_process_that_is_watched_is_seen_to_die(other: int) -> None:
    """Also where the call that began to watch it was interrupted, and is made again."""
    at, place = 0, "none yet"
    while place:
        bell = Bell()
        place = stepped(at, lambda bell=bell: bell.watch([other]), _within, Alarm)
        bell.watch([other])
        lines = Path(f"/proc/self/fdinfo/{bell.fd}").read_text().splitlines()
        watched = {int(line.split()[1]) for line in lines if line.startswith("tfd:")}
        files = [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in watched]
        kinds = sorted(file.split(":")[0] for file in files)
        assert kinds == ["anon_inode", "socket"], f"behind call {at}: {place}"
        bell.close()
        at += 1
    assert at > 5


def test_a_ring_that_an_interrupted_call_took_wakes_the_other_sleepers() -> None:
    at, place = 0, "none yet"
    while place:
        bell = Bell()
        with sleeper_at(bell) as sleeper:
            bell.ring()
            place = stepped(at, bell.drain, _within, Alarm)
            rung = bell._socket.fd
            try:
                os.read(rung, 16)  # it is still there
            except BlockingIOError:
                with pytest.raises(BlockingIOError):
                    os.eventfd_write(sleeper._event.fd, (1 << 64) - 2)  # it counts already
        bell.close()
        at += 1
    assert at > 5
