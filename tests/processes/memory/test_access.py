# SPDX-License-Identifier: Apache-2.0
"""Access to a broker: for the same user and, with a group, its members."""

import contextlib
import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmnd
from processes.kit import ECHO, PATIENCE, Child, Talk, broker_pid, end_process, shared_names
from shmnd import MrFlag, OpFlag, RequestType, Status
from shmnd.broker.access import Access
from shmnd.broker.place import Place

pytestmark = pytest.mark.slow

only_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="becomes other users; only root can do that"
)

ANNA, BERT, CARL = 41001, 41002, 41003
CLUB = 41900


def member(uid: int) -> dict[str, Any]:
    """Options of a process of a member of the club."""
    return {**stranger(uid), "extra_groups": [CLUB]}


def stranger(uid: int) -> dict[str, Any]:
    """Options of a process of a user that is in no group but its own."""
    return {"user": uid, "group": uid, "extra_groups": [], "python": _python()}


@functools.cache
def _python() -> str:
    """An interpreter of this version that other users may run: this one often lies in a home."""
    here = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, here):
        program = f"import sys; sys.path[:0] = {sys.path!r}; import shmnd, pytest"
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-c", program], user=CARL, capture_output=True, check=False, cwd="/"
            )
            if done.returncode == 0:
                return python
    pytest.skip("another user can run no interpreter that finds shmnd")


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder as /tmp is: every user may make something in it."""
    folder = Path(tempfile.mkdtemp(prefix="shmnd-common-"))
    folder.chmod(0o1777)
    yield folder
    for path, _, names in os.walk(folder):  # one that is about to leave removes its directory
        pid = broker_pid(Place(Path(path))) if "broker.sock" in names else 0
        if pid:
            end_process(pid)
    shutil.rmtree(folder)


def env(folder: Path) -> dict[str, str]:
    return {"SHMND_RUNTIME_DIR": str(folder / "run"), "HOME": "/nonexistent"}


IN_GROUP = ECHO.replace("open_adapter()", f"open_adapter(group={CLUB})")

ASK = f"""
address = tuple(hear())
adapter = shmnd.open_adapter(group={CLUB})
said = []
for private in (False, True):
    talk = Talk.to(adapter, address, private=private) if not said else talk
    for size in (0, 1, 48, 1000, 5000, 60000):
        data = os.urandom(size)
        talk.say(data)
        said.append(talk.hear() == data)
say(said)
hear()
adapter.close()
"""


@only_root
@pytest.mark.parametrize("private", [False, True])
def test_members_of_a_group_meet(common: Path, private: bool) -> None:
    """Also with private memory, which the kernel does not let another user's process reach."""
    ask = ASK.replace("(False, True)", f"({private},)")
    server = IN_GROUP.replace("Talk.of(listener)", f"Talk.of(listener, private={private})")
    with Child(server, **member(ANNA), env=env(common)) as anna:
        address = anna.hear()
        with Child(ask, **member(BERT), env=env(common)) as bert:
            bert.say(address)
            assert bert.hear() == [True] * 6
        for path in (common / "run", common / "run" / "default"):
            found = path.stat()
            assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o2770, CLUB)
        for path in (common / "run" / "default").iterdir():
            found = path.stat()
            assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, CLUB)


ROOT_ALONE: dict[str, Any] = {"user": 0, "group": 0, "extra_groups": []}


@only_root
@pytest.mark.parametrize("first", ["root", "member"])
def test_root_that_is_no_member_and_a_member_meet(common: Path, first: str) -> None:
    """The first one starts the broker, which serves the other one too."""
    ends = {"root": {**member(ANNA), **ROOT_ALONE}, "member": member(ANNA)}
    second = "member" if first == "root" else "root"
    with Child(IN_GROUP, **ends[first], env=env(common)) as server:
        address = server.hear()
        with Child(ASK, **ends[second], env=env(common)) as client:
            client.say(address)
            assert client.hear() == [True] * 12
            assert outcome(f"group={CLUB}", common, **member(BERT)) == "in"
            client.say(None)
    assert outcome(f"group={CLUB}", common, **stranger(CARL))[0] == "ACCESS_VIOLATION"


OBJECTS = f"""
from shmnd import ipc
os.environ["SHMND_GROUP"] = "{CLUB}"
"""
SENDS = f"""{OBJECTS}
pub = ipc.Publisher("objects", object, history=1)
pub.send({{"an": "object"}})
say("sent")
hear()
"""
RECEIVES = f"""{OBJECTS}
try:
    say(ipc.Subscriber("objects").receive(timeout=10).value)
except ipc.TypeMismatch as exc:
    say(str(exc))
"""


@only_root
@pytest.mark.parametrize("first", ["root", "member"])
def test_root_runs_no_pickles_of_members(common: Path, first: str) -> None:
    """Neither by a broker of its own nor by one of a member."""
    root = {**member(ANNA), **ROOT_ALONE}
    with contextlib.ExitStack() as stack:
        if first == "root":
            keeper = stack.enter_context(Child(IN_GROUP, **root, env=env(common)))
            keeper.hear()
        anna = stack.enter_context(Child(SENDS, **member(ANNA), env=env(common)))
        assert anna.hear() == "sent"
        other = stack.enter_context(Child(RECEIVES, **root, env=env(common)))
        assert "belongs to another user: a pickle runs code of its sender" in other.hear()
        same = stack.enter_context(Child(RECEIVES, **member(ANNA), env=env(common)))
        assert same.hear() == {"an": "object"}
        anna.say(None)


DIES = f"""
from shmnd.common import steps
from shmnd.broker.place import place_of
name = hear()
def reached(step):
    if step == name:
        os.kill(os.getpid(), 9)
steps.reached = reached
if name.startswith("broker"):
    place = place_of(group={CLUB})
    place.try_lock()
    place.listen()
shmnd.open_adapter(group={CLUB})
"""


@only_root
@pytest.mark.parametrize("name", ["directory-made", "lock-made", "broker-socket-bound"])
def test_a_half_made_entry_of_a_member_excludes_no_other_member(common: Path, name: str) -> None:
    """Which could neither mend it nor take it away."""
    with Child(DIES, **member(ANNA), env=env(common)) as anna:
        anna.say(name)
        assert anna.process.wait(PATIENCE) == -signal.SIGKILL
    assert outcome(f"group={CLUB}", common, **member(BERT)) == "in"


NEAR = f"""
import shmnd.adapter, shmnd.broker.client
pretend = hear()
if pretend:  # whose number, and which bytes of its memory, to pass off as our own
    exchange = shmnd.broker.client.BrokerClient._exchange
    def lie(self, call, op, fds, fields, deadline):
        if op == "hello":
            fields = {{**fields, "pid": pretend[0]}}
            if pretend[2]:
                fds = (*fds[:-1], os.pidfd_open(pretend[0]))
        if op == "adapter":
            fields = {{**fields, "table": {{**fields["table"], "probe": pretend[1]}}}}
        return exchange(self, call, op, fds, fields, deadline)
    shmnd.broker.client.BrokerClient._exchange = lie
adapter = shmnd.open_adapter(group={CLUB})
say(os.getpid(), adapter._probe.address, adapter._probe.nonce)
address = hear()
if address:
    talk = Talk.to(adapter, tuple(address))
else:
    listener = listening(adapter)
    say(listener.get_local_address())
    talk = Talk.of(listener)
say([peer.vm for peer, _ in adapter._engine._peers._adapters.values()])
hear()
adapter.close()
"""


def _near(common: Path, first: int, second: int, *, lies: str = "") -> bool:
    """Two members meet; does Anna take the other one's memory for that of her own process?

    The first has started the broker. When the other one lies, it claims to be a third process,
    which is Anna's and means no harm.
    """
    with contextlib.ExitStack() as stack:

        def child(user: int, pretend: object) -> tuple[Child, Any]:
            made = stack.enter_context(Child(NEAR, **member(user), env=env(common)))
            made.say(pretend)
            return made, made.hear()

        passive, (pid, *probe) = child(first, None)
        if lies:
            _, (pid, *probe) = child(ANNA, None)
        active, _ = child(second, [pid, probe, "pidfd" in lies] if lies else None)
        passive.say(None)
        active.say(passive.hear())
        (near,), (other,) = passive.hear(), active.hear()
        return bool(near if first == ANNA else other)


@only_root
def test_memory_of_another_user_is_not_reached_through_us(common: Path) -> None:
    """The kernel would let Anna copy what Bert says is his, if it is another process of hers."""
    if not _near(common, ANNA, ANNA):
        pytest.skip("the kernel lets no process copy another's memory here")
    assert not _near(common, ANNA, BERT)
    assert not _near(common, ANNA, BERT, lies="number")


@only_root
@pytest.mark.parametrize("lies", ["number", "number and pidfd"])
def test_a_process_is_not_taken_for_another_one_of_its_user(common: Path, lies: str) -> None:
    """Else a sender would write into that other one, at an address of the hostile peer's choice."""
    assert not _near(common, ANNA, ANNA, lies=lies)


@only_root
def test_the_user_of_a_memory_is_reported_by_the_own_broker(common: Path) -> None:
    with Child(IN_GROUP, **member(BERT), env=env(common)) as bert:
        bert.hear()  # it has the broker
        assert not _near(common, ANNA, ANNA)


TRY = """
try:
    shmnd.open_adapter({how})
    say("in")
except shmnd.NdError as err:
    say([err.status.name, isinstance(err, PermissionError), str(err)])
"""


def outcome(how: str, folder: Path, **options: Any) -> Any:
    with Child(TRY.format(how=how), env=env(folder), **options) as child:
        return child.hear()


@only_root
def test_a_user_outside_the_group_is_refused_at_every_gate(common: Path) -> None:
    with Child(IN_GROUP, **member(ANNA), env=env(common)) as anna:
        anna.hear()
        # by its own library,
        status, permission, text = outcome(f"group={CLUB}", common, **stranger(CARL))
        assert (status, permission) == ("ACCESS_VIOLATION", True)
        assert f"group {CLUB}" in text
        assert "not in it" in text
        # by the directory,
        status, permission, text = outcome("", common, **stranger(CARL))
        assert (status, permission) == ("ACCESS_VIOLATION", True)
        assert str(common / "run") in text
        # and, if another process opens that, by the broker.
        for path in (common / "run", common / "run" / "default", *(common / "run").glob("*/*")):
            path.chmod(0o777)
        status, text = _knock(common, CARL)
        assert status == Status.ACCESS_VIOLATION
        assert f"serves uid {ANNA}, group {CLUB} and root only" in text
        assert _knock(common, BERT, extra_groups=[CLUB])[0] == Status.INVALID_PARAMETER


def _knock(folder: Path, uid: int, extra_groups: list[int] | None = None) -> tuple[int, str]:
    """Send a request at the socket itself, without the checks of the library."""
    program = """
import socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(hear())
try:
    sock.send(b'{"op":"hello","id":1}')
    say(json.loads(sock.recv(9999)))
except OSError:  # turned away before it said a word; the answer is there
    say(json.loads(sock.recv(9999)))
"""
    options = {**stranger(uid), "extra_groups": extra_groups or []}
    with Child(program, kit=False, **options) as child:
        child.say(str(folder / "run" / "default" / "broker.sock"))
        reply = child.hear()
    return reply["status"], reply["message"]


@only_root
def test_another_user_gets_a_clear_refusal(common: Path) -> None:
    """Two users with the same settings and no group: the second one learns the owner."""
    program = ECHO
    with Child(program, **stranger(ANNA), env=env(common)) as anna:
        anna.hear()
        status, permission, text = outcome("", common, **stranger(BERT))
        assert (status, permission) == ("ACCESS_VIOLATION", True)
        assert str(common / "run") in text
        # Also when the modes were opened by hand: the library checks the owner,
        for path in (common / "run", common / "run" / "default", *(common / "run").glob("*/*")):
            path.chmod(0o777)
        status, _, text = outcome("", common, **stranger(BERT))
        assert status == "ACCESS_VIOLATION"
        # and the broker at its clients.
        status, text = _knock(common, BERT)
        assert status == Status.ACCESS_VIOLATION
        assert f"serves uid {ANNA} only" in text
        # The process that was there is not disturbed, and others of its user come in.
        for path in (common / "run", common / "run" / "default"):
            path.chmod(0o700)
        assert outcome("", common, **stranger(ANNA)) == "in"


@only_root
def test_a_broker_of_another_user_is_not_trusted(common: Path) -> None:
    """A socket that another user has put there: the client asks the kernel which user serves it."""
    directory = common / "run" / "default"
    directory.mkdir(parents=True)
    for path in (directory.parent, directory):
        os.chown(path, BERT, BERT)
        path.chmod(0o700)
    impostor = """
from pathlib import Path
from shmnd.broker.place import Place
sock = Place(Path(hear())).listen()
say("there")
hear()
"""
    with Child(impostor) as root:  # it may write anywhere
        root.say(str(directory))
        assert root.hear() == "there"
        (directory / "broker.sock").chmod(0o666)
        status, permission, text = outcome("", common, **stranger(BERT))
        assert (status, permission) == ("ACCESS_VIOLATION", True)
        assert "runs as uid 0" in text


@only_root
def test_a_group_of_none_of_the_members_is_refused(common: Path) -> None:
    status, _, text = outcome("group='no-such-group'", common, **member(ANNA))
    assert status == "INVALID_PARAMETER"
    assert "no-such-group" in text
    for bad in ("-1", "2**40", "True"):
        assert outcome(f"group={bad}", common, **member(ANNA))[0] == "INVALID_PARAMETER"


@only_root
def test_a_directory_with_other_modes_is_not_used_for_a_group(common: Path) -> None:
    directory = common / "run"
    directory.mkdir()
    os.chown(directory, ANNA, CLUB)
    directory.chmod(0o2770)
    inside = directory / "default"
    inside.mkdir()
    os.chown(inside, ANNA, CLUB)
    inside.chmod(0o2777)
    status, _, text = outcome(f"group={CLUB}", common, **member(ANNA))
    assert status == "ACCESS_VIOLATION"
    assert "2777" in text
    assert str(inside) in text


@only_root
def test_many_members_start_at_once(common: Path) -> None:
    """No process meets a directory, a lock or a socket that is half made."""
    program = f"""
say("ready")
hear()
adapter = shmnd.open_adapter(group={CLUB})
say(adapter._engine.client.broker)
hear()
"""
    children = [
        Child(program, **member(uid), env=env(common)) for uid in (ANNA, BERT, CARL) * 3
    ]  # fmt: skip
    try:
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.say("go")
        assert len({child.hear() for child in children}) == 1
    finally:
        for child in children:
            child.__exit__()


@only_root
def test_segments_cannot_be_opened_by_a_third_process() -> None:
    """They have no name; and where /proc shows them, the kernel checks the reader."""
    spy = """
import glob
opened = []
for path in glob.glob(f"/proc/{hear()}/fd/*"):
    try:
        opened.append(os.readlink(path))
        os.open(path, os.O_RDONLY)
    except OSError:
        pass
say(opened)
"""
    before = shared_names()  # other programs of this machine may have some
    with shmnd.open_adapter() as adapter, Child(ECHO) as echo:
        talk = Talk.to(adapter, tuple(echo.hear()))
        assert shared_names() <= before
        with Child(spy, kit=False, **stranger(BERT)) as child:
            child.say(os.getpid())
            assert child.hear() == []
        talk.say(b"still")
        assert talk.hear() == b"still"


# -- tokens --


class Owner:
    """A region and windows on it, and two peers in this process."""

    def __init__(self, adapter: shmnd.Adapter) -> None:
        self.adapter = adapter
        self.listener = adapter.create_listener()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.memory = adapter.allocate(8192)
        self.region = adapter.create_memory_region()
        both = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
        self.region.register(self.memory, both).result(PATIENCE)

    def pair(self, other: shmnd.Adapter) -> tuple[Talk, Talk]:
        """A connection: the owner's end, and the peer's."""
        waiting, talk = Talk(self.adapter), Talk(other)
        request = self.listener.get_connection_request(waiting.connector)
        answer = talk.connector.connect(talk.qp, self.listener.get_local_address(), 4, 4)
        request.result(PATIENCE)
        waiting.connector.accept(waiting.qp, 4, 4)
        answer.result(PATIENCE)
        talk.connector.complete_connect().result(PATIENCE)
        return waiting, talk

    def window(self, owner: Talk, offset: int = 0, length: int = 4096) -> Any:
        """A window that lets the peer of one queue pair read and write."""
        window = self.adapter.create_memory_window()
        flags = OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE
        begin = self.region.address + offset
        owner.qp.bind(self.region, window, begin, length, "bound", flags=flags)
        results = owner.cq.wait(4, PATIENCE)
        assert [r.status for r in results] == [Status.SUCCESS]
        return window


def attempt(talk: Talk, what: str, address: int, token: int) -> Status:
    """Try a Read or Write of 8 bytes; return the outcome."""
    call = talk.qp.write if what == "write" else talk.qp.read
    region = talk.regions[0 if what == "write" else 1]
    talk.out[:8] = 0x66
    call(region.sge(0, 8), address, token, "attempt")
    while True:
        for result in talk.cq.wait(8, PATIENCE) or pytest.fail("no completion"):
            if result.request_type in (RequestType.READ, RequestType.WRITE):
                return Status(result.status)


@pytest.mark.parametrize("what", ["read", "write"])
@pytest.mark.parametrize(
    "kind",
    [
        "a window of another connection",
        "a window before it was bound anew",
        "a window that was invalidated",
        "a region before it was registered anew",
        "another window's range",
        "a guess",
        "another adapter's region",
    ],
)
def test_a_token_passes_only_where_it_belongs(kind: str, what: str) -> None:
    with shmnd.open_adapter() as mine, shmnd.open_adapter() as other:
        owner = Owner(mine)
        here, there = owner.pair(other)
        address, length = owner.region.address, 4096
        window = owner.window(here)
        assert attempt(there, what, address, window.remote_token) is Status.SUCCESS, "it may"
        owner.memory[:] = 0x11
        token = window.remote_token
        if kind == "a window of another connection":
            _, there = owner.pair(other)
        elif kind in ("a window before it was bound anew", "a window that was invalidated"):
            here.qp.invalidate(window, "invalidated")
            assert [r.status for r in here.cq.wait(4, PATIENCE)] == [Status.SUCCESS]
            if "anew" in kind:
                flags = OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE
                here.qp.bind(owner.region, window, address, length, "again", flags=flags)
                assert [r.status for r in here.cq.wait(4, PATIENCE)] == [Status.SUCCESS]
                assert window.remote_token != token
        elif kind == "a region before it was registered anew":
            here.qp.invalidate(window, "invalidated")
            assert [r.status for r in here.cq.wait(4, PATIENCE)] == [Status.SUCCESS]
            token = owner.region.remote_token
            owner.region.deregister().result(PATIENCE)
            both = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
            owner.region.register(owner.memory, both).result(PATIENCE)
            assert owner.region.remote_token != token
        elif kind == "another window's range":
            owner.window(here, 4096, 4096)
            address += 4096
        elif kind == "a guess":
            token ^= 0x5A5A5A
        else:
            token = Owner(other).region.remote_token ^ (1 << 20)
        assert attempt(there, what, address, token) is not Status.SUCCESS
        assert (owner.memory == 0x11).all()


def test_access_names_its_users() -> None:
    assert str(Access()) == f"uid {os.geteuid()} only"
    assert str(Access(5)) == f"uid {os.geteuid()}, group 5 and root only"


REMOTE = f"""
import numpy as np
from shmnd import MrFlag
adapter = shmnd.open_adapter(group={CLUB})
listener = listening(adapter)
private, shared = np.full(4096, 7, np.uint8), adapter.allocate(4096)
shared[:] = 9
rights = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
said = [listener.get_local_address()]
for buffer in (shared, private):
    region = adapter.create_memory_region()
    region.register(buffer, rights).result(20)
    said.append([region.address, region.remote_token])
    globals()[f"kept{{len(said)}}"] = region
say(said)
for _ in range(2):
    talk = Talk(adapter)
    listener.get_connection_request(talk.connector).result(20)
    talk.connector.accept(talk.qp, 4, 4).result(20)
    globals()[f"talk{{_}}"] = talk
hear()
say([int(private[0]), int(shared[0])])
"""

READER = f"""
from shmnd import RequestType
adapter = shmnd.open_adapter(group={CLUB})
address, *places = hear()
said = []
for where, token in places:
    talk = Talk(adapter)
    talk.connector.connect(talk.qp, tuple(address), 4, 4).result(20)
    talk.connector.complete_connect().result(20)
    talk.qp.read(talk.regions[0].sge(0, 8), where, token, "read")
    done = []
    while not done:
        done = [r for r in talk.cq.wait(8, 20) if r.request_type is RequestType.READ]
    said.append([done[0].status.name, int(talk.out[0])])
say(said)
hear()
"""


@only_root
def test_a_copy_that_another_user_may_not_make_fails_cleanly(common: Path) -> None:
    """Shared memory is read at once; private memory is out of reach, and that is a status."""
    with (
        Child(REMOTE, **member(ANNA), env=env(common)) as anna,
        Child(READER, **member(BERT), env=env(common)) as bert,
    ):
        bert.say(anna.hear())
        shared, private = bert.hear()
        assert shared == ["SUCCESS", 9]
        assert private[0] != "SUCCESS"
        assert private[1] == 0
        anna.say("over")
        assert anna.hear() == [7, 9]
