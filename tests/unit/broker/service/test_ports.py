# SPDX-License-Identifier: Apache-2.0
"""The port space of the broker."""

import pytest

from shmnd.broker.protocol import Refusal
from shmnd.broker.service.ports import EPHEMERAL, PortSpace, covers
from shmnd.status import Status


def refused(ports: PortSpace[str], host: str, port: int, protocol: int = 6) -> Status:
    with pytest.raises(Refusal) as caught:
        ports.bind(protocol, host, port, "late")
    return caught.value.status


def test_a_port_has_one_holder_per_host() -> None:
    ports: PortSpace[str] = PortSpace()
    assert ports.bind(6, "127.0.0.1", 54321, "a") == 54321
    assert refused(ports, "127.0.0.1", 54321) is Status.SHARING_VIOLATION
    assert ports.bind(6, "127.0.0.2", 54321, "b") == 54321
    assert ports.bind(6, "::1", 54321, "c") == 54321
    assert [ports.find(6, h, 54321) for h in ("127.0.0.1", "127.0.0.2", "::1")] == ["a", "b", "c"]
    assert ports.find(6, "127.0.0.3", 54321) is None
    assert ports.find(6, "127.0.0.1", 54322) is None


def test_protocols_have_ports_of_their_own() -> None:
    ports: PortSpace[str] = PortSpace()
    ports.bind(6, "127.0.0.1", 1, "a")
    ports.bind(17, "127.0.0.1", 1, "b")
    assert ports.find(17, "127.0.0.1", 1) == "b"


def test_a_released_port_is_free_at_once() -> None:
    ports: PortSpace[str] = PortSpace()
    ports.bind(6, "127.0.0.1", 1, "a")
    ports.release(6, "127.0.0.1", 1)
    assert ports.find(6, "127.0.0.1", 1) is None
    assert ports.bind(6, "0.0.0.0", 1, "b") == 1


@pytest.mark.parametrize(
    ("bound", "host", "answers"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("::", "::1", True),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", False),
        ("::1", "::", False),
    ],
)
def test_the_any_address_answers_for_every_host(bound: str, host: str, answers: bool) -> None:
    assert covers(bound, host) is answers
    ports: PortSpace[str] = PortSpace()
    ports.bind(6, bound, 7, "a")
    assert ports.find(6, host, 7) == ("a" if answers else None)


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("0.0.0.0", "::", True),
        ("::", "::1", True),
        ("::", "10.0.0.1", True),
        ("127.0.0.1", "::1", False),
    ],
)
def test_holders_never_cover_the_same_address(first: str, second: str, clash: bool) -> None:
    for one, other in ((first, second), (second, first)):
        ports: PortSpace[str] = PortSpace()
        ports.bind(6, one, 7, "a")
        if clash:
            assert refused(ports, other, 7) is Status.SHARING_VIOLATION
        else:
            assert ports.bind(6, other, 7, "b") == 7


def test_port_0_skips_used_ports_and_wraps_around() -> None:
    ports: PortSpace[str] = PortSpace(first=65534)
    ports.bind(6, "127.0.0.1", 65535, "a")
    ports.bind(6, "0.0.0.0", 49152, "b")
    chosen = [ports.bind(6, "127.0.0.1", 0, "c") for _ in range(3)]
    assert chosen == [65534, 49153, 49154]


def test_a_freed_port_is_not_given_again_at_once() -> None:
    ports: PortSpace[str] = PortSpace(first=50000)
    first = ports.bind(6, "127.0.0.1", 0, "a")
    ports.release(6, "127.0.0.1", first)
    assert ports.bind(6, "127.0.0.1", 0, "b") != first


def test_an_exhausted_range_is_too_many_addresses() -> None:
    ports: PortSpace[str] = PortSpace()
    given = {ports.bind(6, "127.0.0.1", 0, "x") for _ in EPHEMERAL}
    assert given == set(range(49152, 65536))
    assert refused(ports, "127.0.0.1", 0) is Status.TOO_MANY_ADDRESSES
    assert refused(ports, "0.0.0.0", 0) is Status.TOO_MANY_ADDRESSES
    assert ports.bind(6, "127.0.0.2", 0, "y") in EPHEMERAL
    ports.release(6, "127.0.0.1", 60000)
    assert ports.bind(6, "127.0.0.1", 0, "z") == 60000
