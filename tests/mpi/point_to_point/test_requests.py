# SPDX-License-Identifier: Apache-2.0
"""Requests: of sends that have ended at once, of messages in a row, and how handles are made."""

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi import MPI
from shmnd.mpi.collectives import op
from shmnd.mpi.datatypes import datatype
from shmnd.mpi.point_to_point import request

SENT = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank:
    assert sorted(comm.recv(source=0) for _ in range(6)) == list(range(6))
    comm.Barrier()
    comm.Recv(bytearray(1), 0, 9)
else:
    first, second, third = (comm.Isend(MPI.pickle.dumps(k), 1) for k in range(3))
    number = second.handle
    assert number == MPI.Request.fromhandle(number).handle
    status = MPI.Status()
    assert first.Wait(status) and status.Get_count() == 0 and not status.Is_cancelled()
    assert not first and second and third
    again = MPI.Request.fromhandle(number)
    assert again == second
    second.Cancel()
    assert second.Get_status() and second
    assert second.Test() and not second
    third.Free()
    assert not third and again and again.Test()
    rest = [comm.Isend(MPI.pickle.dumps(k), 1) for k in range(3, 6)]
    assert MPI.Request.Waitany(rest) == 0
    assert MPI.Request.Waitsome(rest) == [1, 2]
    assert rest == [MPI.REQUEST_NULL] * 3
    assert MPI.Request.Waitsome(rest) is None
    cancelled = comm.Issend(b"a", 1, 9)  # the page says that this changes nothing
    cancelled.Cancel()
    assert not cancelled.Test()
    comm.Barrier()
    assert cancelled.Wait(status) and not status.Is_cancelled()
print("well")
"""


def test_a_send_that_has_ended_at_once_has_a_request_like_any_other() -> None:
    assert launch(2, "-c", SENT).stdout.count("well") == 2


WINDOWS = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
other = 1 - comm.rank
for count, size in ((16, 40), (500, 4000), (3, 100000)):
    out = [bytes([k % 251]) * size for k in range(count)]
    into = [bytearray(size) for _ in out]
    statuses = []
    receives = [comm.Irecv(each, other, k % 7) for k, each in enumerate(into)]
    sends = [comm.Isend(each, other, k % 7) for k, each in enumerate(out)]
    MPI.Request.Waitall(sends)
    MPI.Request.Waitall(tuple(receives), statuses)
    assert into == out, (count, size)
    assert [(each.source, each.tag, each.count) for each in statuses] == [
        (other, k % 7, size) for k in range(count)
    ]
    assert not any(sends) and not any(receives)
    kept = [sys.getrefcount(each) for each in out]
    assert len(set(kept)) == 1, kept
print("well")
"""


def test_windows_of_messages_that_fit_a_lane_and_that_do_not() -> None:
    assert launch(2, "-c", WINDOWS).stdout.count("well") == 2


GARBAGE = """
import array, gc, weakref
from mpi4py import MPI

class Comm(MPI.Intracomm):
    pass

comm = Comm(MPI.COMM_WORLD)
if comm.rank:
    comm.recv(source=0)
    comm.Send(array.array("i", range(4)), 0, 7)
else:
    target = array.array("i", [0] * 4)
    alive = weakref.ref(target)
    comm.request = comm.Irecv(target, 1, 7)
    del comm, target
    gc.collect()
    assert alive() is not None, "the memory of a posted receive was freed"
    MPI.COMM_WORLD.send("now", 1)
    while alive() is not None:  # until the message has come, and an operation looks
        MPI.COMM_WORLD.Iprobe(1, 8)
        MPI.COMM_SELF.sendrecv(None, 0, source=0)
print("well")
"""


def test_a_receive_among_garbage_keeps_its_memory() -> None:
    assert launch(2, "-c", GARBAGE).stdout.count("well") == 2


@pytest.mark.parametrize(
    ("kind", "name", "constant"),
    [
        (datatype.Datatype, "datatype", datatype.INT),
        (op.Op, "op", op.SUM),
        (request.Request, "request", request.ended()),
    ],
)
def test_a_handle_is_made_from_another_one_by_place_or_by_name(kind, name, constant) -> None:
    assert kind(constant) == kind(**{name: constant}) == constant
    assert not kind()
    assert not kind(None)
    for wrong in ({"nonsense": constant}, {name: 3}):
        with pytest.raises(
            TypeError, match="keyword|argument, " if "nonsense" in wrong else "not int"
        ):
            kind(**wrong)
    with pytest.raises(TypeError, match=r"one argument|at most 1"):
        kind(constant, constant)


AGAIN = """
import sys, weakref
from mpi4py import MPI
world = MPI.COMM_WORLD.Dup()
first, second = bytearray(4), bytearray(8)
kept = world.Irecv(first, 0, 1)
held = kept.ob  # the program, too, refers to the operation: it is not used again
world.Send(b"abcd", 0, 1)
kept.Wait()
new = world.Irecv(second, 0, 2)
assert new.ob is not held
world.Send(b"efghijkl", 0, 2)
new.Wait()
del held
for turn in range(200):
    receives = [world.Irecv(bytearray(8), 0, tag) for tag in range(3)]
    objects = [world.irecv(source=0, tag=9), world.irecv(None, 0, 10)]
    gone = weakref.ref(receives[0])
    for tag in range(3):
        world.Send(bytes([turn, tag]), 0, tag)
    world.send({turn: "x"}, 0, 9)
    world.send([turn], 0, 10)
    status = MPI.Status()
    MPI.Request.Waitall(receives, [status])
    assert (status.source, status.tag, status.count) == (0, 0, 2)
    assert [each.wait() for each in objects] == [{turn: "x"}, [turn]]
    assert not any(receives)
    receives.clear()
    assert gone() is None
assert (first, second) == (b"abcd", b"efghijkl")
references = sys.getrefcount(world)
waited = world.Irecv(bytearray(1), 0, 3)
world.Send(b"x", 0, 3)
waited.Wait()
assert sys.getrefcount(world) == references  # an operation that is over holds none
world.Free()
print("well")
"""


def test_a_receive_that_takes_the_place_of_an_ended_one_has_nothing_of_it() -> None:
    assert launch(1, "-c", AGAIN).stdout.count("well") == 1


def window(count: int) -> list[MPI.Request]:
    """Return requests of sends of this rank to itself, all of which have been received."""
    into = [bytearray(1) for _ in range(count)]
    receives = [MPI.COMM_SELF.Irecv(each, 0) for each in into]
    sends = [MPI.COMM_SELF.Isend(each, 0) for each in into]
    MPI.Request.Waitall(receives)
    return sends


@pytest.mark.parametrize("count", [3, 200])
def test_requests_that_were_dropped_come_back_as_new_ones(count: int) -> None:
    seen = []
    for _ in range(3):
        sends = window(count)
        assert all(sends)
        assert all(gc.is_tracked(each) for each in sends)
        assert len({id(each) for each in sends}) == count
        references = [weakref.ref(each, lambda _: seen.append(1)) for each in sends]
        MPI.Request.Waitall(sends)
        assert not any(sends)
        assert all(each() is not None for each in references)
        del sends
        assert not any(each() for each in references)
        gc.collect()
    assert len(seen) == 3 * count


WINDOWS = """
import gc
from mpi4py import MPI

world = MPI.COMM_WORLD
for turn in range(3):
    if world.rank:
        for _ in range(4):
            world.Recv(bytearray(1), 0)
        world.Barrier()
    else:
        sends = [world.Isend(b"x", 1) for _ in range(4)]
        assert {type(each) for each in sends} == {MPI.Request}
        assert [gc.is_tracked(each) for each in sends] == 4 * [turn == 0], turn
        MPI.Request.Waitall(sends)
        del sends
        world.Barrier()
print("well")
"""


def test_requests_of_sent_messages_are_dropped_ones_that_the_collector_does_not_see() -> None:
    # The layout that the spare requests rely on is compared with that of the class, and a class of
    # another layout goes the slow way: only this tells.
    assert launch(2, "-c", WINDOWS).stdout.count("well") == 2


def test_a_dropped_request_drops_its_operation_and_that_drops_requests() -> None:
    class Holder:
        """What a request of the program's own refers to, and what drops requests at its end."""

        def __init__(self) -> None:
            self.sends = window(100)

        def query(self, _: MPI.Status) -> None:
            """Answer that there is nothing to say."""

    holder = Holder()
    alive = weakref.ref(holder)
    request = MPI.Grequest.Start(holder.query)
    plain = MPI.Request(request)
    request.Complete()
    del holder
    assert alive() is not None
    del request
    assert plain.Test()
    assert not plain
    del plain
    gc.collect()
    assert alive() is None
    MPI.Request.Waitall(window(100))


@pytest.mark.parametrize("other", [MPI.Message, lambda m: MPI.Message.fromhandle(m.handle)])
def test_a_message_is_received_once_by_any_of_its_handles(
    other: Callable[[MPI.Message], MPI.Message],
) -> None:
    sent = MPI.COMM_SELF.Isend(b"text", 0)
    message = MPI.COMM_SELF.Mprobe()
    again = other(message)
    got = bytearray(4)
    message.Recv(got)
    assert got == b"text"
    for call in (lambda: again.Recv(got), lambda: again.Irecv(got), again.recv, again.irecv):
        with pytest.raises(MPI.Exception, match="the message is null or was received"):
            call()
    sent.Wait()


def test_requests_of_a_class_of_the_program_are_of_that_class() -> None:
    class Own(MPI.Request):
        pass

    (send,) = window(1)
    own = Own(send)
    own.note = "kept"
    assert type(own) is Own
    assert own == send
    assert own.note == "kept"
    del send
    assert own.Test()
    assert not own
    del own
    assert {type(each) for each in window(3)} == {MPI.Request}


def test_a_cycle_through_a_request_is_collected() -> None:
    class Communicator(MPI.Intracomm):
        pass

    comm = Communicator(MPI.COMM_SELF)
    comm.request = comm.Irecv(bytearray(1), 0, 71)
    alive = weakref.ref(comm.request)
    comm.request.Cancel()
    del comm
    gc.collect()
    assert alive() is None


def test_all_results_and_the_first_error_of_several() -> None:
    comm = MPI.COMM_SELF
    into = [bytearray(2), bytearray(1), bytearray(2), bytearray(1)]
    receives = [comm.Irecv(each, 0, tag) for tag, each in enumerate(into)]
    for tag in range(4):
        comm.Send(b"ab", 0, tag)
    statuses: list[MPI.Status] = []
    with pytest.raises(MPI.Exception, match="tag 1") as error:
        MPI.Request.Waitall(receives, statuses)
    assert error.value.Get_error_class() == MPI.ERR_IN_STATUS
    assert "MPI_ERR_TRUNCATE" in str(error.value)
    assert not any(receives)
    assert into[0] == into[2] == b"ab"
    assert [each.error for each in statuses] == [0, MPI.ERR_TRUNCATE, 0, MPI.ERR_TRUNCATE]
    objects = [comm.irecv(None, 0, tag) for tag in range(3)]
    for tag in (2, 0, 1):
        comm.send({"tag": tag}, 0, tag)
    assert MPI.Request.waitall(objects) == [{"tag": tag} for tag in range(3)]


@pytest.mark.parametrize("call", ["Waitall", "Testall", "Waitsome", "Testsome"])
@pytest.mark.parametrize("asked", [True, False])
def test_an_error_among_several_requests_is_in_the_statuses(call: str, asked: bool) -> None:
    comm = MPI.COMM_SELF
    into = [bytearray(2), bytearray(1), bytearray(2)]
    receives = [comm.Irecv(each, 0, tag) for tag, each in enumerate(into)]
    for tag in range(3):
        comm.Send(b"ab", 0, tag)
    statuses: list[MPI.Status] = []
    with pytest.raises(MPI.Exception, match=r"MPI_ERR_TRUNCATE.*tag 1") as error:
        getattr(MPI.Request, call)(receives, *([statuses] if asked else []))
    assert error.value.Get_error_class() == MPI.ERR_IN_STATUS
    assert isinstance(error.value.__cause__, MPI.Exception)
    assert not any(receives)
    assert into[0] == into[2] == b"ab"
    if asked:
        assert [each.error for each in statuses] == [0, MPI.ERR_TRUNCATE, 0]


def test_a_bytearray_keeps_its_size_while_it_is_received_into() -> None:
    into, empty = bytearray(3), bytearray()
    receives = [MPI.COMM_SELF.Irecv(each, 0, 72) for each in (into, into, empty)]
    for each in (into, empty):
        with pytest.raises(BufferError):
            each.extend(b"more")
    for each in (b"abc", b"def", b""):
        MPI.COMM_SELF.Send(each, 0, 72)
    receives[0].Wait()
    with pytest.raises(BufferError):
        into.clear()
    MPI.Request.Waitall(receives)
    into.extend(b"more")
    empty.extend(b"more")
    assert (into, empty) == (b"defmore", b"more")


NOWHERE = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
other = 1 - comm.rank
for buffer in bytearray(40), [bytearray(40), 5, MPI.DOUBLE]:
    for _ in range(3):
        comm.Irecv(buffer, MPI.PROC_NULL).Wait()
        comm.Isend(buffer, MPI.PROC_NULL).Wait()
        requests = [comm.irecv(source=other), comm.isend("object", other)]
        assert MPI.Request.waitall(requests) == ["object", None]
        requests = [comm.Irecv(buffer, MPI.PROC_NULL), comm.irecv(source=other)]
        requests.append(comm.issend({"of": comm.rank}, other))
        assert MPI.Request.waitall(requests) == [None, {"of": other}, None]
print("well")
"""


def test_a_request_that_comes_after_one_with_no_rank_has_no_part_of_it() -> None:
    assert launch(2, "-c", NOWHERE).stdout.count("well") == 2


def test_a_generalized_request_that_is_freed_runs_its_function_when_it_is_complete() -> None:
    seen: list[str] = []
    request = MPI.Grequest.Start(free_fn=lambda: seen.append("free"))
    other = MPI.Grequest(request)
    request.Free()
    assert not seen
    other.Complete()
    assert seen == ["free"]
    request = MPI.Grequest.Start(free_fn=lambda: seen.append("by the freed handle"))
    request.Free()
    assert not request
    request.Complete()
    assert seen.pop() == "by the freed handle"
    with pytest.raises(MPI.Exception, match="Complete: the handle is null"):
        request.Complete()
    request = MPI.Grequest.Start(free_fn=lambda: seen.append("free again"))
    request.Complete()
    request.Free()
    assert seen == ["free", "free again"]


def test_a_generalized_request_is_completed_once() -> None:
    request = MPI.Grequest.Start()
    request.complete(5)
    with pytest.raises(MPI.Exception, match="Complete: it is complete"):
        request.complete(6)
    assert request.wait() == 5


def test_a_generalized_request_is_completed_by_its_number() -> None:
    request = MPI.Grequest.Start()
    MPI.Grequest.fromhandle(request.handle).Complete()
    assert request.Wait()
    request = MPI.Grequest.Start()
    MPI.Grequest.f2py(request.py2f()).complete(6)
    assert request.wait() == 6
    request = MPI.Grequest.Start()
    other = MPI.Grequest.fromint(request.toint())
    other.Free()
    other.Complete()
    assert request.Wait()


@pytest.mark.parametrize(
    ("kind", "text"), [(MPI.Grequest, "program completes"), (MPI.Prequest, "persistent")]
)
def test_the_number_of_a_request_of_another_kind_is_refused(
    kind: type[MPI.Request], text: str
) -> None:
    target = bytearray(1)
    request = MPI.COMM_SELF.Irecv(target, 0)
    for make in (lambda: kind(request), lambda: kind.fromhandle(request.handle)):
        with pytest.raises(TypeError, match=text):
            make()
    MPI.COMM_SELF.Send(b"k", 0)
    assert request.Wait()
    assert target == b"k"


@pytest.mark.parametrize("freed", [False, True])
def test_a_generalized_request_that_has_ended_is_null_and_keeps_nothing(freed: bool) -> None:
    class Held:
        pass

    argument, value = Held(), Held()
    alive = weakref.ref(argument), weakref.ref(value)
    request = MPI.Grequest.Start(free_fn=lambda _: None, args=(argument,))
    if freed:
        request.Free()
    request.complete(value)
    assert freed or request.wait() is value
    del argument, value
    gc.collect()
    assert [each() for each in alive] == [None, None]
    for null in request, MPI.Grequest():
        for call in null.Complete, null.complete, null.Free:
            with pytest.raises(MPI.Exception, match="the handle is null"):
                call()


REENTERED = """
import numpy as np
from mpi4py import MPI

class Number:
    def __init__(self, function):
        self.function = function
    def __index__(self):
        self.function()
        return 4

comm = MPI.COMM_SELF
for handle in (lambda m: m, MPI.Message):
    sent = comm.Isend(b"text", 0)
    message, taken = comm.Mprobe(), bytearray(4)
    other = handle(message)
    try:
        message.Recv([bytearray(4), Number(lambda: other.Recv(taken)), MPI.BYTE])
    except MPI.Exception as exc:
        assert "Message.Recv: the message is null or was received" in str(exc)
    else:
        raise AssertionError("one message was received twice")
    assert taken == b"text"
    sent.Wait()
for call in "Put", "Get":
    memory = np.zeros(1 << 22, "u1")
    win = MPI.Win.Create(memory, comm=comm)
    win.Lock(0)
    def ended():
        global memory
        win.Unlock(0)
        win.Free()
        memory = None
    try:
        getattr(win, call)(np.ones(4, "u1"), 0, [Number(ended), 4, MPI.BYTE])
    except MPI.Exception as exc:
        assert "no access epoch" in str(exc)
    else:
        raise AssertionError("a window that is freed was used")
"""


def test_a_number_that_ends_what_it_is_for_is_an_error() -> None:
    """In a process of its own, which would end by it."""
    launch(1, "-c", REENTERED)


def test_a_partition_that_has_come_can_be_read_before_the_receive_ends() -> None:
    """Also one of a type with gaps, whose bytes come packed; the program may write there then."""
    comm = MPI.COMM_SELF
    gaps = MPI.INT.Create_vector(2, 1, 2).Commit()
    sent, got = np.arange(8, dtype="i4"), np.full(8, -1, "i4")
    send = comm.Psend_init([sent, 1, gaps], 2, 0)
    receive = comm.Precv_init([got, 1, gaps], 2, 0)
    for turn in range(2):
        got[:] = -1
        send.Start()
        receive.Start()
        assert not receive.Parrived(0)
        send.Pready_range(0, 1)
        assert receive.Parrived(0)
        assert got.tolist() == [0, -1, 2, 3, -1, 5, -1, -1], turn
        assert receive.Parrived(1)
        got[0] = 9
        assert MPI.Request.Waitall([send, receive])
        assert got.tolist() == [9, -1, 2, 3, -1, 5, -1, -1], turn
    send.Free()
    receive.Free()
    gaps.Free()


def test_a_range_without_partitions_begins_no_send() -> None:
    comm = MPI.COMM_SELF
    send, receive = comm.Psend_init(b"ab", 2, 0), comm.Precv_init(memory := bytearray(2), 2, 0)
    receive.Start()
    send.Pready_range(0, -1)
    assert not receive.Test()
    send.Start()
    send.Pready_range(0, 1)
    assert MPI.Request.Waitall([send, receive])
    assert memory == b"ab"
    send.Free()
    receive.Free()


def test_a_range_with_a_partition_that_is_not_there_marks_none() -> None:
    """The program may mark them again; the send was marked whole, and never began."""
    comm = MPI.COMM_SELF
    send, receive = comm.Psend_init(b"abcd", 4, 0), comm.Precv_init(memory := bytearray(4), 4, 0)
    send.Start()
    receive.Start()
    with pytest.raises(MPI.Exception, match=r"y_range\(0, 4\) of .*: the partitions are 0 to 3"):
        send.Pready_range(0, 4)
    with pytest.raises(MPI.Exception, match=r"Pready_range\(3, 1\) .* ends before it begins"):
        send.Pready_range(3, 1)
    for empty in (0, 4):
        send.Pready_range(empty, empty - 1)
    send.Pready_range(0, 3)
    with pytest.raises(MPI.Exception, match=r"Pready\(2\) .* the partition 2 is marked already"):
        send.Pready(2)
    assert MPI.Request.Waitall([send, receive])
    assert memory == b"abcd"
    send.Free()
    receive.Free()
