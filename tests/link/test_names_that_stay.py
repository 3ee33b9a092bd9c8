# SPDX-License-Identifier: Apache-2.0
"""Events, blackboards and queues cross no link: the link says so of a name that it was to carry."""

import pytest

from link.kit import PATIENCE, LinkProcess, free_endpoint, unique
from shmnd import ipc

pytest.importorskip("zenoh")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("option", ["--topic", "--service"])
def test_a_link_names_objects_it_does_not_carry(option: str) -> None:
    here = unique("here")
    with (
        ipc.Listener("robot-done", namespace=here),
        ipc.Blackboard("robot-state", {"x": "f8"}, namespace=here),
        ipc.Listener("other", namespace=here),
        ipc.Publisher("robot-camera", "u1", namespace=here),
    ):
        options = (option, "robot-*", "--listen", free_endpoint(), "--seconds", "2")
        link = LinkProcess(here, *options)
        _, err = link.process.communicate(timeout=PATIENCE)
    stay = "stays on this host: links carry topics and services"
    assert {line for line in err.splitlines() if "stays" in line} == {
        f"shmnd: event 'robot-done' {stay}",
        f"shmnd: blackboard 'robot-state' {stay}",
    }
