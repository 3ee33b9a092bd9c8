# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour with `shmnd.ipc`: each a call that cannot work.

What they say is in `mistakes.txt`.
"""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from shmnd import ipc

Ends = SimpleNamespace


@dataclasses.dataclass
class Point:
    """A record."""

    x: float
    y: float


@dataclasses.dataclass
class Person:
    """No record: a text has no fixed size."""

    name: str


def ends_of(stack: Any) -> Ends:
    """An object of each kind, closed by a stack."""
    enter = stack.enter_context
    e = Ends()
    e.pub, e.sub = enter(ipc.Publisher("floats", "f8", slots=2)), enter(ipc.Subscriber("floats"))
    e.fixed = enter(ipc.Publisher("fixed", ipc.Array("f4", (2, 3)), max_sample=64))
    e.bytes, e.point = enter(ipc.Publisher("bytes", bytes)), enter(ipc.Publisher("point", Point))
    e.both = enter(ipc.Publisher("both", ipc.Arrays(a=ipc.Array("f4", 3), b=ipc.Array("i8", 2))))
    e.any = enter(ipc.Publisher("any"))
    e.alone = enter(ipc.Subscriber("alone", wait_for_publisher=False))
    e.vain = enter(ipc.Subscriber("vain"))
    e.held = enter(ipc.Subscriber("bytes", max_held=1))
    e.bytes.wait_for_subscribers(timeout=10)
    for _ in range(2):
        e.bytes.send(b"x" * 100)
    e.sample = e.held.receive(timeout=10)
    e.spent = e.pub.loan(3)
    e.spent.send()
    e.server, e.client = (
        enter(ipc.Server("sum", "4f8", "f8")),
        enter(ipc.Client("sum", "4f8", "f8")),
    )
    e.lonely = enter(ipc.Client("lonely"))
    e.notifier, e.listener = enter(ipc.Notifier("event")), enter(ipc.Listener("event"))
    e.board = enter(ipc.Blackboard("robot", {"pose": "6f8", "mode": "u1"}))
    e.reader = enter(ipc.BlackboardReader("robot"))
    e.orphan = enter(ipc.BlackboardReader("orphan"))
    e.queue, e.full = enter(ipc.Queue()), enter(ipc.Queue(maxsize=1))
    e.full.put(1)
    e.joinable = enter(ipc.JoinableQueue())
    e.set = enter(ipc.WaitSet())
    e.closed = {}
    for each in (
        ipc.Publisher("floats", "f8"), ipc.Subscriber("floats"), ipc.Server("sum", "4f8", "f8"),
        ipc.Client("sum", "4f8", "f8"), ipc.Notifier("event"), ipc.Listener("event"),
        ipc.BlackboardReader("robot"), ipc.Queue(), ipc.WaitSet(),
        ipc.Blackboard("closed", {"x": "f8"}),
    ):  # fmt: skip
        each.close()
        e.closed[type(each)] = each
    return e


def _answered_twice(e: Ends) -> None:
    e.client.send([1, 2, 3, 4])
    request = e.server.receive(10)
    request.respond(1.0)
    request.respond(2.0)


def _wrong_answer(e: Ends) -> None:
    e.client.send([1, 2, 3, 4])
    e.server.receive(10).respond("text")


def _unpicklable_answer(_: Ends) -> None:
    with ipc.Server("any") as server, ipc.Client("any") as client:
        client.send(1)
        server.receive(10).respond(lambda: 1)


def _loans(e: Ends) -> None:
    loans = [e.pub.loan(100) for _ in range(9)]
    for loan in loans:
        loan.drop()


def _dropped(e: Ends) -> None:
    loan = e.pub.loan(3)
    loan.drop()
    loan.send()


def _written(e: Ends) -> None:
    e.sample.array[0] = 1


Call = Callable[[Ends], Any]
MISTAKES: dict[str, Call] = {
    # topics: opening
    "topic without a name": lambda e: ipc.Publisher(),
    "topic with an empty name": lambda e: ipc.Publisher(""),
    "topic whose name is bytes": lambda e: ipc.Subscriber(b"floats"),
    "topic whose name is too long": lambda e: ipc.Subscriber("x" * 300),
    "unknown dtype": lambda e: ipc.Publisher("x", "floaty"),
    "half a number of items": lambda e: ipc.Publisher("x", ("f8", 0.5)),
    "a field twice": lambda e: ipc.Subscriber("x", [("a", "f8"), ("a", "f8")]),
    "records of 4 GiB": lambda e: ipc.Publisher("x", ipc.Arrays(a=ipc.Array("f8", 1 << 29))),
    "array of an unknown dtype": lambda e: ipc.Array("floaty", 3),
    "type str": lambda e: ipc.Publisher("x", str),
    "type list": lambda e: ipc.Publisher("x", list),
    "an array in place of its type": lambda e: ipc.Publisher("x", np.zeros(3)),
    "dtype of objects": lambda e: ipc.Publisher("x", "O"),
    "record with a text": lambda e: ipc.Publisher("x", Person),
    "record in place of its class": lambda e: ipc.Publisher("x", Point(1, 2)),
    "shape of text": lambda e: ipc.Array("f4", "3x4"),
    "negative shape": lambda e: ipc.Array("f4", (-1, 3)),
    "arrays without names": lambda e: ipc.Arrays("f4"),
    "no arrays": lambda e: ipc.Arrays(),
    "another type than the publisher's": lambda e: ipc.Subscriber("floats", "i4"),
    "a second publisher of another type": lambda e: ipc.Publisher("floats", "i4"),
    "unknown policy": lambda e: ipc.Subscriber("x", overflow="drop"),
    "no buffer": lambda e: ipc.Subscriber("x", buffer=0),
    "buffer as a text": lambda e: ipc.Subscriber("x", buffer="8"),
    "negative history": lambda e: ipc.Publisher("x", history=-1),
    "negative history of a subscriber": lambda e: ipc.Subscriber("x", history=-1),
    "history by position": lambda e: ipc.Publisher("x", "f8", 10),
    "no slots": lambda e: ipc.Publisher("x", slots=0),
    "max_sample as a float": lambda e: ipc.Publisher("x", max_sample=1e6),
    "max_held of none": lambda e: ipc.Subscriber("x", max_held=0),
    "no subscribers": lambda e: ipc.Publisher("x", max_subscribers=0),
    "attributes as a text": lambda e: ipc.Publisher("x", attributes="fast"),
    "attributes beyond JSON": lambda e: ipc.Publisher("x", attributes={"a": object()}),
    "namespace with a slash": lambda e: ipc.Publisher("x", namespace="a/b"),
    # topics: sending
    "send without a value": lambda e: e.pub.send(),
    "text to a topic of numbers": lambda e: e.pub.send("hello"),
    "None to a topic of numbers": lambda e: e.pub.send(None),
    "complex numbers to floats": lambda e: e.pub.send(np.zeros(3, complex)),
    "wrong shape": lambda e: e.fixed.send(np.zeros((3, 2), "f4")),
    "lists of unequal length": lambda e: e.pub.send([[1, 2], [3]]),
    "text to a topic of bytes": lambda e: e.bytes.send("text"),
    "number to a topic of bytes": lambda e: e.bytes.send(5),
    "dict of too few fields": lambda e: e.point.send({"x": 1}),
    "dict of too many fields": lambda e: e.point.send({"x": 1, "y": 2, "z": 3}),
    "array to a topic of arrays": lambda e: e.both.send(np.zeros(3)),
    "arrays of a wrong shape": lambda e: e.both.send({"a": np.zeros(4), "b": [1, 2]}),
    "a lambda as an object": lambda e: e.any.send(lambda: 1),
    "header of text": lambda e: e.pub.send([1.0], header="h"),
    "more than max_sample": lambda e: ipc.Publisher("y", "f8", max_sample=8).send(np.zeros(100)),
    "send of a loan": lambda e: e.pub.send(e.spent),
    "report of slow subscribers that is a number": lambda e: setattr(e.pub, "on_slow", 3),
    # loans
    "loan of a negative shape": lambda e: e.pub.loan(-3),
    "loan of text": lambda e: e.pub.loan("3"),
    "loan of a dtype that is the topic's": lambda e: e.pub.loan(3, "i4"),
    "loan of an unknown dtype": lambda e: e.pub.loan(3, "floaty"),
    "loan of a shape where the type has one": lambda e: e.fixed.loan((9, 9)),
    "loan beyond all memory": lambda e: e.pub.loan(1 << 60),
    "loan sent twice": lambda e: e.spent.send(),
    "array of a spent loan": lambda e: e.spent.array,
    "loan sent after a drop": _dropped,
    "too many loans": _loans,
    # receiving
    "receive in vain": lambda e: e.vain.receive(timeout=0),
    "receive with a timeout of text": lambda e: e.vain.receive(timeout="1"),
    "receive with a negative timeout": lambda e: e.vain.receive(timeout=-1),
    "receive without a publisher": lambda e: e.alone.receive(timeout=1),
    "receive beyond max_held": lambda e: e.held.receive(timeout=1),
    "write to a sample": _written,
    "receive of a closed subscriber": lambda e: e.closed[ipc.Subscriber].receive(timeout=0),
    "send of a closed publisher": lambda e: e.closed[ipc.Publisher].send([1.0]),
    "wait for too many": lambda e: e.pub.wait_for_subscribers(9, timeout=0),
    "wait for minus one": lambda e: e.pub.wait_for_subscribers(-1),
    # services
    "server without a name": lambda e: ipc.Server(),
    "server whose name is a number": lambda e: ipc.Server(5),
    "server whose name is empty": lambda e: ipc.Server(""),
    "server of a field twice": lambda e: ipc.Server("x", [("a", "f8"), ("a", "f8")]),
    "server of another type": lambda e: ipc.Server("sum", "f4", "f8"),
    "server of an unknown type": lambda e: ipc.Server("x", "floaty"),
    "server without a buffer": lambda e: ipc.Server("x", buffer=0),
    "client of another type": lambda e: ipc.Client("sum", "f4", "f8"),
    "call with a wrong shape": lambda e: e.client.call([1, 2, 3], timeout=1),
    "call with text": lambda e: e.client.call("text", timeout=1),
    "call without a server": lambda e: e.lonely.call(1, timeout=0.01),
    "call with a timeout of text": lambda e: e.client.call([1, 2, 3, 4], timeout="1"),
    "call with a negative timeout": lambda e: e.client.call([1, 2, 3, 4], timeout=-1),
    "call of what cannot be pickled": lambda e: e.lonely.call(lambda: 1, timeout=0.01),
    "receive of a server in vain": lambda e: ipc.Server("idle").receive(0),
    "serve without a handler": lambda e: e.server.serve(None),
    "answer twice": _answered_twice,
    "answer of another type": _wrong_answer,
    "answer that cannot be pickled": _unpicklable_answer,
    "call of a closed client": lambda e: e.closed[ipc.Client].call(1),
    "receive of a closed server": lambda e: e.closed[ipc.Server].receive(),
    # events
    "event whose name is a number": lambda e: ipc.Notifier(5),
    "event whose name is empty": lambda e: ipc.Listener(""),
    "number beyond 4095": lambda e: e.notifier.notify(4096),
    "negative number": lambda e: e.notifier.notify(-1),
    "number as a text": lambda e: e.notifier.notify("done"),
    "wait with a timeout of text": lambda e: e.listener.wait("1"),
    "notify of a closed notifier": lambda e: e.closed[ipc.Notifier].notify(),
    "wait of a closed listener": lambda e: e.closed[ipc.Listener].wait(0),
    # blackboards
    "board whose name is a number": lambda e: ipc.Blackboard(5),
    "board of a list": lambda e: ipc.Blackboard("x", ["pose"]),
    "board of an unknown dtype": lambda e: ipc.Blackboard("x", {"pose": "floaty"}),
    "board of half a number": lambda e: ipc.Blackboard("x", {"pose": ("f8", 0.5)}),
    "board of objects": lambda e: ipc.Blackboard("x", {"pose": object}),
    "board with a number as a key": lambda e: ipc.Blackboard("x", {5: "f8"}),
    "second writer": lambda e: ipc.Blackboard("robot"),
    "value of a wrong shape": lambda e: e.board.__setitem__("pose", [1, 2]),
    "value of a wrong kind": lambda e: e.board.__setitem__("pose", "here"),
    "value that cannot be a new key": lambda e: e.board.__setitem__("new", object()),
    "lists of unequal length as a new key": lambda e: e.board.__setitem__("new", [[1], [1, 2]]),
    "lists of unequal length for a number": lambda e: e.board.__setitem__(5, [[1], [1, 2]]),
    "key that is added twice": lambda e: e.board.add("pose", "f8"),
    "key that is not on the own board": lambda e: e.board["speed"],
    "key that is not there": lambda e: e.reader["speed"],
    "key that was never written": lambda e: e.reader["pose"],
    "read without a writer": lambda e: e.orphan["pose"],
    "wait for a key in vain": lambda e: e.reader.wait("pose", timeout=0.01),
    "wait for a key with a timeout of text": lambda e: e.reader.wait("pose", timeout="1"),
    "wait for a key that is a time-out": lambda e: e.reader.wait(0.01),
    "wait after a text": lambda e: e.reader.wait("pose", after="1", timeout=0.01),
    "write of a closed board": lambda e: e.closed[ipc.Blackboard].__setitem__("x", 1.0),
    "read of a closed reader": lambda e: e.closed[ipc.BlackboardReader]["pose"],
    # queues
    "queue whose name is its size": lambda e: ipc.Queue("jobs"),
    "queue of half an item": lambda e: ipc.Queue(0.5),
    "queue of too many": lambda e: ipc.Queue(1 << 40),
    "queue whose name is a number": lambda e: ipc.Queue(name=5),
    "queue whose name is empty": lambda e: ipc.Queue(name=""),
    "put with a timeout of text": lambda e: e.full.put(1, timeout="1"),
    "get with a timeout of text": lambda e: e.queue.get(timeout="1"),
    "get with a timeout in place of block": lambda e: e.queue.get(0),
    "put into a full queue": lambda e: e.full.put(1, timeout=0),
    "get of an empty queue": lambda e: e.queue.get(timeout=0),
    "put into a closed queue": lambda e: e.closed[ipc.Queue].put(1),
    "get of a closed queue": lambda e: e.closed[ipc.Queue].get(),
    "join_thread before close": lambda e: e.queue.join_thread(),
    "task_done too often": lambda e: e.joinable.task_done(),
    "queue that is pickled": lambda e: __import__("pickle").dumps(e.queue),
    # wait sets, finding
    "wait set of a text": lambda e: ipc.WaitSet("queue"),
    "wait set of a list": lambda e: ipc.WaitSet([e.queue]),
    "wait set of a publisher": lambda e: e.set.add(e.pub),
    "wait set of a bad descriptor": lambda e: e.set.add(100000),
    "wait set of a closed queue": lambda e: ipc.WaitSet(e.closed[ipc.Queue]),
    "wait set of a closed subscriber": lambda e: ipc.WaitSet(e.closed[ipc.Subscriber]),
    "remove a stranger": lambda e: e.set.remove(e.queue),
    "wait with a timeout of text at a set": lambda e: e.set.wait("1"),
    "wait of a closed set": lambda e: e.closed[ipc.WaitSet].wait(0),
    "watch in a namespace with a slash": lambda e: ipc.watch(namespace="a/b"),
}
