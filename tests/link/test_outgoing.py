# SPDX-License-Identifier: Apache-2.0
"""The two halves of a link by themselves, over a wire that is a table of functions."""

import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from link.kit import PATIENCE, half, unique, until
from shmnd import ipc
from shmnd.directory import Directory
from shmnd_tools.link import wire
from shmnd_tools.link.incoming import LATEST, WAITING, Incoming
from shmnd_tools.link.outgoing import Outgoing
from shmnd_tools.link.wire import Message
from shmnd_tools.sample_kinds import ARRAY, BYTES, OBJECT


class Table:
    """Stands for a session: messages go at once to those that listen, and are kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self._heard: dict[str, Callable[[str, bytes, bytes], None]] = {}

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        self.sent.append((key, wire.unpack(attachment)))
        if key in self._heard:
            self._heard[key](key, payload, attachment)

    def listen(self, key: str, heard: Callable[[str, bytes, bytes], None]) -> str:
        self._heard[key] = heard
        return key

    def token(self, key: str) -> str:
        return key

    def end(self, declared: Any) -> None:
        for key in declared:
            self._heard.pop(key, None)

    def kinds_of(self, uid: str) -> list[tuple[int, int]]:
        found = wire.key("data", "here", uid)
        return [(told.kind, told.sequence) for key, told in self.sent if key == found]


@pytest.fixture
def namespace() -> str:
    return unique("half")


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def outgoing(table: Table, namespace: str) -> Iterator[Outgoing]:
    made = Outgoing(half(table, namespace), "t")
    yield made
    made.close()


def _uid(pub: ipc.Publisher) -> str:
    return pub._adapter.uid


class Reading:
    """Stands for a subscriber that begins with sample 3 of each publisher, once it reads them."""

    def __init__(self) -> None:
        self.reads = False
        self.looks = 0

    def first(self, uid: str) -> int | None:
        self.looks += 1
        return 3 if self.reads else None


class FailingOnce(Table):
    """A wire that does not send the next message."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = True

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        if self.fails:
            self.fails = False
            raise OSError("faked")
        super().send(key, payload, attachment, block=block)


def test_ends_that_were_not_sent_are_sent_later(namespace: str) -> None:
    """All of them, with their numbers; and the topic is carried as before."""
    table, said = FailingOnce(), list[str]()
    table.fails = False
    made = Outgoing(half(table, namespace, said.append), "t")
    pubs = [ipc.Publisher("t", "i8", namespace=namespace) for _ in range(3)]
    try:
        for pub in pubs:
            _offer(made, pub)
            pub.wait_for_subscribers(1, PATIENCE)
            pub.send(np.int64(0))
        until(lambda: all(len(table.kinds_of(_uid(pub))) == 2 for pub in pubs))
        table.fails = True
        for pub in pubs[:2]:
            made.leave(_uid(pub))
        for pub in pubs[:2]:
            until(lambda pub=pub: table.kinds_of(_uid(pub))[-1] == (wire.END, 1))
            until(lambda pub=pub: not made.offers(_uid(pub)))
        assert said == ["t: faked"]
    finally:
        made.close()
        for pub in pubs:
            pub.close()


class RefusingAll(Table):
    """A wire that takes nothing for a while."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__()
        self.kind = kind
        self.refuses = False
        self.refused: list[int] = []

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        if self.refuses:
            self.refused.append(wire.unpack(attachment).sequence)
            raise self.kind("faked")
        super().send(key, payload, attachment, block=block)


@pytest.mark.parametrize("kind", [OSError, MemoryError])
@pytest.mark.parametrize("mode", [LATEST, WAITING])
def test_a_sample_that_was_not_sent(mode: str, kind: type[Exception], namespace: str) -> None:
    """It is sent again where a far subscriber waits for it, or where it is the newest one."""
    table = RefusingAll(kind)
    made = Outgoing(half(table, namespace), "t")
    with ipc.Publisher("t", "i8", namespace=namespace) as pub:
        try:
            _offer(made, pub, mode)
            pub.wait_for_subscribers(1, PATIENCE)
            pub.send(np.int64(0))
            until(lambda: len(table.kinds_of(_uid(pub))) == 2)
            table.refuses = True
            pub.send(np.int64(1))
            until(lambda: len(table.refused) > 1)
            assert set(table.refused) == {1}
            assert made._traffic.lost == 0
            for number in (2, 3):
                pub.send(np.int64(number))
            if mode == LATEST:
                until(lambda: 3 in table.refused)
            table.refuses = False
            until(lambda: table.kinds_of(_uid(pub))[-1][1] == 3)
            came = [number for _, number in table.kinds_of(_uid(pub))[1:]]
            assert came == ([0, 1, 2, 3] if mode == WAITING else [0, 3])
            assert (made._traffic.number, made._traffic.lost) == (len(came), 4 - len(came))
        finally:
            made.close()


def test_a_begin_that_was_not_sent_is_sent_with_the_next_sample(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, reading = FailingOnce(), Reading()
    made = Outgoing(half(table, namespace), "t")
    # No subscriber of its own thread: this one begins.
    monkeypatch.setattr(made, "_subscriber_as_wanted", lambda _: None)
    try:
        made.enter("uid", "{}")
        made.want("uid", "far", LATEST, wanted=True)
        reading.reads = True
        with pytest.raises(OSError, match="faked"):
            made._begin(cast("Any", reading))
        for _ in range(3):
            made._begin(cast("Any", reading))
        assert table.kinds_of("uid") == [(wire.BEGIN, 3)], "once"
    finally:
        made.close()


def _offer(outgoing: Outgoing, pub: ipc.Publisher, mode: str = LATEST) -> None:
    outgoing.enter(_uid(pub), "{}")
    outgoing.want(_uid(pub), "far", mode, wanted=True)


@pytest.mark.parametrize("mode", [LATEST, WAITING])
def test_a_publisher_that_no_link_wants_has_no_subscriber(
    mode: str, table: Table, outgoing: Outgoing, namespace: str
) -> None:
    """The one that links want ends as the next one comes, which waits for a subscriber."""
    with ipc.Publisher("t", "i8", namespace=namespace) as second:
        with ipc.Publisher("t", "i8", namespace=namespace) as first:
            _offer(outgoing, first, mode)
            first.wait_for_subscribers(1, PATIENCE)
            first.send(np.int64(0))
            until(lambda: len(table.kinds_of(_uid(first))) == 2)
            assert second.subscribers == 0
        outgoing.enter(_uid(second), "{}")
        outgoing.leave(_uid(first))
        until(lambda: table.kinds_of(_uid(first))[-1] == (wire.END, 1))
        assert second.subscribers == 0
        outgoing.want(_uid(second), "far", mode, wanted=True)
        second.wait_for_subscribers(1, PATIENCE)
        for number in range(50):
            second.send(np.int64(number))
        outgoing.leave(_uid(second))
        until(lambda: table.kinds_of(_uid(second))[-1:] == [(wire.END, 50)])
        begin, *samples, _ = table.kinds_of(_uid(second))
        assert begin == (wire.BEGIN, 0)
        assert [sequence for _, sequence in samples] == list(range(50))


def test_the_first_samples_of_one_more_publisher_are_carried(
    table: Table, outgoing: Outgoing, namespace: str
) -> None:
    """It sends before the links have answered, as the topic was wanted before it came."""
    with ipc.Publisher("t", "i8", namespace=namespace) as first:
        _offer(outgoing, first)
        first.wait_for_subscribers(1, PATIENCE)
        with ipc.Publisher("t", "i8", namespace=namespace) as second:
            for number in range(20):
                second.send(np.int64(number))
            outgoing.enter(_uid(second), "{}")
            came = float("inf")  # it came just now, however slow this is
            outgoing._publishers[_uid(second)].came = came
            outgoing.want(_uid(second), "far", LATEST, wanted=True)
            until(lambda: len(table.kinds_of(_uid(second))) == 21)
            assert [number for _, number in table.kinds_of(_uid(second))] == [0, *range(20)]


def test_a_garbled_sample_is_left_out_and_the_next_one_carried(
    table: Table, outgoing: Outgoing, namespace: str
) -> None:
    with ipc.Publisher("t", namespace=namespace) as pub:
        _offer(outgoing, pub)
        pub.wait_for_subscribers(1, PATIENCE)
        pub._put_array(np.zeros(30), b"no description", None, None)
        pub.send(np.arange(3))
        until(lambda: len(table.kinds_of(_uid(pub))) == 2)
        assert [number for _, number in table.kinds_of(_uid(pub))] == [0, 1]
    assert outgoing._traffic.lost == 1


def test_a_publisher_that_no_link_wants_any_longer_is_left(
    table: Table, outgoing: Outgoing, namespace: str
) -> None:
    with (
        ipc.Publisher("t", "i8", namespace=namespace) as first,
        ipc.Publisher("t", "i8", namespace=namespace) as second,
    ):
        for pub in (first, second):
            _offer(outgoing, pub)
            pub.wait_for_subscribers(1, PATIENCE)
        outgoing.want(_uid(first), "far", LATEST, wanted=False)
        until(lambda: first.subscribers == 0)
        assert second.subscribers == 1
        outgoing.want(_uid(first), "far", LATEST, wanted=True)
        first.wait_for_subscribers(1, PATIENCE)
        first.send(np.int64(1))
        until(lambda: table.kinds_of(_uid(first))[-1:] == [(1, 0)])


class Ordered(Table):
    """Keeps the order of tokens and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        self.order.append(f"kind {wire.unpack(attachment).kind}")

    def token(self, key: str) -> str:
        self.order.append("token " + wire.parts(key)[3])
        return key

    def end(self, declared: Any) -> None:
        self.order += ["end " + wire.parts(key)[3] for key in declared]


@pytest.fixture
def unread(namespace: str, monkeypatch: pytest.MonkeyPatch) -> Outgoing:
    """A topic whose thread does not run."""
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    made = Outgoing(half(Ordered(), namespace), "t")
    monkeypatch.undo()
    return made


def test_a_publisher_that_comes_again_before_its_end_was_sent_is_offered_again(
    unread: Outgoing,
) -> None:
    """As after the start of another broker, to which it announces itself late."""
    unread.enter("uid", "first")
    unread.leave("uid")
    unread.enter("uid", "second")
    assert unread.offers("uid")
    unread._send_ends(None)
    order = cast("Any", unread._session).order
    assert order == ["token first", f"kind {wire.END}", "end first", "token second"]
    assert unread.offers("uid")
    unread.want("uid", "far", LATEST, wanted=True)
    assert unread._wishes.policy() == "drop_oldest"
    assert set(unread._wishes.wants) == {"uid"}


def test_a_publisher_that_comes_again_and_goes_ends_once(unread: Outgoing) -> None:
    unread.enter("uid", "first")
    unread.leave("uid")
    unread.enter("uid", "second")
    unread.leave("uid")
    unread._send_ends(None)
    unread._send_ends(None)
    order = cast("Any", unread._session).order
    assert order == ["token first", f"kind {wire.END}", "end first"]
    assert not unread.offers("uid")


@pytest.fixture
def incoming(table: Table, namespace: str) -> Iterator[Incoming]:
    offer = {"name": "t", "attributes": {}, "history": 0}
    with ipc.Publisher("type", "i8", namespace=namespace) as pub:
        offer["type"] = pub.type.description
    made = Incoming(half(table, namespace), "there", "far", offer, None)
    yield made
    made.close(drain=False)


def _arrive(incoming: Incoming, kind: int, sequence: int) -> None:
    array = np.array(sequence, "i8")
    meta = b"" if kind in (wire.BEGIN, wire.END) else wire.forms.description(array, "test")
    incoming._on_sample("", array.tobytes(), wire.pack(Message(kind, sequence, None, meta)))


def test_a_taken_sample_is_reported_again_after_a_failure(
    incoming: Incoming, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The far publisher waits for it."""
    tried: list[int] = []

    def send(_: str, payload: bytes, *, block: bool) -> None:
        assert block
        tried.append(int.from_bytes(payload, "little"))
        if len(tried) == 1:
            raise OSError("faked")

    monkeypatch.setattr(table, "send", send)
    incoming.want(WAITING)
    _arrive(incoming, ARRAY, 0)
    until(lambda: len(tried) == 2)
    _arrive(incoming, ARRAY, 1)
    until(lambda: tried == [0, 0, 1])


@pytest.mark.parametrize(("mode", "lost"), [(LATEST, 8), (None, 2)])
def test_the_end_counts_missing_samples(mode: str | None, lost: int, incoming: Incoming) -> None:
    """But not what no subscriber wanted any longer."""
    incoming.want(LATEST)
    _arrive(incoming, wire.BEGIN, 0)
    for sequence in (2, 3):
        _arrive(incoming, ARRAY, sequence)
    until(lambda: incoming.last == 3)
    incoming.want(mode)
    _arrive(incoming, wire.END, 10)
    until(lambda: incoming._ended)
    assert (incoming._traffic.number, incoming._traffic.lost) == (2, lost)


@pytest.mark.parametrize("kind", [BYTES, OBJECT, 77])
def test_a_sample_of_another_kind_than_its_topic_is_left_out(kind: int, incoming: Incoming) -> None:
    """The far link says what its topic holds, and then sends what it likes."""
    incoming.want(LATEST)
    _arrive(incoming, kind, 0)
    _arrive(incoming, ARRAY, 1)
    until(lambda: incoming.last == 1 and incoming._traffic.number == 1)
    assert incoming._traffic.lost == 1


_READER = """
import sys
from shmnd import ipc
with ipc.Subscriber("t", "i8", buffer=256, namespace=sys.argv[1]) as sub:
    print(sub.publishers, flush=True)
    sys.stdin.readline()
    print([int(sub.receive(30).value) for _ in range(100)] == list(range(100)), sub.lost)
"""


def test_samples_that_come_at_once_find_the_room_that_was_asked_for(
    incoming: Incoming, namespace: str
) -> None:
    """A board is as long as its subscribers ask for before the far link hears of them."""
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, namespace],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        directory = Directory(incoming.publisher._adapter)
        seats = {seat.key for seat in directory.find("ipc.seat", incoming.publisher_uid)}
        incoming.seat(seats)
        assert incoming.publisher._seats.count == 1  # before the first sample
        incoming.want(LATEST)
        for sequence in range(100):
            _arrive(incoming, ARRAY, sequence)
        until(lambda: incoming._traffic.number == 100)
        out, _ = reader.communicate("\n", timeout=PATIENCE)
        assert out == "True 0\n"
    finally:
        reader.kill()
        reader.communicate()


def test_samples_do_not_check_a_link_that_has_begun(
    table: Table, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    monkeypatch.setattr(threading.Thread, "join", lambda _: None)
    sub = Reading()
    outgoing = Outgoing(half(table, namespace), "t")
    monkeypatch.undo()
    begin = functools.partial(outgoing._begin, cast("Any", sub))
    outgoing.enter("uid", "{}")
    for far in "one", "two":
        looks = sub.looks
        outgoing.want("uid", far, LATEST, wanted=True)
        sub.reads = False
        begin()
        sub.reads = True
        begin()
        assert table.kinds_of("uid")[-1:] == [(wire.BEGIN, 3)]
        assert sub.looks == looks + 2
        changed, outgoing._changed = outgoing._changed, cast("Any", None)
        begin()  # neither a lock nor a look
        outgoing._changed = changed
    assert len(table.sent) == 2
