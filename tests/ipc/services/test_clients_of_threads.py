# SPDX-License-Identifier: Apache-2.0
"""A client that several threads use: one sends, while another one goes through all requests."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from shmnd import ipc

SENT = 3000
BUFFER = 4096


@pytest.fixture
def quick_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _until_lost(client: ipc.Client) -> float:
    return client._under_way.until_lost()


@pytest.mark.usefixtures("quick_turns")
@pytest.mark.parametrize("walk", [repr, _until_lost, ipc.Client._find_lost])
def test_requests_may_be_sent_while_another_thread_goes_through_them(
    walk: Callable[[ipc.Client], object],
) -> None:
    failed: list[BaseException] = []
    with (
        ipc.Server("walked", buffer=BUFFER),
        ipc.Client("walked", buffer=BUFFER) as client,
    ):
        over = threading.Event()

        def walking() -> None:
            try:
                while not over.is_set():
                    walk(client)
            except BaseException as exc:
                failed.append(exc)

        walker = threading.Thread(target=walking)
        walker.start()
        kept = []
        for number in range(SENT):
            kept.append(client.send(number))
            if failed:
                break
        over.set()
        walker.join()
        kept.clear()
    assert failed == []
