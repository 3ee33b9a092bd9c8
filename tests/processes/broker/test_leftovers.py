# SPDX-License-Identifier: Apache-2.0
"""Everything crashes at once, and the next start removes the leftovers; live names stay."""

import fcntl
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmnd
from processes.kit import Child, Talk, broker_pid, end_process, listening, shared_names
from shmnd.broker import leftovers
from shmnd.broker.leftovers import find_leftovers, remove_leftovers
from shmnd.broker.place import Place, place_of
from shmnd_tools.main import main

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("SHMND_SEED", "0")) or random.SystemRandom().getrandbits(30)
SHM = Path("/dev/shm")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of namespaces that no other process uses."""
    folder = tmp_path / "run"
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(folder))
    return folder


def abandoned_socket(place: Place) -> None:
    """As a killed broker leaves it."""
    place.listen().close()
    place.lock.touch()


def named(label: str = "data", *, age: float = 60.0) -> Path:
    """A segment with a name, as a release of old could leave it."""
    path = SHM / f"shmnd-{os.getuid()}-{label}-{random.randbytes(16).hex()}"
    path.write_bytes(b"x" * 4096)
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def names() -> Iterator[list[Path]]:
    made: list[Path] = []
    yield made
    for path in made:
        path.unlink(missing_ok=True)


CROWD = """
import random
chance = random.Random(hear())
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
others = hear()
talks = []
while True:
    try:
        address = chance.choice(others)
        talk = Talk(adapter)
        if chance.random() < 0.5:
            talk.connector.connect(talk.qp, tuple(address))
        else:
            listener.get_connection_request(talk.connector)
        talks.append(talk)
        adapter._engine.progress()
        for each in talks:
            if each.connector._state.name == "ACCEPTED":
                each.connector.complete_connect()
            elif each.connector._state.name == "OFFERED":
                each.connector.accept(each.qp)
        adapter.allocate(chance.randrange(1, 3 << 20))
        del talks[:-5]
    except shmnd.NdError:
        pass
"""


def test_everything_is_killed_at_once_and_the_next_start_finds_it_clean(base: Path) -> None:
    print(f"seed: SHMND_SEED={SEED}")
    chance = random.Random(SEED)
    for _ in range(4):
        crowd = [Child(CROWD) for _ in range(4)]
        try:
            for child in crowd:
                child.say(chance.randrange(1 << 30))
            addresses = [child.hear() for child in crowd]
            for child in crowd:
                child.say(addresses)
            time.sleep(chance.uniform(0.0, 0.3))
            broker = broker_pid()
            pids = [*(child.pid for child in crowd), broker]
            for number in (signal.SIGSTOP, signal.SIGKILL):  # so no process sees another die
                for pid in pids:
                    os.kill(pid, number)
            for child in crowd:
                child.process.wait()
            end_process_if_there(broker)
        finally:
            for child in crowd:
                child.__exit__()
        assert not shared_names(), "shared memory without an owner"
        (left,) = find_leftovers()
        assert left.stale
        with shmnd.open_adapter() as adapter:
            (left,) = find_leftovers()
            assert not left.stale, "the new broker's own"
            listener = listening(adapter, addresses[0][1])  # and all ports are free again
            listener.close()
        end_process(broker_pid(), signal.SIGTERM)


def end_process_if_there(pid: int) -> None:
    try:
        end_process(pid)
    except ProcessLookupError:
        pass


def test_any_start_removes_leftovers_of_other_namespaces(base: Path) -> None:
    stale = place_of("crashed")
    abandoned_socket(stale)
    with Child("""
adapter = shmnd.open_adapter(namespace="living")
say("here")
hear()
""") as child:  # fmt: skip
        assert child.hear() == "here"
        living = place_of("living")
        before = living.socket.lstat()
        with shmnd.open_adapter(namespace="mine"):
            assert not stale.socket.exists()
            assert os.path.samestat(living.socket.lstat(), before)
        end_process(broker_pid(place_of("mine")), signal.SIGTERM)
        end_process(broker_pid(living), signal.SIGTERM)


def test_an_owner_is_recognized_by_its_lock_not_by_its_pid(base: Path) -> None:
    place = place_of("held")
    with Child("""
from shmnd.broker.place import place_of
place = place_of("held")
lock = place.try_lock()
sock = place.listen()
say("ready")
hear()
""") as child:  # fmt: skip
        assert child.hear() == "ready"
        (found,) = find_leftovers()
        assert not found.stale
        assert remove_leftovers([found]) == []
        # Even told that it is stale, the removal does not believe it.
        lie = leftovers.Leftover(found.path, "socket", stale=True)
        assert remove_leftovers([lie]) == [lie]
        assert place.socket.exists()
        child.kill()
        (found,) = find_leftovers()
        assert found.stale
        assert remove_leftovers([found]) == []
        assert not place.socket.exists()


def test_names_of_releases_of_old(base: Path, names: list[Path]) -> None:
    stale, young, held = named("link"), named(age=0.0), named("bell")
    foreign = SHM / "shmnd-of-another-owner"
    foreign.touch()
    names += [stale, young, held, foreign]
    with held.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        found = {each.path: each for each in find_leftovers()}
        assert set(found) == {stale, young, held}
        assert [found[path].stale for path in (stale, young, held)] == [True, False, False]
        assert found[stale].nbytes == 4096
        assert remove_leftovers(list(found.values())) == []
        assert [path.exists() for path in names] == [False, True, True, True]
    assert [each.path for each in find_leftovers() if each.stale] == [held]


def test_entries_of_other_types_are_left_alone(base: Path, names: list[Path]) -> None:
    place = place_of("odd")
    place.socket.write_text("not a socket")
    path = SHM / f"shmnd-{os.getuid()}-data-{'0' * 32}"
    path.symlink_to("/etc/passwd")
    names.append(path)
    (base / "link").symlink_to("/tmp")
    assert [each for each in find_leftovers() if each.stale] == []


def test_clean_reports_each_removal(
    base: Path, names: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clean"]) == 0
    assert "state" in capsys.readouterr().out
    place = place_of("crashed")
    abandoned_socket(place)
    names.append(named())
    assert main(["clean", "--dry-run", "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {(row["path"], row["kind"], row["bytes"], row["state"]) for row in rows} == {
        (str(place.socket), "socket", 0, "stale"),
        (str(names[0]), "segment", 4096, "stale"),
    }
    assert place.socket.exists(), "a dry run"
    assert main(["clean"]) == 0
    assert capsys.readouterr().out.count("removed") == 2
    assert not place.socket.exists()
    assert main(["clean", "--dry-run"]) == 0


def test_clean_names_a_folder_that_it_cannot_read(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here a file, which no user can list; a folder of another user fails in the same way."""
    assert main(["clean", "--dry-run"]) == 0, "there is none yet"
    capsys.readouterr()
    base.touch()
    for words in (["clean"], ["clean", "--dry-run", "--format", "json"]):
        assert main(words) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"{base} cannot be read" in shown.err
        assert "SHMND_RUNTIME_DIR" in shown.err


def test_an_unused_namespace_is_removed_with_its_broker(base: Path) -> None:
    with shmnd.open_adapter(namespace="passing"):
        place = place_of("passing")
        broker = broker_pid(place)
    end_process(broker, signal.SIGTERM)
    assert not place.directory.exists()


def test_clean_removes_a_namespace_whose_broker_was_killed(base: Path) -> None:
    with shmnd.open_adapter(namespace="used"):
        place, used = place_of("empty"), place_of("used")
        lock = place.try_lock()
        assert lock is not None
        os.close(lock)
        other = place_of("other")
        (other.directory / "mine").touch()
        assert {each.path for each in find_leftovers() if each.stale} == {place.directory}
        assert main(["clean"]) == 0
        assert not place.directory.exists()
        assert used.socket.exists()
        assert (other.directory / "mine").exists()
        end_process(broker_pid(used), signal.SIGTERM)


def test_a_dry_run_makes_nothing_either(base: Path) -> None:
    place = place_of("crashed")
    abandoned_socket(place)
    place.lock.unlink(missing_ok=True)
    before = list(place.directory.iterdir())
    assert main(["clean", "--dry-run"]) == 1
    assert list(place.directory.iterdir()) == before == [place.socket]
    assert main(["clean"]) == 0
    assert not place.socket.exists()


def test_clean_reports_failed_removals(
    base: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of("crashed")
    abandoned_socket(place)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert main(["clean"]) == 1
    assert "could not be removed" in capsys.readouterr().out
    assert place.socket.exists()


def test_a_crash_in_the_midst_of_a_start(base: Path) -> None:
    """A starter dies with the lock taken and a socket made, before any client is served."""
    with Child("""
import signal
from shmnd.broker.place import place_of
place = place_of()
lock = place.try_lock()
place.listen()
os.kill(os.getpid(), signal.SIGKILL)
""") as child:  # fmt: skip
        child.process.wait(20)
        assert place_of().socket.exists()
        assert place_of().connect() is None
        with shmnd.open_adapter() as adapter:
            talk_to_itself(adapter)
        end_process(broker_pid(), signal.SIGTERM)


def talk_to_itself(adapter: shmnd.Adapter) -> None:
    listener = listening(adapter)
    waiting = Talk(adapter)
    request = listener.get_connection_request(waiting.connector)
    talk = Talk(adapter)
    answer = talk.connector.connect(talk.qp, listener.get_local_address())
    request.result(20)
    waiting.connector.accept(waiting.qp)
    answer.result(20)
    talk.connector.complete_connect().result(20)
    talk.say(b"hello")
    assert waiting.hear() == b"hello"
