# SPDX-License-Identifier: Apache-2.0
"""A link has its messages in memory of its own, also where the other one runs on the same host.

The shared memory that zenoh would use there is written again while its reader is stopped (SIGSTOP)
or slow: samples came with the bytes of later ones. Files of it also stayed in /dev/shm.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from link.kit import PATIENCE, LinkProcess, Links, free_endpoint, links, unique
from shmnd import ipc

pytest.importorskip("zenoh")

LARGE = 1 << 18  # bytes; zenoh uses shared memory for some thousand and more


@pytest.fixture
def started() -> Iterator[Links]:
    with links() as found:
        yield found


def _maps_of_zenoh(link: LinkProcess) -> list[str]:
    maps = Path(f"/proc/{link.process.pid}/maps").read_text().splitlines()
    return [line for line in maps if "/dev/shm/" in line and ".zenoh" in line]


def _carries(here: str, there: str) -> None:
    """Send large samples, more than zenoh would need to begin to share memory."""
    with (
        ipc.Publisher("t", "u1", namespace=here) as pub,
        ipc.Subscriber("t", "u1", overflow="block", namespace=there) as sub,
    ):
        while not sub.publishers:
            sub.ready()
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(64):
            pub.send(np.full(LARGE, number, "u1"), timeout=PATIENCE)
            with sub.receive(PATIENCE) as sample:
                assert (sample.array == number).all()


@pytest.mark.parametrize("configured", [False, True], ids=["plain", "configured"])
def test_links_of_one_host_share_no_memory(
    started: Links, tmp_path: Path, configured: bool
) -> None:
    options = ["--topic", "*"]
    if configured:
        config = tmp_path / "zenoh.json5"
        config.write_text('{transport: {shared_memory: {enabled: true, mode: "init"}}}')
        options += ["--config", str(config)]
    here, there = unique("here"), unique("there")
    where = free_endpoint()
    pair = (
        started.start(here, "--listen", where, *options),
        started.start(there, "--connect", where, *options),
    )
    _carries(here, there)
    assert [_maps_of_zenoh(link) for link in pair] == [[], []]
