# SPDX-License-Identifier: Apache-2.0
"""Processes with many descriptors: a name is found and not each of them is read."""

import os
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from processes.kit import Child, broker_pid, end_process
from shmnd import ipc
from shmnd.ipc.naming import cards

MANY = 600
OWNER = """
import os
from shmnd import ipc
open_files, name = hear()
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(open_files)]
queues = []
while name:
    queues.append(ipc.Queue(name=name))
    queues[-1].put(name)
    say("open")
    name = hear()
"""


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child(OWNER) as child:
        yield child


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many descriptors of each process were read."""
    counts: Counter[str] = Counter()
    shown = cards._shown

    def counted(path: str) -> str:
        counts[path.split("/")[2]] += 1
        return shown(path)

    monkeypatch.setattr(cards, "_shown", counted)
    return counts


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_name_among_many_descriptors(
    owner: Child, reads: Counter[str], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "old":
        monkeypatch.setattr(cards, "_size", lambda *_: 0)
    first, second, other = (f"name-{uuid.uuid4().hex}" for _ in range(3))
    for name in (first, second):
        owner.say([MANY, name] if name == first else name)
        assert owner.hear() == "open"
    end_process(broker_pid())
    with ipc.Queue(name=other) as queue:
        assert queue.empty()
    assert reads[str(owner.pid)] == 0  # nothing is read of a process without the name
    for name in (first, second):
        with ipc.Queue(name=name) as queue:
            assert queue.get(timeout=20) == name
    assert reads[str(owner.pid)] >= MANY
    owner.say("")


def test_a_child_that_was_forked_off_shows_no_card() -> None:
    """It has the memory of its parent, and not the descriptors."""
    label = "0" * 32
    card = cards.Card(label, {"fd": 3})
    reading, writing = os.pipe()
    ready, forked = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(forked, b"x")  # behind what the child does at a fork
        os.read(reading, 1)
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        place = "/"
        cards._read[place] = "", {label: [f"/proc/{pid}/fd" for pid in (os.getpid(), child)]}
        assert [found.pid for found in cards.cards(place, "", label)] == [os.getpid()]
        assert label in cards._in_memory(str(os.getpid()))
        card.close()
        assert label not in cards._in_memory(str(os.getpid()))
    finally:
        del cards._read[place]
        os.write(writing, b"x")
        os.waitpid(child, 0)
        for descriptor in (reading, writing, ready, forked):
            os.close(descriptor)
