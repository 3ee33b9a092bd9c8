# SPDX-License-Identifier: Apache-2.0
"""`shmnd ipc`: lists, prints, records and replays."""

import contextlib
import io
import json
import multiprocessing
import resource
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd_tools.ipc.echo import plain, shown
from shmnd_tools.ipc.recording import Recording, Writer
from shmnd_tools.main import main
from topics import players

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def command() -> Iterator[Callable[..., threading.Thread]]:
    """Run a command in a thread, as its exit code."""
    threads: list[threading.Thread] = []

    def begin(*line: str, codes: list[int]) -> threading.Thread:
        thread = threading.Thread(target=lambda: codes.append(main(["ipc", *line])))
        thread.start()
        threads.append(thread)
        return thread

    yield begin
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_list_info_and_watch(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        ipc.Publisher(name, ipc.Array("f4", (2, 3)), attributes={"unit": "m"}),
        ipc.Subscriber(name),
        ipc.Server("sums", request="f8", response="f8"),
        ipc.Listener("go"),
    ):
        assert main(["ipc", "list", "--format", "json"]) == 0
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
        assert set(rows) == {name, "sums", "go"}
        assert rows[name]["counts"] == {"publisher": 1, "subscriber": 1}
        assert rows[name]["attributes"] == {"unit": "m"}
        assert main(["ipc", "list", "topic"]) == 0
        text = capsys.readouterr().out
        assert "<f4[2, 3]" in text
        assert "1 publisher, 1 subscriber" in text
        assert "sums" not in text
        assert main(["ipc", "info", name]) == 0
        assert '{"unit": "m"}' in capsys.readouterr().out
        assert main(["ipc", "info", "none"]) == 1
        assert "there is no 'none'" in capsys.readouterr().err
        assert main(["ipc", "watch", "--count", "4", "--format", "json"]) == 0
        seen = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {(each["kind"], each["role"]) for each in seen} == {
            ("topic", "publisher"), ("topic", "subscriber"),
            ("service", "server"), ("event", "listener"),
        }  # fmt: skip


def test_publish_and_echo(name: str, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    with ipc.Subscriber(name) as sub:
        thread = command(
            "publish", name, "[1, 2.5]", "--count", "3", "--header", "h", "--rate", "500",
            codes=codes,
        )  # fmt: skip
        for number in range(3):
            sample = sub.receive(timeout=PATIENCE)
            assert (sample.sequence, sample.header) == (number, b"h")
            assert sample.value.tolist() == [1, 2.5]
        thread.join()
    assert codes == [0]
    assert main(["ipc", "publish", name, "[1, 2.5]", "--wait", "1.2"]) == 1
    assert f"waiting for a subscriber of '{name}'" in capsys.readouterr().err
    for wrong in (["--rate", "nan"], ["--rate", "-1"], ["--wait", "x"], ["--count", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(["ipc", "publish", name, "1.0", *wrong])
    assert main(["ipc", "publish", name, "no literal"]) == 1
    assert main(["ipc", "publish", name, "[300]", "--type", "u1"]) == 1
    assert main(["ipc", "publish", name, "(" * 5000, "--type", "u1"]) == 1
    assert "not a literal of Python" in capsys.readouterr().err
    with ipc.Publisher(name, history=4) as pub:
        for value in (np.arange(100), b"raw", {"a": [1, None]}, np.eye(2)):
            pub.send(value, header=b"x")
        assert main(["ipc", "echo", name, "--count", "4"]) == 0
        lines = capsys.readouterr().out
        assert f"{name} 0 header b'x'  int64[100] [ 0  1  2 ... 97 98 99]" in lines
        assert "{'a': [1, None]}" in lines
        assert main(["ipc", "echo", name, "--count", "4", "--format", "json"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [each["sequence"] for each in found] == [0, 1, 2, 3]
        assert found[0]["value"] == list(range(100))
        assert found[2]["value"] == {"a": [1, None]}
        assert main(["ipc", "echo", "another", "--timeout", "0.01"]) == 1


def test_values_are_shown(name: str) -> None:
    with ipc.Publisher(name, players.State) as pub, ipc.Subscriber(name) as sub:
        pub.send(players.State(5, 0.5, np.arange(6.0)))
        value = sub.receive(timeout=PATIENCE).value
        assert shown(value) == "(step=5  time=0.5  pose=float64[6] [0. 1. 2. 3. 4. 5.]  ok=True)"
        assert plain(value) == {"step": 5, "time": 0.5, "pose": [0, 1, 2, 3, 4, 5], "ok": True}
    assert shown(b"x" * 100).startswith("100 bytes b'xxx")
    assert plain({1: b"x", "o": {2}}) == {"1": "eA==", "o": "{2}"}
    assert plain(np.array([1, np.nan, -np.inf])) == [1, None, None]  # JSON has no such numbers
    assert plain({"mean": float("inf")}) == {"mean": None}
    assert plain(np.ones(1, np.longdouble)) == [str(np.longdouble(1))]


class Foreign:
    """Cannot be unpickled while `MISSING` is set."""

    def __reduce__(self) -> Any:
        return _found, ()


MISSING: list[str] = ["Foreign"]


def _found() -> Foreign:
    if MISSING:
        raise AttributeError(f"Can't get attribute {MISSING[0]!r}\n")
    return Foreign()


def test_echo_continues_after_samples_it_cannot_show(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with ipc.Publisher(name, object, history=3) as pub:
        for value in (Foreign(), circle, "last"):
            pub.send(value)
        assert main(["ipc", "echo", name, "--count", "3"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith("unreadable: AttributeError: Can't get attribute 'Foreign'\\n")
        assert lines[1:] == [f"{name} 1  [[...]]", f"{name} 2  'last'"]
        assert main(["ipc", "echo", name, "--count", "3", "--format", "json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == [None, None, "last"]
    assert "Foreign" in rows[0]["unreadable"]
    assert "unreadable" not in rows[2]


@pytest.mark.parametrize("verb", ["echo", "rate", "publish", "record"])
@pytest.mark.parametrize("bad", ["", "\udcff", "a\0", "x" * 256])
def test_names_that_no_topic_has(
    verb: str, bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"publish": ["1"]}.get(verb, [])
    before = {"record": [str(tmp_path / "file")]}.get(verb, [])
    with pytest.raises(SystemExit) as ended:
        main(["ipc", verb, *before, bad, *more])
    assert ended.value.code == 2
    assert "argument topic" in capsys.readouterr().err


def test_names_and_output_of_any_characters(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"é\x1b[31m{name}"
    with ipc.Publisher(name, "U4", history=1) as pub:
        pub.send(np.array("\x1bé"))
        for line in (["list", "topic"], ["info", name], ["rate", name, "--count", "1"]):
            assert main(["ipc", *line, *(["--interval", "0.01"] if line[0] == "rate" else [])]) == 0
            assert "é\\x1b[31m" in capsys.readouterr().out
        written = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
        assert main(["ipc", "echo", name, "--count", "1"]) == 0
    assert written.getvalue().startswith(b"\\xe9\\x1b[31mtopic-")
    assert written.getvalue().endswith(b"0  '\\x1b\\xe9'\n")


def test_bytes_of_the_command_line_are_sent_as_they_are(name: str, command: Any) -> None:
    codes: list[int] = []
    with ipc.Subscriber(name, bytes) as sub:
        command("publish", name, "a\udcff", "--type", "bytes", "--header", "\udc80", codes=codes)
        sample = sub.receive(timeout=PATIENCE)
        assert (sample.value, sample.header) == (b"a\xff", b"\x80")


def test_a_bound_that_is_reached_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ipc.Publisher(name, max_subscribers=1) as pub, ipc.Subscriber(name):
        assert pub.subscribers == 1
        assert main(["ipc", "echo", name, "--timeout", "60"]) == 1
    assert capsys.readouterr().err.startswith("shmnd: ")


def test_the_command_rate_prints_the_samples_of_a_topic_per_second(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    child = FORK.Process(target=players.publish_for_ever, args=(name,))
    child.start()
    try:
        line = ["ipc", "rate", name, "--interval", "0.2", "--format", "json", "--count"]
        for count in (1, 2, 4, 8, 16, 32):  # the publisher may come late
            assert main([*line, str(count)]) == 0
            rows = [json.loads(each)[0] for each in capsys.readouterr().out.splitlines()]
            assert len(rows) == count
            if rows[-1]["samples_per_s"]:
                break
    finally:
        child.kill()
        child.join()
        child.close()
    assert rows[-1]["topic"] == name
    assert rows[-1]["samples_per_s"] > 0
    assert rows[-1]["bytes_per_s"] == pytest.approx(40_000 * rows[-1]["samples_per_s"])
    assert rows[-1]["median_us"] > 0


def test_record_and_replay(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.rec"
    other = name + "-object"
    state = players.State(5, 0.5, np.arange(6.0))
    with (
        ipc.Publisher(name, players.State, history=4, attributes={"unit": "m"}) as pub,
        ipc.Publisher(other, history=8) as mixed,
    ):
        for number in range(3):
            state.step = number
            pub.send(state, header=str(number).encode())
        for value in (np.eye(3, dtype="f4"), b"raw", {"a": np.arange(5000)}, np.float64(3)):
            mixed.send(value)
        assert main(["ipc", "record", str(path), name, other, "--count", "7"]) == 0
        assert "7 samples" in capsys.readouterr().err
    with pytest.raises(FileExistsError), Recording(path):
        path.open("x")
    with Recording(path) as whole:
        assert len(whole) == 7
        assert {topic["name"] for topic in whole.topics.values()} == {name, other}
        steps = [found.array["step"] for found in whole if found.header]
        assert steps == [0, 1, 2]
    cut = tmp_path / "cut.rec"  # the recorder was killed in the middle of a sample
    cut.write_bytes(path.read_bytes()[: int(whole.index["offset"][-1]) + 100])
    with Recording(cut) as rest:
        assert [found.sequence for found in rest] == [found.sequence for found in _read(path)][:-1]
    with (
        ipc.Subscriber(name, players.State, buffer=16) as sub,
        ipc.Subscriber(other, buffer=16) as sub_mixed,
    ):
        assert main(["ipc", "replay", str(path), "--topic", name, "--topic", "none"]) == 1
        assert f"no topic 'none'; its topics: {name}, {other}" in capsys.readouterr().err
        assert main(["ipc", "replay", str(path), "--speed", "0", "--wait", "60"]) == 0
        for number in range(3):
            sample = sub.receive(timeout=PATIENCE)
            assert (sample.value.step, sample.header) == (number, str(number).encode())
            assert sample.value.pose.tolist() == list(range(6))
        values = [sub_mixed.receive(timeout=PATIENCE).value for _ in range(4)]
        assert np.array_equal(values[0], np.eye(3))
        assert values[0].dtype == "f4"
        assert values[1] == b"raw"
        assert np.array_equal(values[2]["a"], np.arange(5000))
        assert float(values[3]) == 3
    junk = tmp_path / "junk"
    junk.write_bytes(b"something else")
    assert main(["ipc", "replay", str(junk)]) == 1
    assert "is not a recording" in capsys.readouterr().err


ODD_TYPES = [
    np.dtype({"names": ["b", "a"], "formats": ["f8", "u1"], "offsets": [8, 0], "itemsize": 24}),
    np.dtype({"names": ["a", "b"], "formats": [">u4", ("u2", 2)], "offsets": [0, 2]}),
    np.dtype([("a", "u1"), ("b", ">f8"), ("c", "M8[ms]"), ("d", "S3")], align=True),
]


@pytest.mark.parametrize("typed", [False, True])
def test_types_that_the_file_format_cannot_describe(name: str, typed: bool, tmp_path: Path) -> None:
    path = tmp_path / "odd.rec"
    rng = np.random.default_rng(1)
    with contextlib.ExitStack() as stack:
        values = {}
        for number, dtype in enumerate(ODD_TYPES):
            topic = f"{name}-{number}"
            pub = stack.enter_context(ipc.Publisher(topic, dtype if typed else None, history=3))
            values[topic] = [
                np.frombuffer(rng.bytes(count * dtype.itemsize), dtype) for count in (2, 3)
            ] + [np.zeros((1, 0, 2), dtype)]
            for value in values[topic]:
                pub.send(value)
        assert main(["ipc", "record", str(path), *values, "--count", f"{3 * len(values)}"]) == 0
    cut = tmp_path / "cut.rec"
    cut.write_bytes(path.read_bytes()[:-1])
    for each in (path, cut):
        with contextlib.ExitStack() as stack:
            subs = {topic: stack.enter_context(ipc.Subscriber(topic)) for topic in values}
            assert main(["ipc", "replay", str(each), "--speed", "0", "--wait", "60"]) == 0
            for topic, sub in subs.items():
                for value in values[topic]:
                    array = sub.receive(timeout=PATIENCE).array
                    assert (array.dtype, array.shape) == (value.dtype, value.shape)
                    for field in value.dtype.names or ():
                        assert array[field].tobytes() == value[field].tobytes()


def test_a_recorder_that_fills_the_disk_keeps_its_samples(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, most = tmp_path / "full.rec", 1 << 22
    with ipc.Publisher(name, "i8", history=16) as pub:
        for number in range(10):
            pub.send(np.full(100_000, number))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
            code = main(["ipc", "record", str(path), name, "--count", "10"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        shown = capsys.readouterr().err
        assert code == 1
        assert "5 samples, 4,000,000 bytes" in shown
        assert str(path) in shown
    with Recording(path) as kept:
        assert kept.unread == 0
        assert [int(found.array[99_999]) for found in kept] == list(range(5))


def test_an_exception_within_a_sample_leaves_the_recording_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = SimpleNamespace(
        kind="array", sequence=0, timestamp_ns=0, header=b"h", array=np.arange(9)
    )
    path = tmp_path / "interrupted.rec"
    with Writer(path) as writer:
        topic = writer.add_topic({"name": "t", "type": {"dtype": "<i8"}, "attributes": {}})
        writer.add(topic, sample)
        pieces = iter(range(2, -1, -1))
        write = writer.write

        def interrupted(data: bytes) -> None:
            write(data)
            if next(pieces) == 0:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(writer, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.add(topic, sample)
    assert [found.array.tolist() for found in _read(path)] == [list(range(9))]
    cut = tmp_path / "cut.rec"
    cut.write_bytes(path.read_bytes()[:-20])
    assert main(["ipc", "replay", str(cut), "--topic", "t"]) == 0
    assert "has no end; its last" in capsys.readouterr().err


def test_damage_in_a_recording_is_reported_in_a_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A header with a bracket too few is one that the parser of Python's text does not end."""
    sample = SimpleNamespace(
        kind="array", sequence=0, timestamp_ns=0, header=b"h", array=np.arange(9)
    )
    path = tmp_path / "damaged.rec"
    with Writer(path) as writer:
        number = writer.add_topic({"name": name, "type": {"dtype": "<i8"}, "attributes": {}})
        for _ in range(3):
            writer.add(number, sample)
    whole = path.read_bytes()
    text = b"'shape': (9,)"
    second = whole.index(text, whole.index(text) + 1)
    path.write_bytes(whole[:second] + text[:-1] + b" " + whole[second + len(text) :])
    assert main(["ipc", "replay", str(path), "--speed", "0"]) == 1
    assert "no array begins at byte" in capsys.readouterr().err
    path.write_bytes(whole.replace(b'"attributes"', b'"attribute_"'))
    assert main(["ipc", "replay", str(path)]) == 1
    assert "description of topic 1" in capsys.readouterr().err
    index = whole.rindex(b"'shape': (4,)")
    path.write_bytes(whole[:index] + b"'shape': (4, " + whole[index + len(text) :])
    assert main(["ipc", "replay", str(path), "--speed", "0"]) == 1
    shown = capsys.readouterr().err
    assert "index" in shown
    assert "3 samples" in shown


def test_a_recorder_leaves_out_garbled_samples(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "garbled.rec"
    with ipc.Publisher(name, history=3) as pub:
        pub.send(np.arange(3))
        pub._put_array(np.zeros(30), b"no description", None, None)
        pub.send(np.arange(4))
        assert main(["ipc", "record", str(path), name, "--count", "2"]) == 0
    shown = capsys.readouterr().err
    assert f"a sample of {name!r} is left out: Sample: the description" in shown
    assert "2 samples" in shown
    assert [found.array.tolist() for found in _read(path)] == [[0, 1, 2], [0, 1, 2, 3]]


def _read(path: Path) -> list[Any]:
    with Recording(path) as recording:
        return list(recording)
