# SPDX-License-Identifier: Apache-2.0
"""Handles, groups, info objects, errors, attributes, pickles."""

import gc
import pickle
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

from shmnd.mpi import MPI, constants
from shmnd.mpi.buffers import buffer
from shmnd.mpi.buffers.pickle import Pickle
from shmnd.mpi.communicators import group
from shmnd.mpi.communicators.group import group_from
from shmnd.mpi.datatypes import datatype
from shmnd.mpi.objects import errhandler, errors, info
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point import status


def test_handles_are_equal_by_their_objects() -> None:
    made = datatype.INT.Dup()
    other = datatype.Datatype(made)
    assert other == made
    assert datatype.Datatype.fromhandle(made.handle) == made
    number = made.handle
    made.Free()
    assert not made
    assert other
    with pytest.raises(ValueError, match="number"):
        datatype.Datatype.fromhandle(number)
    assert datatype.DATATYPE_NULL != info.INFO_NULL
    with pytest.raises(TypeError):
        datatype.Datatype(info.INFO_NULL)
    with pytest.raises(TypeError):
        hash(made)


def test_groups_are_ordered_sets() -> None:
    first, second = group_from([3, 1, 0]), group_from([0, 1, 2])
    assert group.Group.Union(first, second).ob.ranks == (3, 1, 0, 2)
    assert group.Group.Intersection(first, second).ob.ranks == (1, 0)
    assert group.Group.Difference(first, second).ob.ranks == (3,)
    assert first.Translate_ranks([0, 1, 2], second) == [constants.UNDEFINED, 1, 0]
    assert first.rank == 2
    assert first.Range_incl([(2, 0, -2)]).ob.ranks == (0, 3)
    assert first.Excl([1]).ob.ranks == (3, 0)
    assert group.Group.Compare(first, group_from([0, 1, 3])) == constants.SIMILAR
    with pytest.raises(MPIException, match="rank 3"):
        first.Incl([3])
    with pytest.raises(MPIException, match="twice"):
        first.Incl([1, 1])


def test_an_object_has_one_group_and_each_handle_to_it_is_freed_alone() -> None:
    comm = MPI.COMM_SELF.Dup()
    win = MPI.Win.Allocate(8, comm=comm)
    handles = [comm.Get_group(), comm.group, win.group, MPI.COMM_SELF.group, comm.Dup().group]
    assert all(each == handles[0] for each in handles)
    assert not any(each != handles[0] for each in handles)
    assert handles[0] != handles[0].Incl([0])  # a group of its own, as in other MPIs
    assert MPI.COMM_WORLD.group.Excl([0]) == MPI.GROUP_EMPTY != handles[0]
    number = handles[1].handle
    handles[0].Free()
    assert handles[0] == MPI.GROUP_NULL != handles[1]
    assert MPI.Group.fromhandle(number) == handles[1]
    with pytest.raises(TypeError):
        hash(handles[1])
    win.Free()


def test_the_number_of_an_object_of_another_kind_is_refused() -> None:
    """Its methods would read the memory of that object as one of theirs."""
    comm, request = MPI.COMM_SELF.Dup(), MPI.Grequest.Start()
    made = [
        comm, request, MPI.INT.Dup(), MPI.Op.Create(min), MPI.Win.Allocate(8, comm=comm),
        MPI.File.Open(comm, "/dev/null"), comm.Get_group(), MPI.Info.Create(),
        MPI.Comm.Create_errhandler(print), MPI.Session.Init(), MPI.MESSAGE_NO_PROC,
    ]  # fmt: skip
    kinds = [
        MPI.Comm, MPI.Request, MPI.Datatype, MPI.Op, MPI.Win, MPI.File, MPI.Group, MPI.Info,
        MPI.Errhandler, MPI.Session, MPI.Message,
    ]  # fmt: skip
    for each, own in zip(made, kinds, strict=True):
        for kind in kinds:
            if kind is own:
                assert kind.fromhandle(each.handle) == each
                continue
            with pytest.raises(ValueError, match=f"no {kind.__name__} has this number"):
                kind.f2py(each.py2f())
    request.Complete()
    for each in made:
        each.free() if not isinstance(each, MPI.Request) else each.Wait()


def test_info_is_a_mapping_with_limits() -> None:
    pairs = info.Info.Create({"a": "1"})
    pairs.update(b="2")
    assert dict(pairs) == {"a": "1", "b": "2"}
    assert pickle.loads(pickle.dumps(pairs)).items() == pairs.items()
    with pytest.raises(MPIException) as caught:
        pairs.Set("k" * 37, "v")
    assert caught.value.Get_error_class() == constants.ERR_INFO_KEY


def test_errors_know_their_class_and_call() -> None:
    caught = MPIException(constants.ERR_RANK, "Send(dest=7): 2 ranks")
    assert caught == constants.ERR_RANK
    assert "Send(dest=7)" in str(caught)
    assert str(pickle.loads(pickle.dumps(caught))) == str(caught)
    code = errors.Add_error_code(constants.ERR_ARG)
    errors.Add_error_string(code, "words")
    assert errors.Get_error_class(code) == constants.ERR_ARG
    assert errors.Get_error_string(code) == "words"
    errors.Remove_error_string(code)
    errors.Remove_error_code(code)


def test_attributes_are_copied_and_deleted_by_their_key() -> None:
    deleted = []
    key = datatype.Datatype.Create_keyval(
        lambda _object, _key, value: value + 1, lambda _object, _key, value: deleted.append(value)
    )
    made = datatype.INT.Dup()
    made.Set_attr(key, 1)
    other = made.Dup()
    assert other.Get_attr(key) == 2
    other.Free()
    made.Free()
    assert deleted == [2, 1]
    assert datatype.Datatype.Free_keyval(key) == constants.KEYVAL_INVALID
    with pytest.raises(MPIException):
        datatype.INT.Get_attr(-1)


def test_a_key_that_was_freed_leaves_no_memory_and_is_known_as_freed() -> None:
    first = MPI.Comm.Create_keyval()
    MPI.Comm.Free_keyval(first)

    def make(times: int) -> None:
        for kind in (MPI.Comm, MPI.Win, datatype.Datatype) * times:
            kind.Free_keyval(kind.Create_keyval())

    make(50)
    tracemalloc.start()
    try:
        make(5000)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert MPI.COMM_SELF.Get_attr(first) is None
    for call in (MPI.Comm.Free_keyval, lambda key: MPI.COMM_SELF.Set_attr(key, 1)):
        with pytest.raises(MPIException, match="freed"):
            call(first)
    for key in (first + 10**9, first + 1, first - 3 * first):
        with pytest.raises(MPIException, match="Create_keyval has not returned this"):
            MPI.COMM_SELF.Get_attr(key)


def test_a_key_that_was_freed_keeps_its_functions_while_a_value_is_held() -> None:
    class Counted:
        """Counts deleted values."""

        deleted = 0

        def delete(self, *_: object) -> None:
            Counted.deleted += 1

    gone = weakref.ref(owner := Counted())
    key = datatype.Datatype.Create_keyval(True, owner.delete)
    made = datatype.INT.Dup()
    made.Set_attr(key, owner)
    del owner
    datatype.Datatype.Free_keyval(key)
    for call in (datatype.Datatype.Free_keyval, lambda key: made.Set_attr(key, 1)):
        with pytest.raises(MPIException, match="freed"):
            call(key)
    other = made.Dup()
    assert other.Get_attr(key) is gone()
    made.Free()
    other.Delete_attr(key)
    assert Counted.deleted == 2
    assert gone() is None
    assert other.Get_attr(key) is None
    other.Free()


def test_a_buffer_that_ends_in_a_cycle_releases_its_object() -> None:
    memory = bytearray(10)
    cycle: list[object] = [buffer.buffer.frombuffer(memory)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    memory.append(1)


def test_error_handlers_are_limited_in_number_and_freed() -> None:
    made = [errhandler.create("Comm", print) for _ in range(errhandler.LIMIT)]
    with pytest.raises(RuntimeError):
        errhandler.create("Comm", print)
    for handler in made:
        handler.Free()
    errhandler.create("Comm", print).Free()


def _interrupts(*_: object) -> None:
    raise KeyboardInterrupt


def _fails(*_: object) -> None:
    raise ValueError("of a function")


def _report(handler: errhandler.Errhandler) -> None:
    errhandler.handle_by(handler.ob, None, constants.ERR_ARG, "words")
    raise MPIException(constants.ERR_ARG, "words")


def test_an_interruption_of_a_function_reaches_the_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What else it raises is printed, for the call has an error of its own."""
    made = datatype.INT.Dup()
    for function, raised in ((_interrupts, KeyboardInterrupt), (_fails, MPIException)):
        key = datatype.Datatype.Create_keyval(function)
        made.Set_attr(key, 1)
        with pytest.raises(raised):
            made.Dup()
        made.Delete_attr(key)
        handler = errhandler.create("Comm", function)
        with pytest.raises(raised):
            _report(handler)
        handler.Free()
    assert capsys.readouterr().err.count("ValueError: of a function") == 2


def test_a_status_counts_in_items() -> None:
    made = status.Status()
    made.Set_elements(datatype.INT, 6)
    assert made.Get_count(datatype.INT) == 6
    four = datatype.INT.Create_contiguous(4).Commit()
    assert made.Get_count(four) == constants.UNDEFINED
    assert made.Get_elements(four) == 6
    assert status.Status.f2py(made.py2f()) == made


def test_large_buffers_leave_a_pickle() -> None:
    kept = {"small": np.arange(3), "large": np.arange(1 << 16)}
    made = Pickle()
    data, buffers = made.dumps_oob(kept)
    assert [part.nbytes for part in buffers] == [8 << 16]
    assert len(data) < 4096
    again = made.loads_oob(data, buffers)
    assert again["large"].tolist() == kept["large"].tolist()
    assert np.shares_memory(again["large"], kept["large"])


@pytest.mark.parametrize(
    "made", [MPI.COMM_SELF.Dup, MPI.INT.Dup, lambda: MPI.Win.Create(None)], ids=["", "type", "win"]
)
def test_a_value_goes_though_the_function_that_deletes_it_raises(
    made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in mpi4py, where the program gets no error of them: it is printed."""

    def refuse(_: object, key: int, value: int) -> None:
        raise ValueError(f"not {value}")

    owner = made()
    key = type(owner).Create_keyval(delete_fn=refuse)
    owner.Set_attr(key, 1)
    owner.Set_attr(key, 2)
    assert owner.Get_attr(key) == 2
    owner.Free()
    assert not owner
    said = capsys.readouterr().err
    assert "ValueError: not 1" in said
    assert "ValueError: not 2" in said
    owner = made()
    owner.Set_attr(key, 3)
    with pytest.raises(MPI.Exception, match="refuse raised an exception"):
        owner.Delete_attr(key)
    owner.Free()
    type(owner).Free_keyval(key)
