# SPDX-License-Identifier: Apache-2.0
"""What a peer does to the doorbells that it shares with a process harms no other connection of it.

No process polls by itself: one that is not rung sleeps until it is too late.
"""

import contextlib
import ctypes
import errno
import mmap
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmnd
import shmnd.runtime.pending
from processes.kit import PATIENCE, Child, Talk, broker_pid, end_process

pytestmark = pytest.mark.slow

ROUNDS = 200
"""Messages of the honest peer."""

HONEST = f"""
import shmnd.runtime.pending
shmnd.runtime.pending.LONGEST_SLEEP = Talk.pause = {2 * PATIENCE}
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
talk.cq.spin = 0.0
try:
    while True:
        heard = talk.hear()
        time.sleep(0.002)  # the peer sleeps by now
        talk.say(heard)
except (ConnectionError, AssertionError):
    pass
adapter.close()
"""

HOSTILE_PEER = """
import socket
from shmnd.common.descriptors import Doorbell
Doorbell.drain = lambda self: True  # it never takes a ring
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
say("talks")

def ends():
    engine = adapter._engine
    ringing = [process.doorbell.fileno() for process in engine._peers._processes.values()]
    return ringing, list(engine._wait_set._doorbells)

def as_socket(fd):
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)

def attack(how):
    ringing, listening = ends()
    for fd in ringing + listening:
        end = as_socket(fd)
        try:
            if how == "drains":
                end.recv(1 << 20, socket.MSG_DONTWAIT)
            elif how == "fills":
                while True:
                    end.send(bytes(1 << 16), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            elif how == "blocks":
                end.setblocking(True)
            elif how == "shuts":
                end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            end.detach()
        if how == "closes":
            os.close(fd)

how = hear()
while not all(ends()):
    adapter._engine.progress()
while True:
    attack(how)
    if how == "closes":
        attack = lambda how: None
    talk.cq._arm_for(1)  # as a sleeper does: every message to it is to ring
    for result in talk.cq.get_results(8):
        if result.request_type is shmnd.RequestType.RECEIVE and result.status == 0:
            talk.qp.receive(talk.regions[1].sge(), "in")
"""


SPOILED: dict[str, Callable[[int], bool]] = {
    "drains": lambda state: True,
    "fills": lambda state: not state & select.POLLOUT,
    "blocks": lambda state: not state & select.POLLOUT,
    "shuts": lambda state: bool(state & select.POLLHUP),
    "closes": lambda state: bool(state & select.POLLHUP),
}
"""What the doorbell of the hostile peer has come to, as its victim sees it."""


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shmnd.runtime.pending, "LONGEST_SLEEP", 2 * PATIENCE)
    monkeypatch.setattr(Talk, "pause", 2 * PATIENCE)
    yield
    end_process(broker_pid())


def doorbell_of(adapter: shmnd.Adapter, pid: int) -> int:
    """Return what a process is rung by."""
    (fd,) = {
        process.doorbell.fileno()
        for peer, process in adapter._engine._peers._adapters.values()
        if peer.pid == pid
    }
    return fd


def state_of(fd: int) -> int:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return dict(poll.poll(0)).get(fd, 0)


@pytest.mark.parametrize("how", SPOILED)
def test_a_hostile_peer_spoils_only_its_own_rings(how: str) -> None:
    with (
        Child(HONEST) as honest,
        Child(HOSTILE_PEER) as hostile_peer,
        shmnd.open_adapter() as adapter,
    ):
        good = Talk.to(adapter, tuple(honest.hear()))
        bad = Talk.to(adapter, tuple(hostile_peer.hear()))
        assert hostile_peer.hear() == "talks"
        good.cq.spin = bad.cq.spin = 0.0
        hostile_peer.say(how)
        its_doorbell = doorbell_of(adapter, hostile_peer.pid)
        deadline = time.monotonic() + PATIENCE
        while not SPOILED[how](state_of(its_doorbell)):
            ring(bad)
            assert time.monotonic() < deadline, "its doorbell is neither closed nor full"
        for number in range(ROUNDS):
            ring(bad)
            good.say(number.to_bytes(4, "little"))
            assert good.hear() == number.to_bytes(4, "little")
        assert state_of(doorbell_of(adapter, honest.pid)) == select.POLLOUT


def test_a_peer_cannot_silence_the_bells_of_others() -> None:
    """Whether a queue is to be rung stands where its peers cannot write."""

    def mapped() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line for line in lines if "memfd:shmnd-bell" in line}

    before = mapped()
    with Child(HONEST) as honest, shmnd.open_adapter() as adapter:
        talk = Talk.to(adapter, tuple(honest.hear()))
        bells = [line.split() for line in mapped() - before]
        theirs = [place for place, rights, *_ in bells if "w" not in rights]
        assert len(theirs) == len(bells) - 1 > 0, "besides our own"
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        for place in theirs:
            begin, end = (int(each, 16) for each in place.split("-"))
            anew = mprotect(
                ctypes.c_void_p(begin),
                ctypes.c_size_t(end - begin),
                mmap.PROT_READ | mmap.PROT_WRITE,
            )
            assert (anew, ctypes.get_errno()) == (-1, errno.EACCES)
        talk.say(b"here")
        assert talk.hear() == b"here"


def ring(talk: Talk) -> None:
    """Send to one that lets it ring each time, and may be slow to take it."""
    with contextlib.suppress(BlockingIOError):
        talk.qp.send(talk.regions[0].sge(0, 8), "out")
    talk.cq.get_results(8)
