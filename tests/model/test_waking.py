# SPDX-License-Identifier: Apache-2.0
"""Waking: no thread sleeps although the event that it waits for has happened."""

from collections.abc import Callable

import pytest

from model.explorer import (
    Thread,
    acquire,
    add,
    clear_bits,
    explore,
    fence,
    load,
    release,
    set_bits,
    store,
)
from model.verdict import violated

# -- SYNC arm: no wake-up is lost, also when a producer dies before it rings --


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
        # If a producer died after it published, the next producer rings.
        assert not memory["asleep"] or rung, "asleep with a message, and not rung"

    names = ("armed", "message1", "message2", "asleep", "rung1", "rung2")
    threads = [consumer, producer("1", dead=dies), producer("2", dead=False)]
    return explore(threads, dict.fromkeys(names, 0), final)


@pytest.mark.parametrize("dies", [False, True])
def test_no_wake_up_is_lost(dies: bool) -> None:
    assert arming(True, True, dies) > 50


@pytest.mark.parametrize(("producer", "consumer"), [(False, True), (True, False)])
def test_arming_needs_both_fences(producer: bool, consumer: bool) -> None:
    assert violated(lambda: arming(producer, consumer, dies=True))


# -- SYNC word: the kernel compares the word as it puts the consumer to sleep --


def sleeper_at_word(weak: str) -> Thread:
    """A consumer. The kernel compares, and puts it to sleep, under a lock ("lock")."""
    if weak != "word before the poll":
        word = yield acquire("word")
    yield store("armed", 1)
    if weak != "fence of the consumer":
        yield fence()
    messages = [(yield load("message1")), (yield load("message2"))]
    if weak == "word before the poll":
        word = yield acquire("word")
    if not any(messages):
        yield add("lock", 1)
        now = yield load("word")
        if weak == "the comparison" or now == word:
            yield store("asleep", 1)


def waker_at_word(number: int, weak: str, dies: bool) -> Thread:
    """A producer. Its wake-up takes that lock first, and finds no sleeper, or wakes it."""
    yield release(f"message{number}", 1)
    if weak != "fence of the producer":
        yield fence()
    armed = yield load("armed")
    if armed and not dies:
        if weak != "the change":
            yield add("word", 1)
        came_first = yield add("lock", 1)
        if came_first:
            yield store("woken", 1)


def at_word(weak: str, dies: bool) -> int:
    def final(memory: dict[str, int]) -> None:
        # A producer that died after it published: the next one wakes the consumer.
        assert memory["woken"] or not memory["asleep"], "asleep with a message"

    names = ("armed", "word", "message1", "message2", "lock", "asleep", "woken")
    threads = [
        lambda: sleeper_at_word(weak),
        lambda: waker_at_word(1, weak, dies),
        lambda: waker_at_word(2, weak, False),
    ]
    return explore(threads, dict.fromkeys(names, 0), final)


@pytest.mark.parametrize("dies", [False, True])
def test_no_wake_up_at_the_word_is_lost(dies: bool) -> None:
    assert at_word("", dies) > 50


@pytest.mark.parametrize(
    "weak",
    [
        "word before the poll",
        "fence of the consumer",
        "fence of the producer",
        "the change",
        "the comparison",
    ],
)
def test_each_order_of_sleeping_at_the_word_is_needed(weak: str) -> None:
    assert violated(lambda: at_word(weak, dies=True))


# -- a producer rings once for each arming, by the number of that: the next sleep has its own --


def sleeps_again(weak: str) -> int:
    """A consumer that a ring wakes, and that sleeps again; each message may need a ring."""

    def consumer() -> Thread:
        yield store("armed", 1)
        yield fence()
        heard, taken = 0, (yield load("message"))
        if not taken:
            heard = yield add("rings", 0)  # as the kernel reads it
            if not heard:
                yield store("asleep", 1)
                return
            taken = yield load("message")
        yield store("armed", 1 if weak == "the number" else 2)
        if weak != "the second fence":
            yield fence()
        found = yield load("message")
        if found == taken:
            yield store("taken", taken)
            yield store("heard", heard)
            yield store("asleep", 1)

    def producer() -> Thread:
        rung = 0
        for message in (1, 2):
            yield release("message", message)
            yield fence()
            armed = yield load("armed")
            if armed != rung or (armed and weak == "once"):
                rung = armed
                yield add("rings", 1)

    def final(memory: dict[str, int]) -> None:
        if memory["asleep"]:
            late = memory["message"] != memory["taken"]
            assert not late or memory["rings"] > memory["heard"], "asleep with a message"
        assert memory["rings"] < 2 or memory["armed"] == 2, "two rings for one sleep"

    names = ("armed", "message", "rings", "asleep", "taken", "heard")
    return explore([consumer, producer], dict.fromkeys(names, 0), final)


def test_each_sleep_has_one_ring() -> None:
    assert sleeps_again("") > 50


@pytest.mark.parametrize("weak", ["the number", "the second fence", "once"])
def test_each_part_of_a_second_arming_is_needed(weak: str) -> None:
    assert violated(lambda: sleeps_again(weak))


# -- within a process: what the word does not show makes its sleeper leave it (waiting.pyx) --


def leader_at_word(weak: str) -> Thread:
    """A leader. Each "lock" is one call under the interpreter's lock; others may run between."""
    if weak == "word before the check":
        yield add("lock", 1)
        news = yield load("news")
    yield add("lock", 1)
    yield store("word", 1)
    rings = yield load("rings")
    if weak != "word before the check":
        yield add("lock", 1)
        news = yield load("news")
    if not news:
        yield add("kernel", 1)
        now = yield load("rings")
        if weak == "the comparison" or now == rings:
            yield store("asleep", 1)


def thread_with_news(weak: str) -> Thread:
    """Another thread: it brings news, and then calls `wake_from_word`."""
    if weak != "news before the word":
        yield add("lock", 1)
        yield store("news", 1)
    yield add("lock", 1)
    word = yield load("word")
    if word:
        yield store("word", 0)
        if weak != "the change":
            yield add("rings", 1)
        came_first = yield add("kernel", 1)
        if came_first:
            yield store("woken", 1)
    if weak == "news before the word":
        yield add("lock", 1)
        yield store("news", 1)


def leaving_the_word(weak: str) -> int:
    def final(memory: dict[str, int]) -> None:
        assert memory["woken"] or not memory["asleep"], "asleep, with news for the epoll"

    names = ("lock", "word", "news", "rings", "kernel", "asleep", "woken")
    threads = [lambda: leader_at_word(weak), lambda: thread_with_news(weak)]
    return explore(threads, dict.fromkeys(names, 0), final)


def test_news_of_another_thread_end_a_sleep_at_the_word() -> None:
    assert leaving_the_word("") > 10


@pytest.mark.parametrize(
    "weak",
    ["word before the check", "news before the word", "the change", "the comparison"],
)
def test_each_order_of_leaving_the_word_is_needed(weak: str) -> None:
    assert violated(lambda: leaving_the_word(weak))


# -- SYNC ready: a producer leaves a set bit, and its message is found nevertheless --


def ready_bits(producer_fence: bool = True, consumer_fence: bool = True) -> int:
    def producer() -> Thread:
        yield release("message", 2)
        if producer_fence:
            yield fence()
        bit = yield load("bit")
        if not bit:
            yield set_bits("bit", 1)

    def consumer() -> Thread:
        yield clear_bits("bit", 1)
        if consumer_fence:
            yield fence()
        message = yield load("message")
        yield store("seen", message)

    def final(memory: dict[str, int]) -> None:
        assert memory["seen"] == 2 or memory["bit"], "a message unseen, and its bit not set"

    return explore([producer, consumer], {"message": 0, "bit": 1, "seen": 0}, final)


def test_a_message_is_seen_or_marked() -> None:
    assert ready_bits() > 10
    assert violated(lambda: ready_bits(producer_fence=False))
    assert violated(lambda: ready_bits(consumer_fence=False))


def use_of_bits(producer_fence: bool = True, consumer_fence: bool = True) -> int:
    """The consumer begins to use the bitmap, and then checks every ring once."""

    def producer() -> Thread:
        yield release("message", 1)
        if producer_fence:
            yield fence()
        wanted = yield load("use_bitmap")
        if wanted:
            yield set_bits("bit", 1)

    def consumer() -> Thread:
        yield store("use_bitmap", 1)
        if consumer_fence:
            yield fence()
        message = yield load("message")
        yield store("seen", message)

    def final(memory: dict[str, int]) -> None:
        assert memory["seen"] or memory["bit"], "a message unseen, and its bit not set"

    words = dict.fromkeys(("message", "use_bitmap", "bit", "seen"), 0)
    return explore([producer, consumer], words, final)


def test_a_message_before_the_bits_were_wanted_is_seen() -> None:
    assert use_of_bits() > 10
    assert violated(lambda: use_of_bits(producer_fence=False))
    assert violated(lambda: use_of_bits(consumer_fence=False))


# -- SYNC credit: a pending Send learns of the receive that is posted for it --


def credit(waiter_fence: bool = True, poster_fence: bool = True) -> int:
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
        assert not memory["asleep"] or memory["rung"], "a Send asleep with its receive posted"

    words = dict.fromkeys(("wants", "posted", "asleep", "rung"), 0)
    return explore([waiter, poster], words, final)


def test_a_waiting_send_learns_of_its_receive() -> None:
    assert credit() > 10
    assert violated(lambda: credit(waiter_fence=False))
    assert violated(lambda: credit(poster_fence=False))


# -- SYNC asked: a message that needs its reader is found by one that sleeps, or polls, elsewhere


def asking(word_fence: bool = True, arming_fence: bool = True) -> int:
    """A reader that sleeps for another event is rung, unless it has seen `asked`."""

    def producer() -> Thread:
        yield release("message", 1)
        yield fence()
        asked = yield load("asked")
        if not asked:
            yield store("asked", 1)
            if word_fence:
                yield fence()
        armed = yield load("armed")
        if armed:
            yield store("rung", 1)

    def consumer() -> Thread:
        yield store("armed", 1)
        if arming_fence:
            yield fence()
        asked = yield load("asked")
        yield store("asleep", 0 if asked else 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["rung"], "asleep with a message, and not rung"

    return explore(
        [producer, consumer],
        dict.fromkeys(("asked", "armed", "asleep", "rung"), 0) | {"message": 0},
        final,
    )


def test_a_sleeper_for_another_event_is_rung_or_sees_asked() -> None:
    assert asking() > 50


@pytest.mark.parametrize("fence_of", ["word_fence", "arming_fence"])
def test_asking_needs_its_fences(fence_of: str) -> None:
    assert violated(lambda: asking(**{fence_of: False}))


def hearing(producer_fence: bool = True, hearing_fence: bool = True) -> int:
    """A reader that polls another queue finds the message, or finds `asked` later."""

    def producer() -> Thread:
        yield release("message", 1)
        if producer_fence:
            yield fence()
        asked = yield load("asked")
        if not asked:
            yield store("asked", 1)

    def consumer() -> Thread:
        asked = yield load("asked")
        if not asked:
            return
        yield store("asked", 0)
        if hearing_fence:
            yield fence()
        message = yield load("message")
        yield store("seen", message)

    def final(memory: dict[str, int]) -> None:
        assert memory["seen"] or memory["asked"], "a message unseen, and `asked` not set"

    return explore([producer, consumer, producer], {"message": 0, "asked": 1, "seen": 0}, final)


def test_a_message_that_is_asked_for_is_seen_or_still_asked_for() -> None:
    assert hearing() > 50


@pytest.mark.parametrize("fence_of", ["producer_fence", "hearing_fence"])
def test_asking_needs_both_fences(fence_of: str) -> None:
    assert violated(lambda: hearing(**{fence_of: False}))
