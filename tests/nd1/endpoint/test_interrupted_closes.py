# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within the `close` of an endpoint: the next close ends it."""

import itertools

import shmnd
from interrupting import Alarm, inside, interrupted
from nd1.ends import End


def test_an_endpoint_whose_close_is_interrupted_releases_its_memory(end: End) -> None:
    """It has some for inline data that travels in one list with registered data."""
    within = inside(shmnd)
    registry = end.adapter._core._registry
    for at in itertools.count():
        connector = end.adapter.create_connector()
        endpoint = connector.create_endpoint(end.cq, end.cq, **end.options)
        staging = endpoint._new_staging()  # kept: its end of life would end the registration
        assert registry.rights(staging.token)
        came = interrupted(at, endpoint.close, within, Alarm)
        endpoint.close()
        assert not endpoint._alive
        assert not registry.rights(staging.token), f"interrupted at {at}"
        connector.close()
        if not came:
            break
    assert at > 8, "there were places to interrupt"
