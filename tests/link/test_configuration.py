# SPDX-License-Identifier: Apache-2.0
"""A link with a file of zenoh's settings: what the file leaves out is as without a file."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from link.kit import PATIENCE, LinkProcess, Links, free_endpoint, links, unique
from shmnd_tools.link.session import Session

pytest.importorskip("zenoh")

_LISTENS = "0A"  # the state of a socket in /proc/net/tcp


@pytest.fixture
def started() -> Iterator[Links]:
    with links() as found:
        yield found


def _file(folder: Path, text: str) -> str:
    path = folder / "link.json5"
    path.write_text(text)
    return str(path)


def _sockets(process: LinkProcess, *tables: str) -> list[list[str]]:
    """The lines of these tables of the kernel that are sockets of the process."""
    pid = process.process.pid
    mine = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(str(each.readlink()))
        except FileNotFoundError:
            continue
    rows = [
        line.split()
        for table in tables
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [row for row in rows if f"socket:[{row[9]}]" in mine]


def _first_words(link: LinkProcess) -> str:
    """What the link says when it is open."""
    assert link.process.stderr is not None
    return link.process.stderr.readline()


def test_a_link_with_a_file_listens_nowhere_else(started: Links, tmp_path: Path) -> None:
    """Zenoh would listen with tcp at all addresses, also where the file asks for certificates."""
    file = _file(tmp_path, "{ transport: { link: { tls: { enable_mtls: true } } } }")
    where = free_endpoint()
    link = started.start(unique("a"), "--topic", "*", "--connect", where, "--config", file)
    assert _first_words(link) == f"shmnd: 0 other links, trying {where}\n"
    assert [row for row in _sockets(link, "tcp", "tcp6") if row[3] == _LISTENS] == []
    assert _sockets(link, "udp", "udp6") == []  # nor does it search by multicast
    assert link.stop() == []


def test_a_link_listens_where_its_file_says(started: Links, tmp_path: Path) -> None:
    where = free_endpoint()
    file = _file(tmp_path, f'{{ listen: {{ endpoints: ["{where}"] }} }}')
    first = started.start(unique("a"), "--topic", "*", "--config", file)
    assert _first_words(first) == "shmnd: 0 other links\n"
    (row,) = (row for row in _sockets(first, "tcp", "tcp6") if row[3] == _LISTENS)
    assert int(row[1].rpartition(":")[2], 16) == int(where.rpartition(":")[2])
    second = started.start(unique("b"), "--topic", "*", "--connect", where)
    said = [_first_words(second)]
    if said == [f"shmnd: 0 other links, trying {where}\n"]:
        said.append(_first_words(second))
    assert said[-1] == "shmnd: 1 other links\n"
    second.stop()
    first.stop()


def test_a_link_listens_at_endpoints_of_its_options_and_of_its_file(
    started: Links, tmp_path: Path
) -> None:
    ends = [free_endpoint(), free_endpoint()]
    file = _file(tmp_path, f'{{ listen: {{ endpoints: {{ peer: ["{ends[0]}"] }} }} }}')
    link = started.start(unique("a"), "--topic", "*", "--config", file, "--listen", ends[1])
    assert _first_words(link) == "shmnd: 0 other links\n"
    rows = [row for row in _sockets(link, "tcp", "tcp6") if row[3] == _LISTENS]
    ports = {int(row[1].rpartition(":")[2], 16) for row in rows}
    assert ports == {int(each.rpartition(":")[2]) for each in ends}
    assert link.stop() == []


_USUAL = '{ listen: { endpoints: { router: ["tcp/[::]:7447"], peer: ["tcp/[::]:0"] } } }'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["tcp/127.0.0.1"]', "tcp/127.0.0.1: an endpoint has a port"),
        ('{ peer: ["tls/127.0.0.1:99999"] }', "tls/127.0.0.1:99999: an endpoint has a port of at"),
        ('["quic_datagram/h#a=b:1"]', "quic_datagram/h#a=b:1: an endpoint has a port"),
        ('{ client: ["tcp/127.0.0.1:1"] }', "names no endpoint"),
        (_USUAL, "or only those of zenoh without a file"),
    ],
)
def test_a_file_whose_endpoints_reach_no_other_link_is_an_error(
    tmp_path: Path, text: str, words: str
) -> None:
    whole = text if text is _USUAL else f"{{ connect: {{ endpoints: {text} }} }}"
    with pytest.raises(OSError, match=re.escape(words)):
        Session([], [], Path(_file(tmp_path, whole))).close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "add --listen or --connect"),
        (("--connect", "tcp/127.0.0.1"), "zenoh cannot open tcp/127.0.0.1: an endpoint has a port"),
    ],
)
def test_a_link_that_can_reach_no_other_is_an_error(
    started: Links, tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    file = _file(tmp_path, "{}")
    link = started.start(unique("a"), "--topic", "*", "--config", file, *options)
    _, err = link.process.communicate(timeout=PATIENCE)
    assert link.process.returncode == 1
    assert text in err
    assert "Traceback" not in err


def test_a_configuration_that_is_not_a_file_is_an_error(started: Links, tmp_path: Path) -> None:
    """The end of a pipe may never come, and zenoh takes no signal while it waits for it."""
    pipe = tmp_path / "pipe.json5"
    os.mkfifo(pipe)
    for each in (pipe, tmp_path):
        link = started.start(unique("a"), "--topic", "*", "--config", str(each))
        _, err = link.process.communicate(timeout=PATIENCE)
        assert link.process.returncode == 1
        assert f"zenoh cannot take {str(each)!r} as its configuration: it is not a regular" in err
        assert "Traceback" not in err
