# SPDX-License-Identifier: Apache-2.0
"""Shared memory that has a name: attached, made, truncated under traffic, left by a crash."""

import contextlib
import json
import mmap
import os
import resource
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import posix_ipc
import pytest

import shmnd
from processes.kit import PATIENCE, Child, join, refused
from shmnd import MrFlag, NdError, Status
from shmnd.ring import Segment
from shmnd_tools.main import main

ALL = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
SHM = Path("/dev/shm")


@contextlib.contextmanager
def opened(name: str, flags: int = 0, size: int = 0) -> Iterator[Any]:
    """A segment of posix_ipc, whose descriptor is closed afterwards, at the latest."""
    made = posix_ipc.SharedMemory(name, flags, size=size)
    try:
        yield made
    finally:
        if made.fd >= 0:
            made.close_fd()


# -- attaching --


@contextlib.contextmanager
def existing(kind: str, name: str) -> Iterator[Any]:
    """Shared memory of 10,000 sevens as a user has it, and how it is passed."""
    if kind == "multiprocessing":
        made = shared_memory.SharedMemory(name[1:], create=True, size=10_000)
        resource_tracker.unregister(made._name, "shared_memory")  # type: ignore[attr-defined]
        made.buf[:] = b"\7" * 10_000
        yield made
        made.close()
        return
    with opened(name, posix_ipc.O_CREX, size=10_000) as segment:
        os.pwrite(segment.fd, b"\7" * 10_000, 0)
        yield {
            "posix_ipc": segment,
            "name": name,
            "bare name": name[1:],
            "path": str(SHM / name[1:]),
            "Path": SHM / name[1:],
            "descriptor": segment.fd,
        }[kind]
        segment.close_fd()


KINDS = ["posix_ipc", "multiprocessing", "name", "bare name", "path", "Path", "descriptor"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_attached_segment_is_the_memory_itself(
    kind: str, name: str, adapter: shmnd.Adapter
) -> None:
    with existing(kind, name) as segment:
        array = adapter.attach(segment)
    assert (array.dtype, array.nbytes) == (np.uint8, 10_000)
    assert (array == 7).all()
    array[5000] = 9
    assert (SHM / name[1:]).read_bytes()[5000] == 9
    (SHM / name[1:]).unlink()
    adapter.close()
    assert array[5000] == 9, "mapped until the last view is gone"


def test_for_reading_only(name: str, adapter: shmnd.Adapter) -> None:
    with existing("name", name) as segment:
        array = adapter.attach(segment, writable=False)
        assert not array.flags.writeable
        region = adapter.create_memory_region()
        refused(Status.ACCESS_VIOLATION, "read-only", lambda: region.register(array, ALL))
        region.register(array, MrFlag.ALLOW_REMOTE_READ).result(PATIENCE)
        region.deregister().result(PATIENCE)


def test_sparse_memory_is_committed(name: str, adapter: shmnd.Adapter) -> None:
    with opened(name, posix_ipc.O_CREX, size=1 << 20) as segment:
        assert os.fstat(segment.fd).st_blocks == 0
        adapter.attach(segment)
        assert os.fstat(segment.fd).st_blocks * 512 == 1 << 20
        segment.close_fd()


def test_objects_that_cannot_be_attached(name: str, adapter: shmnd.Adapter, tmp_path: Path) -> None:
    attach = adapter.attach
    one = Status.INVALID_PARAMETER_1
    refused(one, "no shared memory is named", lambda: attach(name))
    refused(one, "cannot be opened", lambda: attach(str(SHM / name[1:])))
    refused(one, "cannot be opened", lambda: attach(987654))
    refused(one, "is not shared memory", lambda: attach(b"x"))
    refused(one, "is not shared memory", lambda: attach(None))
    refused(one, "is not shared memory", lambda: attach(True))
    refused(one, "cannot be opened", lambda: attach(1 << 40))
    with Path(os.devnull).open() as null:
        refused(one, "neither a file in a tmpfs", lambda: attach(null.fileno(), writable=False))
    empty = SHM / name[1:]
    empty.touch()
    refused(one, "has 0 bytes", lambda: attach(name))
    adapter.close()
    refused(Status.DEVICE_REMOVED, "closed", lambda: attach(name))


def test_a_descriptor_without_the_requested_access(name: str, adapter: shmnd.Adapter) -> None:
    path = SHM / name[1:]
    path.write_bytes(b"x" * 5000)
    one = Status.ACCESS_VIOLATION
    with path.open("rb") as reading:
        refused(one, "pass writable=False", lambda: adapter.attach(reading.fileno()))
        assert (adapter.attach(reading.fileno(), writable=False) == ord("x")).all()
    for flags in (os.O_WRONLY, os.O_PATH):
        fd = os.open(path, flags)
        for writable in (True, False):
            refused(
                one,
                "not open for reading",
                lambda fd=fd, writable=writable: adapter.attach(fd, writable=writable),
            )
        os.close(fd)


@pytest.mark.parametrize(
    ("limit", "most", "flag"), [("RLIMIT_FSIZE", 4096, "-f"), ("RLIMIT_NOFILE", 0, "-n")]
)
def test_a_limit_of_the_process_is_named(
    name: str, adapter: shmnd.Adapter, limit: str, most: int, flag: str
) -> None:
    before = resource.getrlimit(getattr(resource, limit))
    resource.setrlimit(getattr(resource, limit), (most, before[1]))
    try:
        with pytest.raises(NdError) as caught:
            adapter.allocate(8192, name=name)
    finally:
        resource.setrlimit(getattr(resource, limit), before)
    assert caught.value.status is Status.INSUFFICIENT_RESOURCES
    assert f"ulimit {flag}" in str(caught.value)
    assert "size of /dev/shm" not in str(caught.value)
    assert not (SHM / name[1:]).exists()


def test_sealed_memory_is_mapped_by_peers_as_any(adapter: shmnd.Adapter) -> None:
    import fcntl

    fd = os.memfd_create("shmnd-test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.truncate(fd, 8192)
    refusal = adapter.attach(fd)
    assert adapter._arena.locate(refusal.ctypes.data, 8192) is None, "not sealed: as private memory"
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    array = adapter.attach(fd)
    place = adapter._arena.locate(array.ctypes.data, 8192)
    assert place is not None
    assert not place[2]
    reading = adapter.attach(fd, writable=False)
    read_only = adapter._arena.locate(reading.ctypes.data, 8192)
    assert read_only is not None
    assert read_only[2]
    os.close(fd)


# -- making --


def test_memory_with_a_name_is_opened_by_others(name: str, adapter: shmnd.Adapter) -> None:
    array = adapter.allocate(5000, name=name)
    assert not array.any()
    array[:4] = 1, 2, 3, 4
    with opened(name) as segment:
        with mmap.mmap(segment.fd, 5000) as view:
            assert view[:4] == bytes([1, 2, 3, 4])
        segment.close_fd()
    assert (SHM / name[1:]).stat().st_mode & 0o777 == 0o600
    assert (SHM / name[1:]).stat().st_blocks * 512 >= 5000
    refused(Status.ADDRESS_ALREADY_EXISTS, "exists", lambda: adapter.allocate(10, name=name))
    assert (array[:4] == [1, 2, 3, 4]).all()
    del array
    assert not (SHM / name[1:]).exists()
    adapter.allocate(10, name=name)


@pytest.mark.parametrize(
    "wrong", ["", "/", "plain", "/a/b", "/..", "/" + "x" * 255, "/a\0b", "/\ud800", 7]
)
def test_a_name_is_a_slash_and_a_word(wrong: Any, adapter: shmnd.Adapter) -> None:
    refused(
        Status.INVALID_PARAMETER_3, "is not a POSIX name", lambda: adapter.allocate(9, name=wrong)
    )


def test_no_name_for_memory_that_peers_only_read(name: str, adapter: shmnd.Adapter) -> None:
    refused(
        Status.INVALID_PARAMETER_MIX,
        "seals no memory",
        lambda: adapter.allocate(10, peers="read", name=name),
    )


def test_the_close_of_its_adapter_removes_the_name(name: str) -> None:
    with shmnd.open_adapter() as adapter:
        array = adapter.allocate(5000, name=name)
        array[:] = 3
    assert not (SHM / name[1:]).exists()
    assert (array == 3).all()


def test_a_name_that_another_file_has_by_now_is_left(name: str) -> None:
    with shmnd.open_adapter() as adapter:
        array = adapter.allocate(5000, name=name)
        (SHM / name[1:]).unlink()
        (SHM / name[1:]).write_bytes(b"of another owner")
    assert array.nbytes == 5000
    assert (SHM / name[1:]).read_bytes() == b"of another owner"


MAKER = """
adapter = shmnd.open_adapter()
array = adapter.allocate(5000, name=hear())
say("made")
hear()
"""


@pytest.mark.parametrize("ending", ["exit", "kill"])
def test_a_crash_leaves_a_name_that_clean_removes(
    ending: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Child(MAKER) as maker:
        maker.say(name)
        assert maker.hear() == "made"
        assert main(["clean", "--format", "json"]) == 0
        (found,) = [each for each in json.loads(capsys.readouterr().out) if each["kind"] == "name"]
        assert found["state"] == "in use"
        assert (SHM / name[1:]).exists()
        if ending == "exit":
            maker.say("end")
            assert maker.end() == 0
            assert not (SHM / name[1:]).exists()
            return
        maker.process.send_signal(signal.SIGKILL)
        maker.process.wait(PATIENCE)
    assert (SHM / name[1:]).exists()
    assert main(["clean", "--dry-run"]) == 1
    assert main(["clean"]) == 0
    assert not (SHM / name[1:]).exists()
    assert "name" in capsys.readouterr().out


# -- truncated under traffic --

OWNER = """
import os, posix_ipc
segment = posix_ipc.SharedMemory(hear())
say("ready")
size = os.fstat(segment.fd).st_size
while True:
    for _ in range(200):
        os.ftruncate(segment.fd, 0)
        os.ftruncate(segment.fd, size)
"""

USER = """
import random, select, time
import numpy as np
from shmnd import MrFlag
ALL = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
name, address, fragile = hear()
adapter = shmnd.open_adapter()
SIZE = 1 << 18
memory = adapter.attach(name) if fragile else adapter.allocate(SIZE)
region = adapter.create_memory_region()
region.register(memory, ALL).result(20)
listener = None if address else listening(adapter)
say(listener.get_local_address() if listener else None)
chance = random.Random(1)
rounds = ends = 0

def connected():
    cq = adapter.create_completion_queue(64)
    qp = adapter.create_queue_pair(cq, cq)
    connector = adapter.create_connector()
    if listener:
        listener.get_connection_request(connector).result(1)
        connector.accept(qp, 8, 8, repr([region.address, region.remote_token]).encode()).result(20)
    else:
        connector.connect(qp, tuple(address), 8, 8).result(20)
        connector.complete_connect().result(20)
    return cq, qp, connector

def over():  # the active side decides, and tells the passive one
    return select.select([0], [], [], 0)[0] if listener else time.monotonic() > deadline and ends

deadline = time.monotonic() + 3
while not over() and time.monotonic() < deadline + 60:
    try:
        cq, qp, connector = connected()
    except (shmnd.NdError, TimeoutError):
        continue
    if listener:
        for _ in range(8):
            qp.receive(region.sge())
        alive = True
        while alive:
            for result in cq.wait(8, 0.5) or [None]:
                alive = alive and result is not None and result.status == 0
                rounds += alive
                if alive:
                    qp.receive(region.sge())
    else:
        there, token = eval(connector.get_private_data().rstrip(b"\\0"))
        alive = True
        while alive and time.monotonic() < deadline:
            n = chance.choice([8, 500, 600, 3000, 9000, 70_000, SIZE])
            kind = chance.choice("swr")
            if kind == "s":
                qp.send(region.sge(0, n))
            elif kind == "w":
                qp.write(region.sge(0, n), there, token)
            else:
                qp.read(region.sge(0, n), there, token)
            for result in cq.wait(1, 5):
                alive = result.status == 0
                rounds += alive
    ends += 1
    qp.close()
    connector.close()
say([rounds, ends])
"""


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["the active side", "the passive side"])
def test_truncation_under_traffic_is_a_signal_in_no_process(holder: str, name: str) -> None:
    with opened(name, posix_ipc.O_CREX, size=1 << 18) as segment:
        segment.close_fd()
    passive_holds = holder == "the passive side"
    with Child(OWNER) as owner, Child(USER) as passive, Child(USER) as active:
        passive.say([name, None, passive_holds])
        address = passive.hear()
        active.say([name, address, not passive_holds])
        active.hear()
        owner.say(name)
        assert owner.hear() == "ready"
        rounds, ends = active.hear()
        assert ends > 0
        assert active.end() == 0, f"after {rounds} requests"
        passive.say("over")
        passive.hear()
        assert passive.end() == 0
        owner.process.kill()


HOLDER = """
from processes.kit import join
from shmnd import MrFlag

adapter = shmnd.open_adapter()
listener = listening(adapter)
files = [os.memfd_create("shmnd-test", os.MFD_CLOEXEC) for _ in range(3)]
for fd in files:
    os.truncate(fd, 1 << 16)
arrays = [adapter.attach(fd) for fd in files]
del arrays[hear()]
regions = [adapter.create_memory_region() for _ in arrays]
for region, array in zip(regions, arrays):
    region.register(array, MrFlag.ALLOW_LOCAL_WRITE).result(20)
for fd in files:
    os.truncate(fd, 0)
for region in regions:
    cq = adapter.create_completion_queue(8)
    ends = [adapter.create_queue_pair(cq, cq, context=number) for number in range(2)]
    kept = join(listener, *ends)
    ends[1].receive(None)
    ends[0].send(region.sge(0, 5000))
    say([result.status.name for result in cq.wait(8, 20) if result.queue_pair_context == 0])
"""


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_memory_that_is_given_back_leaves_the_protection_of_the_rest(ended: int) -> None:
    """Registering reads the list of all memory that others can truncate, which may lie anywhere."""
    with Child(HOLDER) as holder:
        holder.say(ended)
        for _ in range(2):
            assert holder.hear() == ["ACCESS_VIOLATION"]
        assert holder.end() == 0


@pytest.mark.parametrize("posted", ["before", "after"])
@pytest.mark.parametrize("nbytes", [8, 20_000, 1 << 20, 8 << 20])
def test_a_send_from_truncated_memory_fails_for_its_sender_alone(
    nbytes: int, posted: str, adapter: shmnd.Adapter
) -> None:
    """Whichever side copies: the Receive has done nothing wrong."""
    fd = os.memfd_create("shmnd-test", os.MFD_CLOEXEC)
    os.truncate(fd, nbytes)
    source, sink = adapter.create_memory_region(), adapter.create_memory_region()
    source.register(adapter.attach(fd)).result(PATIENCE)
    sink.register(adapter.allocate(nbytes), MrFlag.ALLOW_LOCAL_WRITE).result(PATIENCE)
    cq = adapter.create_completion_queue(8)
    pairs = [adapter.create_queue_pair(cq, cq) for _ in range(2)]
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    kept = join(listener, *pairs)
    if posted == "before":
        pairs[1].receive(sink.sge(), "receive")
    os.truncate(fd, 0)
    os.close(fd)
    pairs[0].send(source.sge(), "send")
    if posted == "after":
        pairs[1].receive(sink.sge(), "receive")
    ended: dict[object, Status] = {}
    while len(ended) < 2:
        ended |= {each.request_context: each.status for each in cq.wait(8, PATIENCE)}
    assert ended == {"send": Status.ACCESS_VIOLATION, "receive": Status.CANCELED}
    assert len(kept) == 2


@pytest.mark.parametrize("trusted", [False, True])
def test_traffic_out_of_and_into_attached_memory(
    trusted: bool, name: str, adapter: shmnd.Adapter
) -> None:
    size = 1 << 20
    with opened(name, posix_ipc.O_CREX, size=size) as segment:
        ours = adapter.attach(segment, trusted=trusted)
        segment.close_fd()
    plain = adapter.allocate(size)
    cq = adapter.create_completion_queue(64)
    regions = []
    for memory in (ours, plain):
        region = adapter.create_memory_region()
        region.register(memory, ALL).result(PATIENCE)
        regions.append(region)
    pairs = [adapter.create_queue_pair(cq, cq, inline_size=64) for _ in range(2)]
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    to, of = adapter.create_connector(), adapter.create_connector()
    request = listener.get_connection_request(of)
    asked = to.connect(pairs[0], listener.get_local_address(), 8, 8)
    request.result(PATIENCE)
    accepted = of.accept(pairs[1], 8, 8)
    asked.result(PATIENCE)
    to.complete_connect().result(PATIENCE)
    accepted.result(PATIENCE)

    def finish(count: int) -> None:
        done: list[Any] = []
        while len(done) < count:
            more = cq.wait(8, PATIENCE)
            assert more
            done += more
        assert {result.status for result in done} == {Status.SUCCESS}

    for n in (1, 500, 600, 3000, 5000, 70_000, size):
        for source, sink in ((0, 1), (1, 0)):
            data = np.random.default_rng(n).integers(0, 256, n, np.uint8)
            arrays = ours, plain
            for how in ("send", "write", "read"):
                arrays[sink][:] = 0
                arrays[source][:n] = data
                there = regions[sink], regions[source]
                if how == "send":
                    pairs[1].receive(regions[sink].sge())
                    pairs[0].send(regions[source].sge(0, n))
                elif how == "write":
                    pairs[0].write(there[1].sge(0, n), there[0].address, there[0].remote_token)
                else:
                    pairs[0].read(there[0].sge(0, n), there[1].address, there[1].remote_token)
                finish(2 if how == "send" else 1)
                assert (arrays[sink][:n] == data).all(), (n, how, source)
    pairs[1].receive(regions[1].sge())
    pairs[0].send(regions[0].sge(0, 50), flags=shmnd.OpFlag.INLINE)
    finish(2)
    assert (plain[:50] == ours[:50]).all()
    listener.close()


@pytest.mark.parametrize("works", [True, False])
def test_trusted_memory_is_copied_directly(
    works: bool, name: str, adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.runtime.adapter_memory.copies_within_work", lambda: works)
    with existing("name", name) as segment:
        trusted = adapter.attach(segment, trusted=True)
        region = adapter.create_memory_region()
        region.register(trusted, ALL).result(PATIENCE)
        assert adapter._arena.locate(trusted.ctypes.data, trusted.nbytes) is None, "no peer maps it"
        fd = os.open(SHM / name[1:], os.O_RDWR)
        assert not Segment.adopt(fd, writable=True, trusted=True).fragile
        fd = os.open(SHM / name[1:], os.O_RDWR)
        assert Segment.adopt(fd, writable=True).fragile
        if works:
            assert (adapter.attach(segment) == 7).all()
        else:
            refused(
                Status.NOT_SUPPORTED,
                "trusted=True",
                lambda: adapter.attach(segment),
            )
        region.deregister().result(PATIENCE)


def test_inline_out_of_truncated_memory_is_an_error(name: str, adapter: shmnd.Adapter) -> None:
    with opened(name, posix_ipc.O_CREX, size=4096) as segment:
        array = adapter.attach(segment)
        region = adapter.create_memory_region()
        region.register(array, ALL).result(PATIENCE)
        cq = adapter.create_completion_queue(8)
        qp = adapter.create_queue_pair(cq, cq, inline_size=64)
        os.ftruncate(segment.fd, 0)
        segment.close_fd()
    for sge in (region.sge(0, 50), shmnd.Sge(array[:50], None, 0)):
        refused(
            Status.ACCESS_VIOLATION,
            "cannot be read",
            lambda: qp.send(sge, flags=shmnd.OpFlag.INLINE),  # noqa: B023
        )
