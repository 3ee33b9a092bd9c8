# SPDX-License-Identifier: Apache-2.0
"""Something is missing or full: a clear error or it works, and nothing half made stays."""

import contextlib
import errno
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmnd
from processes.kit import ECHO, PATIENCE, Child, Talk, broker_pid, end_process, listening, unshared
from processes.scenario import attempt, held, settle
from shmnd import NdError, Status
from shmnd.broker.place import place_of
from shmnd.status import error

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[None]:
    """A broker that is there already, so that a start of one is not what fails."""
    with Child("adapter = shmnd.open_adapter(); say('here'); hear()") as child:
        assert child.hear() == "here"
        yield


# -- descriptors, address space --

SWEEP = """
import resource
from processes.scenario import attempt, held, settle
attempt()  # late imports happen now
before = held()
seen = []
{limits}
for limit in limits:
    old = resource.getrlimit(resource.{which})
    resource.setrlimit(resource.{which}, (limit, old[1]))
    try:
        reached, why = attempt()
    finally:
        resource.setrlimit(resource.{which}, old)
    seen.append([reached, why, settle(before)])
say(seen)
with shmnd.open_adapter() as adapter:
    say(adapter._engine.call("status"))
"""


def sweep(which: str, limits: str) -> list[tuple[str, str]]:
    """Run under each limit; give how far each came, and the errors. Nothing may be left."""
    with Child(SWEEP.format(which=which, limits=limits)) as child:
        seen = child.hear()
        status = child.hear()
    for reached, why, left in seen:
        assert not left, f"after {reached}, {why}: {left}"
    assert status["connections"] == status["listeners"] == 0
    return [(reached, why) for reached, why, _ in seen]


def test_descriptors_used_up_at_each_step(broker: None) -> None:
    limits = "limits = range(max(int(fd.split()[1]) for fd in before[0]) + 1, 60)"
    seen = sweep("RLIMIT_NOFILE", limits)
    steps = [reached for reached, _ in seen]
    assert {"nothing", "open_adapter", "the end"} <= set(steps)
    assert len(set(steps)) >= 5, "the sweep shall stop at many different steps"
    for reached, why in seen:
        assert (reached == "the end") == (not why)
        if why:
            assert "INSUFFICIENT_RESOURCES" in why or "NO_MEMORY" in why, why
            assert "ulimit -n" in why, why
            assert "RUNTIME_DIR" not in why, "no other directory helps"
    assert steps[-1] == "the end"


def test_address_space_used_up_at_each_step(broker: None) -> None:
    limits = """
pages = int(open("/proc/self/statm").read().split()[0])
used = pages * resource.getpagesize()
limits = [used + step * (256 << 10) for step in range(0, 480, 12)]
limits += [1 << 40]
"""
    seen = sweep("RLIMIT_AS", limits)
    assert seen[0][1], "no descriptor is left, and the error says so"
    assert seen[-1] == ("the end", "")
    for _, why in seen:
        if why:
            assert "INSUFFICIENT_RESOURCES" in why or "NO_MEMORY" in why, why


# -- the n-th call fails --


class Faults:
    """Fails the n-th call of any of a set of functions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0

    def wrap(self, real: Callable[..., Any], failure: Callable[[], BaseException]) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == self.number:
                raise failure()
            return real(*arguments, **more)

        return call


def system_error(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, os.strerror(number))


def refusal() -> BaseException:
    return error(Status.INSUFFICIENT_RESOURCES, "broker", "the test wants it so")


@pytest.mark.parametrize("kind", ["system", "broker"])
def test_each_call_that_can_fail_fails_once(
    kind: str, broker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shmnd.broker.client import BrokerClient

    attempt()
    before = held()
    number, stopped_at = 0, set()
    while True:
        number += 1
        faults = Faults(number)
        with monkeypatch.context() as patch:
            if kind == "system":
                for module, name, code in (
                    (os, "memfd_create", errno.EMFILE),
                    (os, "posix_fallocate", errno.ENOSPC),
                    (os, "eventfd", errno.EMFILE),
                    (os, "pidfd_open", errno.EMFILE),
                    (select, "epoll", errno.EMFILE),
                    (socket, "socket", errno.EMFILE),
                ):
                    wrapped = faults.wrap(getattr(module, name), system_error(code))
                    patch.setattr(module, name, wrapped)
            else:
                real = BrokerClient.call
                patch.setattr(BrokerClient, "call", faults.wrap(real, refusal))
            try:
                reached, why = attempt()
            except OSError as exc:
                reached, why = "nothing", str(exc)  # of the system's own making, and told as such
        assert not settle(before), f"call {number} failed: {reached}, {why}"
        if faults.calls < number:
            break
        assert why, f"call {number} failed without an error"
        stopped_at.add(reached)
    # Connect and Accept learn of a refusal later, and make no call that waits for the broker.
    assert number > (10 if kind == "system" else 8)
    assert len(stopped_at) >= 4, stopped_at
    with shmnd.open_adapter() as adapter:
        status = adapter._engine.call("status")
    assert (status["listeners"], status["connections"]) == (0, 0)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("name", ["eventfd", "pidfd_open", "memfd_create", "posix_fallocate"])
def test_a_system_call_that_a_filter_forbids_is_an_error_that_leads_to_the_doctor(
    name: str, number: int, broker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held()
    forbidden = Faults(1)
    wrapped = forbidden.wrap(getattr(os, name), system_error(number))
    monkeypatch.setattr(os, name, wrapped)
    with pytest.raises(NdError, match=r"open_adapter: .*seccomp.*shmnd doctor") as caught:
        shmnd.open_adapter()
    assert caught.value.status == Status.NOT_SUPPORTED
    del caught  # the calls that failed hold what they had made
    assert not settle(before)


# -- shared memory --


def test_a_failed_announcement_of_a_segment_names_the_call(
    broker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmnd.open_adapter() as adapter:
        region, memory = adapter.create_memory_region(), adapter.allocate(100)

        def register() -> None:
            region.register(memory, shmnd.MrFlag.ALLOW_REMOTE_READ).result(PATIENCE)

        def refuse(*segment: Any) -> None:
            raise error(Status.INSUFFICIENT_RESOURCES, segment[5], "faked")

        with monkeypatch.context() as patch:
            patch.setattr(adapter._engine, "announce_segment", refuse)
            for call, name in (
                (lambda: adapter.allocate(32 << 20), "Adapter.allocate"),
                (lambda: adapter.create_completion_queue(4), "Adapter.create_completion_queue"),
                (register, "MemoryRegion.register"),
            ):
                with pytest.raises(NdError, match=f"^{name}: faked"):
                    call()
        adapter.create_completion_queue(4).close()


TINY = """
from processes.scenario import attempt, held, settle
import shmnd
with shmnd.open_adapter() as adapter:
    small = adapter.allocate(1000)
    try:
        adapter.allocate(64 << 20)
        say("it came")
    except shmnd.NdError as err:
        say([err.status.name, isinstance(err, MemoryError), str(err)])
    small[:] = 1
"""


@pytest.mark.parametrize("size", ["4k", "16M"])
def test_the_size_of_the_place_of_names_limits_nothing(size: str) -> None:
    """Docker gives /dev/shm 64 MiB by default; segments do not lie there."""
    command = unshared("-m")
    mount = f'mount -t tmpfs -o size={size},mode=1777 tmpfs /dev/shm && exec "$@"'
    with Child(TINY, wrapper=[*command, "sh", "-c", mount, "sh"]) as child:
        assert child.hear() == "it came"
    end_process(broker_pid())  # it was started within


@pytest.mark.parametrize("megabytes", [4, 16])
def test_shared_memory_that_is_too_small_is_an_error_that_names_its_bound(megabytes: int) -> None:
    limited = f"import os; os.environ['SHMND_MEMORY_LIMIT'] = '{megabytes}M'\n"
    with Child(limited + TINY) as child:
        status, memory_error, text = child.hear()
    assert (status, memory_error) == ("INSUFFICIENT_RESOURCES", True)
    for word in ("67108864 bytes", f"SHMND_MEMORY_LIMIT ({megabytes << 20})", "raise"):
        assert word in text


def test_a_limit_of_files_is_named_where_it_prevents_a_segment() -> None:
    limited = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, resource.RLIM_INFINITY))"
    )
    with Child(limited + TINY) as child:
        status, memory_error, text = child.hear()
    assert (status, memory_error) == ("INSUFFICIENT_RESOURCES", True)
    assert "67108864 bytes" in text
    assert "ulimit -f" in text
    assert "/dev/shm" not in text, "it is not too small"


STEPS = """
from processes.scenario import attempt, settle, held
before = held()
say([*attempt(), settle(before)])
"""


def test_shared_memory_of_every_small_size_works_or_is_refused(broker: None) -> None:
    reached = set()
    for pages in (1, 16, 32, 64, 128, 256, 300, 512, 800, 2048):
        limited = f"import os; os.environ['SHMND_MEMORY_LIMIT'] = '{pages * 4}K'\n"
        with Child(limited + STEPS) as child:
            step, why, left = child.hear()
        assert not left, (pages, step, left)
        assert (step == "the end") == (not why)
        if why:
            assert "INSUFFICIENT_RESOURCES" in why
        reached.add(step)
    assert "the end" in reached
    assert len(reached) >= 3, reached


# -- where the broker lives --


def test_two_namespaces_side_by_side() -> None:
    """The same port in both; a listener in one is not there in the other."""
    with (
        shmnd.open_adapter(namespace="left") as left,
        shmnd.open_adapter(namespace="right") as right,
        listening(left) as there,
    ):
        address = there.get_local_address()
        with pytest.raises(ConnectionRefusedError):
            Talk.to(right, address)
        with listening(right, address[1]) as here:
            talk = Talk(right)
            waiting = Talk(right)
            request = here.get_connection_request(waiting.connector)
            answer = talk.connector.connect(talk.qp, address)
            request.result(PATIENCE)
            waiting.connector.accept(waiting.qp)
            answer.result(PATIENCE)
        assert left._engine.call("status")["connections"] == 0
    for name in ("left", "right"):
        end_process(broker_pid(place_of(name)))


def test_the_directory_is_made_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "new"))
    with shmnd.open_adapter():
        assert (tmp_path / "new" / "default").stat().st_mode & 0o777 == 0o700
    end_process(broker_pid())
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "no" / "such"))
    with pytest.raises(NdError, match="cannot be made"):
        shmnd.open_adapter()


@pytest.mark.parametrize("what", ["a file", "a link", "of another user", "a full disk"])
def test_a_directory_that_cannot_be_used_is_named(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run"
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(place))
    place.mkdir()
    inside = place / "default"
    before = held()
    if what == "a file":
        inside.write_text("")
    elif what == "a link":
        inside.symlink_to(tmp_path)
    elif what == "of another user":
        if os.geteuid() != 0:
            pytest.skip("gives a directory away; only root can")
        inside.mkdir(mode=0o700)
        os.chown(inside, 12345, -1)
    else:
        monkeypatch.setattr(Path, "mkdir", Faults(1).wrap(Path.mkdir, system_error(errno.ENOSPC)))
    with pytest.raises(NdError) as caught:
        shmnd.open_adapter()
    assert str(inside) in str(caught.value)
    full = what == "a full disk"
    wanted = Status.INSUFFICIENT_RESOURCES if full else Status.ACCESS_VIOLATION
    assert caught.value.status is wanted
    assert not settle(before)


def test_a_directory_on_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    command = unshared("-m")
    program = """
try:
    shmnd.open_adapter()
except shmnd.NdError as err:
    say([err.status.name, str(err)])
"""
    mount = f'mount -t tmpfs -o ro tmpfs {tmp_path} && exec "$@"'
    env = {"SHMND_RUNTIME_DIR": str(tmp_path / "run")}
    with Child(program, env=env, wrapper=[*command, "sh", "-c", mount, "sh"]) as child:
        status, text = child.hear()
    assert status == "ACCESS_VIOLATION"
    assert str(tmp_path / "run") in text
    assert "Read-only" in text


# -- other namespaces of the kernel --

MEETING = {
    "another PID namespace": (["--pid", "--fork", "--mount-proc"], 'exec "$@"'),
    "another mount namespace": (["-m"], 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'),
    "another IPC namespace": (["--ipc"], 'exec "$@"'),
}


def inside(how: str, elsewhere: Path) -> tuple[list[str], dict[str, str]]:
    """A command within other namespaces, and the runtime directory as it is called there."""
    kinds, script = MEETING[how]
    base = os.environ["SHMND_RUNTIME_DIR"]
    if how == "another mount namespace":  # as a container would see it: bound to another path
        script = f"mount --bind {base} {elsewhere} && {script}"
        base = str(elsewhere)
    return [*unshared(*kinds), "sh", "-c", script, "sh"], {"SHMND_RUNTIME_DIR": base}


@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
@pytest.mark.parametrize("first", ["outside", "inside"])
@pytest.mark.parametrize("how", MEETING)
def test_processes_of_other_namespaces_meet(
    how: str, first: str, private: bool, tmp_path: Path
) -> None:
    """The first process starts the broker; the other one's process id may be unknown there."""
    wrapper, env = inside(how, tmp_path)
    if broker_pid():
        end_process(broker_pid())
    adapter = shmnd.open_adapter() if first == "outside" else None
    with Child(ECHO, wrapper=wrapper, env=env) as echo:
        address = tuple(echo.hear())
        with adapter or shmnd.open_adapter() as adapter:
            talk = Talk.to(adapter, address, private=private)
            for size in (0, 10, 5000, 60000):
                data = os.urandom(size)
                talk.say(data)
                assert talk.hear() == data
            # and a death is seen across.
            told = talk.connector.notify_disconnect()
            kill_all_of(echo)
            told.result(PATIENCE)
    kill_brokers()


def kill_all_of(child: Child) -> None:
    import psutil

    for process in [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # `unshare` ends with its child
            process.kill()


def kill_brokers() -> None:
    """End the broker, also one that has no process id at the socket for us."""
    import psutil

    base = os.environ["SHMND_RUNTIME_DIR"]
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if "--lock-fd" in command and any(part.startswith(base) for part in command):
            end_process(process.pid)


def test_children_get_the_interpreter_and_the_path() -> None:
    with Child("say([sys.executable, shmnd.__file__])") as child:
        assert child.hear() == [sys.executable, shmnd.__file__]
