# SPDX-License-Identifier: Apache-2.0
"""Read limits, private data and addresses of a connection attempt."""

import pytest

from shmnd.info import LIMITS
from shmnd.status import NdError
from unit.fakes import World
from unit.handshake.connector_kit import INVALID, REFUSED, S
from unit.sides import Sides, outcome


# -- read limits and private data -----------------------------------------------------------------
def test_read_limits_are_negotiated_by_the_table(world: World) -> None:
    sides = Sides(world)
    cap = LIMITS.max_inbound_read_limit
    for a_in, a_out, p_in, p_out in (
        (5, 7, 9, 3),
        (5, 7, 6, 8),
        (0, 0, 10, 10),
        (cap + 6, cap + 6, 2**32 - 1, 2**32 - 1),
        (1, 0, 0, 1),
    ):
        active, passive = sides.active, sides.passive
        active.connector, active.qp = active.new_connector(), active.new_qp()
        passive.connector, passive.qp = passive.new_connector(), passive.new_qp()
        sides.connecting = active.connector.connect(active.qp, sides.address, a_in, a_out)
        sides.request().result(5)
        assert passive.connector.get_read_limits() == (min(a_out, cap), min(a_in, cap))
        passive.connector.accept(passive.qp, p_in, p_out)
        sides.connecting.result(5)
        agreed_in, agreed_out = min(p_in, cap, a_out), min(p_out, cap, a_in)
        assert passive.connector.get_read_limits() == (agreed_in, agreed_out)
        assert passive.qp.attached_read_limit == agreed_out
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        assert active.qp.attached_read_limit == agreed_in
        active.connector.complete_connect()
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        active.connector.close()
        passive.connector.close()


def test_private_data_into_a_buffer(sides: Sides) -> None:
    sides.to("P2")
    connector = sides.passive.connector
    for room in (None, bytearray(0), bytearray(4)):
        with pytest.raises(BufferError) as caught:
            connector.get_private_data_into(room)
        assert isinstance(caught.value, NdError)
        assert caught.value.status is S.BUFFER_OVERFLOW
        assert caught.value.required == len(b"the offer")
        assert room in (None, bytearray(b""), bytearray(b"the "))
    room = bytearray(b"." * 12)
    assert connector.get_private_data_into(room) == 9
    assert room == b"the offer..."
    with pytest.raises(NdError):
        sides.active.connector.get_private_data_into(room)


def test_missing_private_data_are_empty(sides: Sides) -> None:
    sides.connect(b"")
    sides.request()
    assert sides.passive.connector.get_private_data() == b""
    assert sides.passive.connector.get_private_data_into(None) == 0
    sides.passive.connector.reject()
    assert sides.connecting.status is REFUSED
    assert sides.active.connector.get_private_data() == b""


def test_private_data_of_an_earlier_attempt_is_forgotten(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.connector.reject(b"go away")
    sides.connecting.done()
    sides.passive.connector = sides.passive.new_connector()
    sides.offer()
    assert outcome(sides.active.connector.get_private_data) is INVALID


def test_addresses_into_a_buffer(sides: Sides) -> None:
    sides.to("P2")
    for into in (
        sides.passive.connector.get_local_address_into,
        sides.passive.connector.get_peer_address_into,
        sides.listener.get_local_address_into,
    ):
        short = bytearray(15)
        with pytest.raises(NdError) as caught:
            into(short)
        assert (caught.value.status, caught.value.required) == (S.BUFFER_OVERFLOW, 16)
        assert short == bytes(15)
        assert into(bytearray(16)) == 16


def test_limits_that_make_no_sense_count_as_none(sides: Sides) -> None:
    from shmnd.handshake.attempt import ReadLimits, Terms, private_of

    for nonsense in (None, 7, [1], [1, 2, 3], [-1, 0], ["1", "2"], [2**40, 1], [True, False]):
        assert ReadLimits.of_peer(nonsense) == (0, 0)
    for nonsense in ("", "{}", "7", "{", "-1,0", "[" * 100, "\ud800", "1,2,x", "9" * 9999):
        assert Terms.read(nonsense) == Terms(ReadLimits(0, 0), ())
    assert Terms.read("-1,2,3") == Terms(ReadLimits(0, 0), (3,))
    for qp in ((), (3, -4, 1 << 70)):
        terms = Terms(ReadLimits(1, 2), qp)
        assert Terms.read(terms.wire()) == terms
    assert private_of({"private": "!"}) == b""
