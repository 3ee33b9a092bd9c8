# SPDX-License-Identifier: Apache-2.0
"""`shmnd ipc link`: topics and services of one namespace in another, over zenoh."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from link.kit import PATIENCE, Links, free_endpoint, links, unique, until
from shmnd import ipc
from shmnd_tools.main import main

pytest.importorskip("zenoh", reason="pip install 'shmnd[link]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ALL = ("--topic", "*", "--service", "*")


@dataclass
class State:
    step: int
    speed: float


@pytest.fixture
def started() -> Iterator[Links]:
    with links() as found:
        yield found


@pytest.fixture
def here() -> str:
    return unique("here")


@pytest.fixture
def there() -> str:
    return unique("there")


TYPES: list[tuple[Any, Any]] = [
    ("f4", np.arange(6, dtype="f4").reshape(2, 3)),
    ("u1", np.zeros((0, 3), "u1")),
    (">i2", np.arange(4, dtype=">i2")),
    ("u1", np.arange(32, dtype="u1").reshape(2, 2, 2, 2, 2)),
    (ipc.Array("f8", (2, 2)), np.ones((2, 2))),
    (bytes, b"some text"),
    (bytes, b""),
    (None, np.arange(5, dtype="i8")),
    (None, b"bytes as they are"),
]


def test_a_sample_arrives_as_it_was_sent(started: Links, here: str, there: str) -> None:
    started.pair(here, there, *ALL)
    for number, (type_, value) in enumerate(TYPES):
        _arrives(f"t{number}", type_, value, here, there)


def _arrives(topic: str, type_: Any, value: Any, here: str, there: str) -> None:
    with (
        ipc.Publisher(topic, type_, history=2, attributes={"unit": "m"}, namespace=here) as pub,
        ipc.Subscriber(topic, type_, namespace=there) as sub,
    ):
        pub.send(value, b"its header")
        pub.send(value)
        with sub.receive(PATIENCE) as sample:
            np.testing.assert_array_equal(sample.value, value)
            if isinstance(value, np.ndarray):
                assert (sample.value.dtype, sample.value.shape) == (value.dtype, value.shape)
            assert sample.header == b"its header"
        with sub.receive(PATIENCE) as sample:
            assert sample.header is None
        (found,) = (each for each in ipc.topics(namespace=there) if each.name == topic)
        assert found.attributes == {"unit": "m"}


def test_a_publisher_that_is_started_anew_with_another_type_is_carried(
    started: Links, here: str, there: str
) -> None:
    started.pair(here, there, *ALL)
    found = []
    with ipc.Subscriber("anew", namespace=there) as sub:
        for type_ in ("i4", "f8", "i4", "u1", "f4"):
            with ipc.Publisher("anew", type_, history=1, namespace=here) as pub:
                pub.send(np.ones(3, type_))
                while found[-1:] != [type_]:
                    try:
                        found.append(sub.receive(timeout=PATIENCE).array.dtype.str[1:])
                    except ipc.TypeMismatch:
                        sub.adopt()
    assert found == ["i4", "f8", "i4", "u1", "f4"]


def test_records_go_over_and_late_comers_get_history(started: Links, here: str, there: str) -> None:
    started.pair(here, there, *ALL)
    with ipc.Publisher("state", State, history=3, namespace=here) as pub:
        for step in range(5):
            pub.send(State(step, step / 2))
        for _ in range(2):  # the second one comes when the first one has gone
            with ipc.Subscriber("state", State, namespace=there) as sub:
                for step in (2, 3, 4):
                    value = sub.receive(PATIENCE).value
                    assert (int(value.step), float(value.speed)) == (step, step / 2)


def test_both_ways_at_once_and_nothing_comes_back(started: Links, here: str, there: str) -> None:
    """Both namespaces have a publisher and a subscriber of one name."""
    first, second = started.pair(here, there, *ALL)
    with (
        ipc.Publisher("t", bytes, namespace=here) as pub_here,
        ipc.Publisher("t", bytes, namespace=there) as pub_there,
        ipc.Subscriber("t", bytes, buffer=256, namespace=here) as sub_here,
        ipc.Subscriber("t", bytes, buffer=256, namespace=there) as sub_there,
    ):
        until(lambda: sub_here.publishers == 2 and sub_there.publishers == 2)
        until(lambda: pub_here.subscribers == 2 and pub_there.subscribers == 2)
        for number in range(50):
            pub_here.send(b"here %d" % number)
            pub_there.send(b"there %d" % number)
        for sub in (sub_here, sub_there):
            got = [sub.receive(PATIENCE).value for _ in range(100)]
            for word in (b"here", b"there"):
                mine = [value for value in got if value.split()[0] == word]
                assert mine == [b"%s %d" % (word, number) for number in range(50)]
            with pytest.raises(TimeoutError):
                sub.receive(0.3)
    for link in (first, second):
        counts = {row["direction"]: (row["number"], row["lost"]) for row in link.stop()}
        assert counts == {"in": (50, 0), "out": (50, 0)}


def test_a_ring_of_links_carries_each_sample_once(started: Links) -> None:
    """Three namespaces, each linked with both others: no sample takes the long way."""
    names = [unique("ring") for _ in range(3)]
    for one, two in ((0, 1), (1, 2), (2, 0)):
        started.pair(names[one], names[two], *ALL)
    with ipc.Publisher("t", "i8", namespace=names[0]) as pub:
        subs = [ipc.Subscriber("t", "i8", buffer=64, namespace=name) for name in names]
        until(lambda: all(sub.publishers == 1 for sub in subs))
        until(lambda: pub.subscribers == 3)  # its own, and two links
        for number in range(30):
            pub.send(np.int64(number))
        for sub in subs:
            assert [int(sub.receive(PATIENCE).value) for _ in range(30)] == list(range(30))
            with pytest.raises(TimeoutError):
                sub.receive(0.3)
            assert sub.publishers == 1
            sub.close()


def test_a_link_of_a_namespace_with_itself_doubles_nothing(started: Links, here: str) -> None:
    started.pair(here, here, *ALL)
    with (
        ipc.Publisher("t", "i8", namespace=here) as pub,
        ipc.Subscriber("t", "i8", namespace=here) as sub,
    ):
        pub.send(np.int64(1))
        assert int(sub.receive(PATIENCE).value) == 1
        with pytest.raises(TimeoutError):
            sub.receive(1.0)
        assert sub.publishers == 1


def test_topics_that_were_not_chosen_stay(started: Links, here: str, there: str) -> None:
    started.pair(here, there, "--topic", "camera*")
    with (
        ipc.Publisher("camera/left", "u1", history=1, namespace=here) as pub,
        ipc.Publisher("secret", "u1", history=1, namespace=here) as secret,
        ipc.Publisher("camera/pickles", object, history=1, namespace=here),
        ipc.Subscriber("camera/left", namespace=there) as sub,
    ):
        pub.send(np.ones(3, "u1"))
        secret.send(np.ones(3, "u1"))
        assert sub.receive(PATIENCE).array.sum() == 3
        names = {topic.name for topic in ipc.topics(namespace=there)}
        assert names == {"camera/left"}


def test_objects_go_where_they_are_allowed(started: Links, here: str, there: str) -> None:
    started.pair(here, there, "--topic", "*", "--objects")
    with (
        ipc.Publisher("t", object, history=1, namespace=here) as pub,
        ipc.Subscriber("t", object, namespace=there) as sub,
    ):
        pub.send({"frame": np.arange(100), "name": "left"})
        value = sub.receive(PATIENCE).value
        assert value["name"] == "left"
        assert value["frame"].sum() == 4950


# -- order and loss


def test_a_subscriber_that_blocks_gets_all_in_order(started: Links, here: str, there: str) -> None:
    first, second = started.pair(here, there, *ALL)
    with (
        ipc.Publisher("t", "i8", namespace=here) as pub,
        ipc.Subscriber("t", "i8", overflow="block", buffer=4, namespace=there) as sub,
    ):
        until(lambda: sub.publishers == 1 and pub.subscribers == 1)
        sender = threading.Thread(target=lambda: [pub.send(np.int64(n)) for n in range(2000)])
        sender.start()
        assert [int(sub.receive(PATIENCE).value) for _ in range(2000)] == list(range(2000))
        sender.join(PATIENCE)
        assert sub.lost == 0
    (row,) = second.stop()
    assert (row["number"], row["lost"]) == (2000, 0)
    (row,) = first.stop()
    assert (row["number"], row["lost"]) == (2000, 0)


def test_the_publisher_waits_for_a_far_subscriber_that_blocks(
    started: Links, here: str, there: str
) -> None:
    started.pair(here, there, *ALL)
    with (
        ipc.Publisher("t", "i8", namespace=here) as pub,
        ipc.Subscriber("t", "i8", overflow="block", buffer=4, namespace=there) as sub,
    ):
        until(lambda: sub.publishers == 1 and pub.subscribers == 1)
        sent = 0
        while sent < 1000:
            try:
                pub.send(np.int64(sent), timeout=1.0)
            except TimeoutError:
                break
            sent += 1
        assert 4 <= sent < 1000
        assert [int(sub.receive(PATIENCE).value) for _ in range(sent)] == list(range(sent))


def test_samples_that_were_dropped_are_counted(started: Links, here: str, there: str) -> None:
    _, second = started.pair(here, there, *ALL)
    large = np.zeros(1 << 20, "u1")
    with (
        ipc.Publisher("t", "u1", namespace=here) as pub,
        ipc.Subscriber("t", "u1", buffer=1 << 12, max_held=1, namespace=there) as sub,
    ):
        until(lambda: sub.publishers == 1 and pub.subscribers == 1)
        number = 600
        for place in range(number):
            large[:4] = np.frombuffer(np.uint32(place).tobytes(), "u1")
            pub.send(large)
        got: list[int] = []
        while not got or got[-1] != number - 1:
            with sub.receive(PATIENCE) as sample:
                got.append(int(np.frombuffer(sample.array[:4].tobytes(), "u4")[0]))
        assert got == sorted(set(got))
        lost = sub.lost
        pub.close()
        until(lambda: sub.publishers == 0)  # the link has ended it there, and counted all
    (row,) = second.stop()
    assert row["number"] == len(got) + lost
    assert row["number"] + row["lost"] == number


# -- comings, goings and deaths


def test_a_publisher_that_goes_ends_its_samples_in_order(
    started: Links, here: str, there: str
) -> None:
    started.pair(here, there, *ALL)
    with ipc.Subscriber("t", "i8", overflow="block", namespace=there) as sub:
        for _ in range(3):
            with ipc.Publisher("t", "i8", namespace=here) as pub:
                until(lambda: sub.publishers == 1)
                pub.wait_for_subscribers(1, PATIENCE)
                for number in range(100):
                    pub.send(np.int64(number))
            assert [int(sub.receive(PATIENCE).value) for _ in range(100)] == list(range(100))
            until(lambda: sub.publishers == 0)


@pytest.mark.parametrize(("policy", "overlap"), [("drop_oldest", False), ("block", True)])
def test_publishers_that_come_as_others_go_lose_nothing(
    policy: str, overlap: bool, started: Links, here: str, there: str
) -> None:
    """Each sends at once when it has a subscriber, which is the link or none."""
    _, second = started.pair(here, there, *ALL)
    rounds, number = 6, 100
    got: list[int] = []

    def send() -> None:
        before: ipc.Publisher | None = None
        for turn in range(rounds):
            pub = ipc.Publisher("t", "i8", namespace=here)
            pub.wait_for_subscribers(1, PATIENCE)
            if before is not None and overlap:
                before.close()
            for place in range(number):
                pub.send(np.int64(turn * number + place))
            if not overlap:
                pub.close()
            before = pub
        assert before is not None
        before.close()

    with ipc.Subscriber("t", "i8", overflow=policy, buffer=256, namespace=there) as sub:
        sender = threading.Thread(target=send)
        sender.start()
        while len(got) + sub.lost < rounds * number:
            got.append(int(sub.receive(PATIENCE).value))
        sender.join(PATIENCE)
        for turn in range(rounds):
            mine = [value for value in got if value // number == turn]
            assert mine == sorted(set(mine))
        lost = sub.lost
    (row,) = second.stop()
    assert row["number"] + row["lost"] == rounds * number
    assert row["number"] == len(got) + lost
    assert policy != "block" or (lost, row["lost"]) == (0, 0)


@pytest.mark.crash
@pytest.mark.parametrize("side", [0, 1], ids=["sender", "receiver"])
@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_either_side_is_killed_and_comes_back(
    side: int, policy: str, started: Links, here: str, there: str
) -> None:
    where = free_endpoint()
    options = [(here, "--listen", where, *ALL), (there, "--connect", where, *ALL)]
    running = [started.start(*each) for each in options]
    with (
        ipc.Publisher("t", "i8", namespace=here) as pub,
        ipc.Subscriber("t", "i8", overflow=policy, buffer=8, namespace=there) as sub,
    ):
        got: list[int] = []

        def send(number: int) -> None:
            """Send a sample, and receive meanwhile: it may wait for this very subscriber."""
            end = time.monotonic() + PATIENCE
            while True:
                while (sample := sub.try_receive()) is not None:
                    got.append(int(sample.value))
                try:
                    pub.send(np.int64(number), timeout=0.05)
                    return
                except TimeoutError:
                    assert time.monotonic() < end, "it waits for a dead process"

        number = 0
        for _ in range(3):
            until(lambda: sub.publishers == 1 and pub.subscribers == 1)
            before = len(got)
            while len(got) < before + 20:
                send(number)
                number += 1
            running[side].kill()
            for _ in range(300):
                send(number)
                number += 1
            running[side] = started.start(*options[side])
        assert got == sorted(set(got)), "a sample came twice or out of order"


# -- services


def test_a_service_answers_from_the_other_side(started: Links, here: str, there: str) -> None:
    started.pair(here, there, *ALL)

    def handle(request: Any) -> Any:
        if isinstance(request.value, str) and request.value == "count":
            return iter_three()
        if isinstance(request.value, str) and request.value == "fail":
            raise LookupError("no such thing")
        return request.value

    def iter_three() -> Iterator[int]:
        yield from range(3)

    server = ipc.Server("echo", namespace=here)
    thread = threading.Thread(target=server.serve, args=(handle,))
    thread.start()
    try:
        with ipc.Client("echo", namespace=there) as client:
            values = [7, -1.5, None, True, "text", b"bytes", [1, (2, b"x")], {"a": {1: [2.0]}}]
            for value in values:
                assert client.call(value, timeout=PATIENCE).value == value
            array = np.arange(1 << 18, dtype="f4").reshape(512, -1)
            np.testing.assert_array_equal(client.call(array, timeout=PATIENCE).value, array)
            assert [answer.value for answer in client.stream("count")] == [0, 1, 2]
            with pytest.raises(LookupError, match="no such thing"):
                client.call("fail", timeout=PATIENCE)
            with pytest.raises(TypeError, match="cannot go over a link"):
                client.call(object(), timeout=PATIENCE)
            pending = [client.send(number, PATIENCE) for number in range(50)]
            assert [each.result(PATIENCE).value for each in pending] == list(range(50))
    finally:
        server.close()
        thread.join(PATIENCE)


@pytest.mark.crash
def test_a_request_fails_when_a_link_dies(started: Links, here: str, there: str) -> None:
    """The link of the server; then a link comes again, and the service with it."""
    where = free_endpoint()
    link = started.start(here, "--listen", where, *ALL)
    started.start(there, "--connect", where, *ALL)
    taken, go_on = threading.Event(), threading.Event()

    def handle(request: Any) -> int:
        taken.set()
        go_on.wait(PATIENCE)
        return 5

    server = ipc.Server("slow", namespace=here)
    thread = threading.Thread(target=server.serve, args=(handle,))
    thread.start()
    try:
        with ipc.Client("slow", namespace=there) as client:
            pending = client.send(1, PATIENCE)
            assert taken.wait(PATIENCE)
            link.kill()
            with pytest.raises(ipc.RemoteError, match="has ended"):
                pending.result(PATIENCE)
            go_on.set()
            started.start(here, "--listen", where, *ALL)
            for _ in range(100):  # the other link may learn of the death later than the client
                try:
                    assert client.call(1, timeout=PATIENCE).value == 5
                    break
                except ipc.RemoteError:
                    time.sleep(0.1)
            else:
                pytest.fail("the service did not come again")
    finally:
        go_on.set()
        server.close()
        thread.join(PATIENCE)


# -- the command


def test_the_command_names_the_missing_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in (
        (["--listen", "tcp/127.0.0.1:1"], "--topic"),
        (["--topic", "*"], "--connect"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["ipc", "link", *words])
        assert left.value.code == 2
        assert text in capsys.readouterr().err


def test_an_endpoint_that_is_none_is_an_error(started: Links, here: str) -> None:
    """In a process of its own: zenoh keeps descriptors as long as its process lives."""
    link = started.start(here, "--topic", "*", "--listen", "nonsense")
    _, err = link.process.communicate(timeout=PATIENCE)
    assert link.process.returncode == 1
    assert "zenoh cannot open nonsense" in err
    assert ".rs:" not in err  # where zenoh has its sources
    assert "Traceback" not in err
    timed = started.start(here, "--topic", "*", "--listen", free_endpoint(), "--seconds", "0.1")
    out, err = timed.process.communicate(timeout=PATIENCE)
    assert (timed.process.returncode, out) == (0, "[]\n"), err


def test_without_zenoh_it_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zenoh", None)
    assert main(["ipc", "link", "--topic", "*", "--listen", "tcp/127.0.0.1:0"]) == 1
    assert "pip install 'shmnd[link]'" in capsys.readouterr().err


def test_a_configuration_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "link.json5"
    for text in (None, "{ nonsense"):
        if text is not None:
            path.write_text(text)
        assert main(["ipc", "link", "--topic", "*", "--config", str(path)]) == 1
        err = capsys.readouterr().err
        assert f"zenoh cannot take {str(path)!r} as its configuration: " in err
        assert ".rs:" not in err
