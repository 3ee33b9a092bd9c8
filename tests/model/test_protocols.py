# SPDX-License-Identifier: Apache-2.0
"""The lock-free protocols, in every interleaving, and each with a part of it taken away.

The models say with the headers' own labels which store pairs with which load. A model that cannot
fail proves nothing: so each is explored again without its fence or its order, and the violation
must be found.
"""

from collections.abc import Callable

import pytest

from model.explorer import Thread, explore, fence, load, release, store, swap


def violated(run: Callable[[], int]) -> bool:
    """Does some interleaving break an assertion?"""
    try:
        run()
    except AssertionError:
        return True
    return False


# -- SYNC slot-ready, slot-free: two slots, three messages, so that a slot is used again --


def slots(order: bool, wait_for_room: bool) -> int:
    publish = release if order else store
    give_back = release if wait_for_room else store

    def writer() -> Thread:
        for position in range(3):
            if position >= 2:
                read = yield load("read_pos")
                if wait_for_room and read < position - 1:
                    return  # no room: a writer does not wait, it comes again
            slot = position % 2
            yield store(f"payload{slot}", 100 + position)
            yield publish(f"ready{slot}", position + 1)

    def reader() -> Thread:
        for position in range(2):
            slot = position % 2
            ready = yield load(f"ready{slot}")
            if ready != position + 1:
                return
            payload = yield load(f"payload{slot}")
            assert payload == 100 + position, "torn or overwritten"
            yield give_back("read_pos", position + 1)

    names = ("ready0", "ready1", "payload0", "payload1", "read_pos")
    return explore([writer, reader], dict.fromkeys(names, 0))


def test_slots_are_whole_and_never_overwritten() -> None:
    assert slots(order=True, wait_for_room=True) > 50


@pytest.mark.parametrize(("order", "room"), [(False, True), (True, False)])
def test_slots_need_their_order(order: bool, room: bool) -> None:
    assert violated(lambda: slots(order, room))


# -- SYNC arm: no wake-up is lost, also when a producer dies on the way --


def arming(producer_fence: bool, consumer_fence: bool, dies: bool) -> int:
    def consumer() -> Thread:
        yield store("armed", 1)
        if consumer_fence:
            yield fence()
        first = yield load("message1")
        second = yield load("message2")
        yield store("asleep", 0 if first or second else 1)

    def producer(name: str, dead: bool) -> Callable[[], Thread]:
        def run() -> Thread:
            yield release(f"message{name}", 1)
            if producer_fence:
                yield fence()
            armed = yield load("armed")
            if armed and not dead:
                yield store(f"rung{name}", 1)

        return run

    def final(memory: dict[str, int]) -> None:
        rung = memory["rung1"] or memory["rung2"]
        # A producer that died after it published is found by whoever comes next, who rings.
        assert not memory["asleep"] or rung, "asleep beside a message, and nobody rang"

    names = ("armed", "message1", "message2", "asleep", "rung1", "rung2")
    threads = [consumer, producer("1", dead=dies), producer("2", dead=False)]
    return explore(threads, dict.fromkeys(names, 0), final)


@pytest.mark.parametrize("dies", [False, True])
def test_no_wake_up_is_lost(dies: bool) -> None:
    assert arming(True, True, dies) > 50


@pytest.mark.parametrize(("producer", "consumer"), [(False, True), (True, False)])
def test_arming_needs_both_fences(producer: bool, consumer: bool) -> None:
    assert violated(lambda: arming(producer, consumer, dies=True))


# -- SYNC ready: a bit found set is left, and its message is found all the same --


def ready_bits(consumer_fence: bool) -> int:
    def producer() -> Thread:
        yield release("message", 2)
        yield fence()
        bit = yield load("bit")
        if not bit:
            yield swap("bit", 0, 1)

    def consumer() -> Thread:
        yield store("bit", 0)
        if consumer_fence:
            yield fence()
        message = yield load("message")
        yield store("seen", message)

    def final(memory: dict[str, int]) -> None:
        assert memory["seen"] == 2 or memory["bit"], "a message that no bit tells of"

    return explore([producer, consumer], {"message": 0, "bit": 1, "seen": 0}, final)


def test_a_message_is_seen_or_marked() -> None:
    assert ready_bits(consumer_fence=True) > 10
    assert violated(lambda: ready_bits(consumer_fence=False))


# -- SYNC hazard: nothing moves after Invalidate completed -----------------------------------------


def hazard(initiator_fence: bool, owner_fence: bool) -> int:
    def initiator() -> Thread:
        yield store("hazard", 7)
        if initiator_fence:
            yield fence()
        token = yield load("token")
        if token == 7:
            over = yield load("invalidated")
            yield store("moved", 1)
            assert not over, "a byte moved after the window was invalidated"
        yield release("hazard", 0)

    def owner() -> Thread:
        yield store("token", 0)
        if owner_fence:
            yield fence()
        busy = yield load("hazard")
        if busy != 7:
            yield store("invalidated", 1)
            yield fence()

    return explore([initiator, owner], {"hazard": 0, "token": 7, "invalidated": 0, "moved": 0})


def test_nothing_moves_after_invalidate() -> None:
    assert hazard(True, True) > 10


@pytest.mark.parametrize(("initiator", "owner"), [(False, True), (True, False)])
def test_hazards_need_both_fences(initiator: bool, owner: bool) -> None:
    assert violated(lambda: hazard(initiator, owner))


# -- SYNC placing: no receive is written after a Flush gave it back --


def placing(sender_fence: bool, flusher_fence: bool) -> int:
    def sender() -> Thread:
        yield store("hazard", 1)
        if sender_fence:
            yield fence()
        revision = yield load("revision")
        if revision == 0:
            given_back = yield load("cancelled")
            assert not given_back, "a receive written after it was cancelled"
            yield store("memory", 1)
        yield release("hazard", 0)

    def flusher() -> Thread:
        yield store("revision", 1)
        if flusher_fence:
            yield fence()
        busy = yield load("hazard")
        if not busy:
            yield store("cancelled", 1)
            yield fence()

    return explore([sender, flusher], {"hazard": 0, "revision": 0, "cancelled": 0, "memory": 0})


def test_a_flush_and_a_push_never_share_a_receive() -> None:
    assert placing(True, True) > 10
    assert violated(lambda: placing(False, True))
    assert violated(lambda: placing(True, False))


# -- SYNC closing: a Send that completed is taken by the side that closes --


def closing(sender_fence: bool, closer_fence: bool) -> int:
    def sender() -> Thread:
        yield release("slot", 1)
        if sender_fence:
            yield fence()
        closed = yield load("closing")
        if not closed:
            yield store("completed", 1)

    def closer() -> Thread:
        yield store("closing", 1)
        if closer_fence:
            yield fence()
        slot = yield load("slot")
        yield store("taken", slot)

    def final(memory: dict[str, int]) -> None:
        assert memory["taken"] or not memory["completed"], "delivered, and not delivered"

    names = ("slot", "closing", "completed", "taken")
    return explore([sender, closer], dict.fromkeys(names, 0), final)


def test_delivered_is_delivered() -> None:
    assert closing(True, True) > 10
    assert violated(lambda: closing(False, True))
    assert violated(lambda: closing(True, False))


# -- SYNC credit: a Send that waits and a receive that is posted find each other --


def credit(waiter_fence: bool, poster_fence: bool) -> int:
    def waiter() -> Thread:
        yield store("wants", 1)
        if waiter_fence:
            yield fence()
        posted = yield load("posted")
        yield store("asleep", 0 if posted else 1)

    def poster() -> Thread:
        yield release("posted", 1)
        if poster_fence:
            yield fence()
        wants = yield load("wants")
        if wants:
            yield store("rung", 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["rung"], "a Send asleep beside its receive"

    names = ("wants", "posted", "asleep", "rung")
    return explore([waiter, poster], dict.fromkeys(names, 0), final)


def test_a_waiting_send_learns_of_its_receive() -> None:
    assert credit(True, True) > 10
    assert violated(lambda: credit(False, True))
    assert violated(lambda: credit(True, False))


# -- SYNC recall: a message is received or taken back, never both ----------------------------------


def recall(by_swap: bool) -> int:
    def sender() -> Thread:
        if by_swap:
            won = yield swap("ready", 1, 8)
        else:
            won = int((yield load("ready")) == 1)
            yield store("ready", 8)
        yield store("recalled", won)

    def reader() -> Thread:
        if by_swap:
            won = yield swap("ready", 1, 4)
        else:
            won = int((yield load("ready")) == 1)
            yield store("ready", 4)
        yield store("received", won)

    def final(memory: dict[str, int]) -> None:
        assert memory["recalled"] + memory["received"] == 1, "both, or neither"

    return explore([sender, reader], {"ready": 1, "recalled": 0, "received": 0}, final)


def test_a_message_is_received_or_taken_back() -> None:
    assert recall(by_swap=True) >= 5
    assert violated(lambda: recall(by_swap=False))


# -- SYNC chunk-done: who finds all bits set finds all bytes copied --


def chunks(order: bool) -> int:
    def helper() -> Thread:
        won = yield swap("claim", 0, 1)
        if won:
            yield store("bytes0", 1)
            yield fence() if order else load("claim")  # set_bits releases; without, it may pass
            yield store("done0", 1)

    def owner() -> Thread:
        won = yield swap("claim", 0, 2)
        if won:
            yield store("bytes0", 1)
            yield fence() if order else load("claim")
            yield store("done0", 1)
        done = yield load("done0")
        if done:
            copied = yield load("bytes0")
            assert copied, "finished before its bytes were there"

    return explore([helper, owner], {"claim": 0, "bytes0": 0, "done0": 0})


def test_a_large_message_is_finished_when_its_bytes_are_there() -> None:
    assert chunks(order=True) > 10
    assert violated(lambda: chunks(order=False))
