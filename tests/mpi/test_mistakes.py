# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour: each is an error of its class, with a text that names it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi import MPI
from shmnd.mpi.util import pkl5

comm: Any = MPI.COMM_SELF
a, b = np.arange(10.0), np.zeros(10)
NAN = float("nan")
HUGE = 10**5000  # has more digits than Python writes
fixed = np.zeros(10)
fixed.flags.writeable = False
loose = MPI.DOUBLE.Create_contiguous(2)
F90_INTEGER, F90_REAL = MPI.Datatype.Create_f90_integer, MPI.Datatype.Create_f90_real
F90_COMPLEX = MPI.Datatype.Create_f90_complex
gaps = MPI.DOUBLE.Create_vector(2, 1, 2)
single = MPI.DOUBLE.Create_contiguous(1).Commit()


def freed(made: Any) -> Any:
    made.Free()
    return made


def _started_twice() -> None:
    request = comm.Recv_init(b, 0, 77)
    request.Start()
    try:
        request.Start()
    finally:
        request.Cancel()
        request.Wait()


def _objects_as_buffer() -> None:
    comm.Isend(a, 0, 6)
    comm.recv(source=0, tag=6)


def _longer() -> None:
    comm.Isend(a, 0, 5)
    comm.Recv(np.zeros(3), 0, 5)


def _matched_longer() -> None:
    comm.Isend(a, 0, 5)
    comm.Mprobe(0, 5).Recv(np.zeros(3))


def _in_window(call: str, datatype: Any) -> None:
    item = [a.copy(), 1, datatype]
    window = MPI.Win.Allocate(64)
    window.Fence()
    try:
        getattr(window, call)(*[item] * (3 if call == "Compare_and_swap" else 2), 0)
    finally:
        window.Fence()
        window.Free()


def _accumulated(mine: Any, theirs: Any) -> None:
    window = MPI.Win.Allocate(64)
    window.Fence()
    try:
        window.Accumulate([a.copy(), 1, mine], 0, [0, 1, theirs])
    finally:
        window.Fence()
        window.Free()


def _attached_twice() -> None:
    window = MPI.Win.Create_dynamic()
    window.Attach(a)
    try:
        window.Attach(a[3:])
    finally:
        window.Detach(a)
        window.Attach(a[3:])
        window.Free()


def _put(target: Any, rank: Any = 0) -> None:
    window = MPI.Win.Allocate(64)
    window.Fence()
    try:
        window.Put(a[:1], rank, target)
    finally:
        window.Fence()
        window.Free()


def _swapped(datatype: Any) -> None:
    _in_window("Compare_and_swap", datatype)


def _fetched(datatype: Any) -> None:
    _in_window("Fetch_and_op", datatype)


Call = Callable[[], object]

MPI_ERRORS: dict[str, list[tuple[Call, str]]] = {
    "ERR_TAG": [
        (lambda: comm.Send(a, 0, 2**31), "Comm.Send: tag 2147483648; a tag is 0 to 2147483647"),
        (lambda: comm.Send(a, 0, 2**70), "tag 1180591620717411303424"),
        (lambda: comm.Send(a, 0, -1), "Comm.Send: tag -1; a tag is 0"),
        (lambda: comm.send(a, 0, 2**31), "Comm.send: tag 2147483648"),
        (lambda: comm.Isend(a, 0, 2**31), "Comm.Isend: tag 2147483648"),
        (lambda: comm.isend(a, 0, -3), "Comm.isend: tag -3"),
        (lambda: comm.Recv(b, 0, 2**31), "Comm.Recv: tag 2147483648; a tag is 0 to 2147483647, or"),
        (lambda: comm.recv(source=0, tag=-2), "Comm.recv: tag -2"),
        (lambda: comm.Probe(0, 2**31), "Comm.Probe: tag 2147483648"),
        (lambda: comm.improbe(0, -7), "tag -7"),
        (lambda: comm.Sendrecv(a, 0, 2**31, b, 0, 0), "Comm.Sendrecv: tag 2147483648"),
        (lambda: comm.Psend_init(a, 2, 0, 2**31), "Comm.Psend_init: tag 2147483648"),
    ],
    "ERR_RANK": [
        (lambda: _put(0, HUGE), "Win.Put: rank <int of 16610 bits>; the window has ranks 0 to 0"),
        (lambda: MPI.Win.Allocate(8).Lock(HUGE), "Win.Lock: rank <int of 16610 bits>"),
        (lambda: comm.group.Incl([HUGE]), "Group.Incl: rank <int of 16610 bits> in a group of 1"),
        (
            lambda: comm.group.Range_incl([(0, 2**60, 1)]),
            "rank 1152921504606846976 in a group of 1",
        ),
        (lambda: comm.Mprobe(9), "Comm.Mprobe: source 9"),
        (lambda: pkl5.Intracomm(comm).mprobe(9), "Comm.mprobe: source 9"),
        (lambda: pkl5.Intracomm(comm).improbe(9), "Comm.improbe: source 9"),
        (lambda: comm.improbe(9), "Comm.improbe: source 9"),
        (lambda: comm.Send(a, 1), "Comm.Send: dest 1; MPI_COMM_SELF has ranks 0 to 0"),
        (lambda: comm.Send(a, 2**31), "dest 2147483648"),
        (lambda: comm.Send(a, MPI.ANY_SOURCE), "dest -1"),
        (lambda: comm.Recv(b, -9), "Comm.Recv: source -9"),
        (lambda: comm.send(1, 3), "Comm.send: dest 3"),
        (lambda: comm.recv(source=2**40), "source 1099511627776"),
        (lambda: comm.Get_group().Incl([4]), "rank 4 in a group of 1"),
        (lambda: comm.Create_intercomm(0, comm, 5), "remote_leader 5; MPI_COMM_SELF has ranks"),
        (lambda: comm.Create_dist_graph_adjacent([5], [0]), "an edge with 5; the nodes are 0 to 0"),
        (lambda: _put(None, 2**31), "Win.Put: rank 2147483648; the window has ranks 0 to 0"),
        (lambda: MPI.Win.Allocate(8).Lock(2**40), "Win.Lock: rank 1099511627776"),
        (lambda: MPI.Win.Allocate(8).Shared_query(2**31), "Win.Shared_query: rank 2147483648"),
        (lambda: comm.group.Excl([2**31]), "Group.Excl: rank 2147483648 in a group of 1"),
        (lambda: comm.Create_cart([1]).Get_coords(2**31), "Get_coords: rank 2147483648"),
        (lambda: comm.Create_graph([1], [0]).Get_neighbors(2**31), "_neighbors: rank 2147483648"),
        (lambda: comm.Create_intercomm(2**31, comm, 0), "local_leader 2147483648, the group has"),
        (lambda: comm.Create_dist_graph([0], [1], [2**31]), "an edge with 2147483648; the nodes"),
        (lambda: comm.Create_dist_graph([0], [1], [-5]), "Comm.Create_dist_graph: an edge with -5"),
    ],
    "ERR_ROOT": [
        (lambda: comm.Bcast(a, 1), "Comm.Bcast: root 1; MPI_COMM_SELF has ranks 0 to 0"),
        (lambda: comm.Bcast(a, 2**31), "root 2147483648"),
        (lambda: comm.bcast(1, 2**40), "Comm.bcast: root 1099511627776"),
        (lambda: comm.Reduce(a, b, MPI.SUM, -1), "Comm.Reduce: root -1"),
        (lambda: comm.Igather(a, b, 5), "Comm.Igather: root 5"),
        (lambda: comm.scatter([1], -2), "Comm.scatter: root -2"),
    ],
    "ERR_TYPE": [
        (lambda: comm.Send([a, 10, MPI.DATATYPE_NULL], 0), "the datatype is null"),
        (lambda: comm.Send([a, 1, freed(gaps.Dup())], 0), "the datatype is null"),
        (lambda: comm.Send([a, 1, loose], 0), "contiguous is not committed; call its Commit first"),
        (lambda: comm.Recv([b, 1, loose], 0), "not committed"),
        (lambda: comm.Isend([a, 1, gaps], 0), "vector is not committed"),
        (lambda: comm.Bcast([a, 1, loose]), "not committed"),
        (lambda: comm.Allreduce([a, 1, loose], [b, 1, loose], MPI.MAX), "not committed"),
        (lambda: comm.Alltoallw([a, [1], [0], [loose]], [b, [1], [0], [loose]]), "not committed"),
        (lambda: MPI.Status().Get_count(loose), "Status.Get_count: the datatype is not committed"),
        (lambda: MPI.Status().Get_elements(loose), "Status.Get_elements: the datatype is not"),
        (lambda: loose.Pack(a, bytearray(99), 0, comm), "Datatype.Pack: the datatype is not comm"),
        (lambda: loose.Unpack(a, 0, b, comm), "Datatype.Unpack: the datatype is not committed"),
        (lambda: loose.Pack_external("external32", a, bytearray(99), 0), "Pack_external: the data"),
        (lambda: loose.Unpack_external("external32", a, 0, b), "Unpack_external: the datatype is"),
        (lambda: MPI.DOUBLE.Free(), "Datatype.Free: DOUBLE is predefined"),
        (lambda: F90_INTEGER(9).Free(), "Datatype.Free: this datatype is predefined"),
        (lambda: _accumulated(MPI.DOUBLE, MPI.FLOAT), "MPI_DOUBLE, and of MPI_FLOAT at the targ"),
        (lambda: _accumulated(MPI.DOUBLE, MPI.INT64_T), "Win.Accumulate: items of MPI_DOUBLE, an"),
        (lambda: _accumulated(MPI.FLOAT_INT, MPI.INT_INT), "items of MPI_FLOAT_INT, and of MPI_"),
        (lambda: _swapped(MPI.DOUBLE), "Win.Compare_and_swap: the datatype MPI_DOUBLE; it takes"),
        (lambda: _swapped(MPI.COMPLEX), "the datatype MPI_COMPLEX; it takes integers, truth val"),
        (lambda: _swapped(MPI.INT_INT), "the datatype MPI_INT_INT"),
        (lambda: _swapped(loose.Dup().Commit()), "Win.Compare_and_swap: a datatype that the pro"),
        (lambda: _fetched(loose.Dup().Commit()), "Win.Fetch_and_op: a datatype that the program"),
    ],
    "ERR_COUNT": [
        (lambda: MPI.DOUBLE.Create_contiguous(-1), "Create_contiguous: count is -1"),
        (lambda: MPI.DOUBLE.Create_contiguous(2**62), "Datatype.Create_contiguous: items of 3.69e"),
        (lambda: MPI.DOUBLE.Create_contiguous(2**70), "the limits are 2**62 bytes"),
        (lambda: loose.Create_contiguous(2**40).Create_contiguous(2**40), "2**62 bytes"),
        (lambda: gaps.Create_contiguous(2**40), "1.1e+12 separate blocks"),
        (lambda: MPI.DOUBLE.Create_indexed([-1], [0]), "a blocklength is -1"),
        (lambda: MPI.Status().Set_elements(MPI.INT, -1), "Status.Set_elements: count is -1"),
    ],
    "ERR_ARG": [
        (lambda: comm.Split(0, 2**40), "Comm.Split: key 1099511627776; the limits are -2147"),
        (lambda: comm.Split(2**40), "color 1099511627776; the limits are -2147483648 and 214748"),
        (lambda: comm.Split(0, -(2**31) - 1), "key -2147483649; the limits are -2147483648 and 2"),
        (lambda: MPI.DOUBLE.Create_vector(2**40, 2**40, 1), "Datatype.Create_vector: items of"),
        (lambda: MPI.DOUBLE.Create_vector(2, 1, 2**62), "reach over"),
        (lambda: MPI.DOUBLE.Create_indexed([1], [2**61]), "Datatype.Create_indexed"),
        (lambda: MPI.DOUBLE.Create_hindexed([1], [2**63]), "Datatype.Create_hindexed"),
        (lambda: MPI.INT.Create_subarray([2**40] * 2, [1, 1], [0, 0]), "Datatype.Create_subarray"),
        (lambda: MPI.INT.Create_subarray([4], [3], [2]), "3 items from 2 on, in an array of 4"),
        (lambda: MPI.INT.Create_resized(0, 2**63), "an extent of 9223372036854775808"),
        (lambda: F90_INTEGER(19), "Create_f90_integer: no type for r=19; at most r=18"),
        (lambda: F90_INTEGER(MPI.UNDEFINED), "no type for r=UNDEFINED; at most r=18"),
        (lambda: F90_REAL(34, 1), "Create_f90_real: no type for p=34, r=1; at most p=33, r=4931"),
        (lambda: F90_COMPLEX(1, 4932), "Create_f90_complex: no type for p=1, r=4932; at most p=33"),
        (lambda: F90_REAL(MPI.UNDEFINED, MPI.UNDEFINED), "no type for p=UNDEFINED, r=UNDEFINED"),
        (lambda: comm.Create_graph([1], [5]), "Comm.Create_graph: an edge with 5; the nodes are 0"),
        (lambda: comm.Create_graph([3], [0]), "index [3] does not count 1 edges up"),
        (lambda: comm.Split(-5), "Comm.Split: color -5 is negative"),
        (lambda: comm.Psend_init(a, -1, 0), "Comm.Psend_init: -1 partitions"),
        (lambda: comm.Precv_init(b, 0, 0), "Comm.Precv_init: 0 partitions; at least 1"),
        (lambda: comm.Psend_init(a, 2, 0).Pready(5), "Prequest.Pready(5) of MPI_COMM_SELF: the p"),
        (lambda: comm.Psend_init(a, 2, 0).Pready(1), "Pready(1) of MPI_COMM_SELF: the send is not"),
        (lambda: comm.Psend_init(a, 2, 0).Parrived(1), "Prequest.Parrived(1) of MPI_COMM_SELF: th"),
        (lambda: comm.Psend_init(a, 5, 0).Pready_range(3, 1), "Pready_range(3, 1) of MPI_COMM_SE"),
        (lambda: comm.Psend_init(a, 5, 0).Pready_range(9, 8), "the range ends before it begins"),
        (lambda: comm.Psend_init(a, 2, 0).Pready_range(0, 2**31 - 1), "y_range(0, 2147483647) of"),
        (lambda: comm.Precv_init(b, 2, 0).Pready(1), "the request is of a receive"),
        (lambda: comm.Precv_init(b, 2, 0).Parrived(2), "Parrived(2) of MPI_COMM_SELF: the part"),
    ],
    "ERR_BUFFER": [
        (
            lambda: comm.Allreduce(a, a),
            "Comm.Allreduce: the send buffer is the receive buffer; say",
        ),
        (lambda: comm.Scan(a, a), "Comm.Scan: the send buffer is the receive buffer"),
        (lambda: comm.Allreduce(a, MPI.IN_PLACE), "IN_PLACE cannot be here"),
        (lambda: comm.Send(MPI.IN_PLACE, 0), "it stands for the send buffer of a collective"),
        (lambda: comm.Bcast(MPI.IN_PLACE), "IN_PLACE cannot be here"),
    ],
    "ERR_OP": [
        (lambda: comm.Allreduce(a, b, MPI.BAND), "Comm.Allreduce: BAND does not take the datat"),
        (lambda: MPI.BAND.Reduce_local(a, b), "Op.Reduce_local: BAND does not take the datatyp"),
        (lambda: MPI.REPLACE.Reduce_local(a, b), "Op.Reduce_local: the operation is one of w"),
        (lambda: MPI.NO_OP.Reduce_local(a, b), "Op.Reduce_local: the operation is one of windows"),
        (lambda: comm.Allreduce(a, b, MPI.OP_NULL), "Comm.Allreduce: the operation is null"),
        (lambda: comm.Allreduce(a, b, MPI.REPLACE), "is one of windows alone"),
        (lambda: comm.Reduce(a, b, freed(MPI.Op.Create(print))), "Comm.Reduce: the operation is n"),
        (lambda: comm.allreduce(1, MPI.OP_NULL), "Comm.allreduce: the operation is null"),
        (lambda: MPI.SUM.Free(), "Op.Free: SUM is predefined"),
    ],
    "ERR_COMM": [
        (lambda: MPI.COMM_NULL.Send(a, 0), "Comm.Send: the communicator is null"),
        (lambda: MPI.COMM_NULL.bcast(1), "Comm.bcast: the communicator is null"),
        (lambda: MPI.COMM_NULL.Disconnect(), "Comm.Disconnect: the handle is null"),
        (lambda: freed(comm.Dup()).Barrier(), "Comm.Barrier: the communicator is null"),
        (lambda: freed(freed(comm.Dup())), "Comm.Free: the handle is null"),
        (lambda: MPI.COMM_WORLD.Free(), "Comm.Free: COMM_WORLD is predefined"),
        (lambda: MPI.Win.Allocate(8, comm=MPI.COMM_NULL), "Win.Allocate: the communicator is null"),
        (lambda: comm.Create_intercomm(0, comm, 0), "both groups have rank 0 of the job; they"),
    ],
    "ERR_REQUEST": [
        (lambda: freed(comm.Send_init(a, 0)).Start(), "Start: the handle is null"),
        (lambda: MPI.REQUEST_NULL.Cancel(), "Cancel: the handle is null"),
        (_started_twice, "Prequest.Start: it is under way; wait for it first"),
        (lambda: MPI.MESSAGE_NULL.Recv(b), "Message.Recv: the message is null or was received"),
    ],
    "ERR_TRUNCATE": [
        (lambda: comm.Gather(a, np.zeros(9)), "Comm.Gather: 80 bytes for the rank itself, its buf"),
        (lambda: comm.Alltoall(a, np.zeros(3)), "its buffer takes 24"),
        (_longer, "Comm.Recv: a message with rank 0, tag 5 of MPI_COMM_SELF is longer than the"),
        (_longer, "is longer than the buffer of 24 bytes: it has 80"),
        (_matched_longer, "Message.Recv: a message with rank 0, tag 5 of MPI_COMM_SELF is longer"),
    ],
    "ERR_DIMS": [(lambda: comm.Create_cart([2, 2]), "dims [2, 2] are 4 places, the communicator")],
    "ERR_GROUP": [(lambda: comm.Create(MPI.GROUP_NULL), "Comm.Create: the group is null")],
    "ERR_WIN": [
        (lambda: freed(MPI.Win.Allocate(8)).Put(a, 0), "Win.Put: the window is null"),
        (lambda: freed(MPI.Win.Allocate(8)).Fence(), "Win.Fence: the window is null"),
    ],
    "ERR_RMA_FLAVOR": [
        (
            lambda: MPI.Win.Create(b).Attach(a),
            "Win.Attach of the window of 1: it has mem",
        ),
        (
            lambda: MPI.Win.Allocate(8).Detach(a),
            "Win.Detach of the window of 1: it has mem",
        ),
    ],
    "ERR_RMA_ATTACH": [
        (lambda: MPI.Win.Create_dynamic().Detach(a), "Win.Detach: nothing is attached at 0x"),
        (_attached_twice, "Win.Attach: 56 bytes at 0x"),
    ],
    "ERR_SIZE": [(lambda: MPI.Win.Allocate(-1), "Win.Allocate: size -1, at least 0")],
    "ERR_DISP": [(lambda: MPI.Win.Allocate(8, 0), "Win.Allocate: disp_unit 0, at least 1")],
    "ERR_KEYVAL": [(lambda: comm.Set_attr(9999, 1), "Create_keyval has not returned this")],
    "ERR_INFO_KEY": [(lambda: MPI.Info.Create().Set("", "v"), "the key has 0 characters; the lim")],
    "ERR_ERRHANDLER": [(lambda: comm.Set_errhandler(MPI.ERRHANDLER_NULL), "the handler is null")],
}

PYTHON_ERRORS: list[tuple[type[BaseException], Call, str]] = [
    (TypeError, lambda: comm.Send(a, "0"), "Comm.Send: dest '0' is not an integer"),
    (TypeError, lambda: comm.Send(a, 0, None), "Comm.Send: tag None is not an integer"),
    (TypeError, lambda: comm.bcast(1, "0"), "Comm.bcast: root '0' is not an integer"),
    (TypeError, lambda: comm.Bcast(a, None), "Comm.Bcast: root None is not an integer"),
    (TypeError, lambda: comm.Agree("a"), "Comm.Agree: flag 'a' is not an integer"),
    (TypeError, lambda: comm.Split("a"), "Comm.Split: color 'a' is not an integer"),
    (TypeError, lambda: comm.Create_cart("x"), "Comm.Create_cart: dims 'x' is not a sequence of"),
    (TypeError, lambda: comm.Send(None, 0), "Comm.Send: expected a buffer or a list, not N"),
    (TypeError, lambda: comm.Send("abc", 0), "expected an object with memory"),
    (TypeError, lambda: comm.Send([1.0, 2.0], 0), "expected an object with memory"),
    (TypeError, lambda: comm.Send([a, "3", MPI.DOUBLE], 0), "a count of '3', not an int"),
    (TypeError, lambda: comm.Send([a, 10, float], 0), "expected a datatype or its code, not <cla"),
    (TypeError, lambda: comm.Allreduce(a, b, "sum"), "op 'sum' is not an operation of MPI"),
    (TypeError, lambda: comm.allreduce(1, "sum"), "'sum' is neither an operation of MPI nor a fun"),
    (TypeError, lambda: comm.scatter(5), "Comm.scatter: expected a sequence of 1 objects, not 5"),
    (TypeError, lambda: MPI.Request.Waitall([None]), "expected requests, not None"),
    (TypeError, lambda: MPI.Win.Allocate(8, comm=5), "Win.Allocate: comm 5 is not a communicator"),
    (TypeError, lambda: MPI.Message.Iprobe(None), "Message.Iprobe: comm None is not a communicato"),
    (TypeError, lambda: MPI.Message.iprobe(5), "Message.iprobe: comm 5 is not a communicator"),
    (TypeError, lambda: _put(None, "0"), "Win.Put: target_rank '0' is not an integer"),
    (TypeError, lambda: _put([None]), "Win.Put: a displacement at the target of None, not an"),
    (TypeError, lambda: _put([0, 1.5]), "Win.Put: a count at the target of 1.5, not an"),
    (TypeError, lambda: MPI.Win.Allocate(8).Lock("0"), "Win.Lock: rank '0' is not an integer"),
    (TypeError, lambda: MPI.Win.Allocate(8).Lock(0, None), "Win.Lock: lock_type None is not an"),
    (TypeError, lambda: MPI.Win.Allocate(8).Fence("0"), "Win.Fence: assertion '0' is not an int"),
    (TypeError, lambda: MPI.Win.Allocate(8).Flush(None), "Win.Flush: rank None is not an integer"),
    (TypeError, lambda: MPI.Win.Allocate(8).Shared_query(""), "Win.Shared_query: rank '' is not"),
    (TypeError, lambda: MPI.Win.Allocate(8).Post(None), "Win.Post: group None is not a group of"),
    (TypeError, lambda: MPI.Win.Allocate(8).Start(comm), "Win.Start: group "),
    (TypeError, lambda: MPI.Win.Allocate(8).Set_info(""), "Win.Set_info: info '' is not an Info"),
    (TypeError, lambda: comm.Set_info({}), "Comm.Set_info: info {} is not an Info"),
    (TypeError, lambda: comm.Dup(5), "Comm.Dup: info 5 is not an Info"),
    (TypeError, lambda: comm.Idup(5), "Comm.Idup: info 5 is not an Info"),
    (TypeError, lambda: comm.Split_type(0, 0, "x"), "Comm.Split_type: info 'x' is not an Info"),
    (TypeError, lambda: MPI.Session.Init(5), "Session.Init: info 5 is not an Info"),
    (TypeError, lambda: comm.Compare(None), "Comm.Compare: None is not a communicator"),
    (TypeError, lambda: comm.group.Incl(["a"]), "Group.Incl: ranks ['a'] is not a seq"),
    (TypeError, lambda: comm.group.Translate_ranks([0], 5), "Group.Translate_ranks: group 5 is n"),
    (TypeError, lambda: comm.group.Compare(None), "Group.Compare: group None is not a group of"),
    (TypeError, lambda: MPI.Group.Union(None, comm.group), "Group.Union: group None is not a gr"),
    (TypeError, lambda: MPI.Group.Intersect(comm.group, 5), "Group.Intersection: group 5 is not"),
    (TypeError, lambda: MPI.Group.Difference(comm, comm.group), "Group.Difference: group "),
    (TypeError, lambda: comm.Create_cart([1]).Get_coords(""), "Cartcomm.Get_coords: rank '' is no"),
    (TypeError, lambda: comm.Create_cart([1]).Shift(0, None), "Cartcomm.Shift: disp None is not"),
    (TypeError, lambda: comm.Create_cart([1]).Get_cart_rank("x"), "coords 'x' is not a seq"),
    (TypeError, lambda: comm.Create_graph([1], [0]).Get_neighbors("a"), "rank 'a' is not an integ"),
    (
        TypeError,
        lambda: comm.Create_dist_graph([0], ["x"], [0]),
        "degrees ['x'] is not a sequence of",
    ),
    (TypeError, lambda: comm.Create_intercomm("0", comm, 1), "local_leader '0' is not an integer"),
    (KeyError, lambda: comm.Send([a, 10, "nonsense"], 0), "no datatype has the code 'nonsense'; n"),
    (KeyError, lambda: comm.Gatherv(a, [b, [10], [0], "z"]), "no datatype has the code 'z'"),
    (
        KeyError,
        lambda: comm.Send(np.array(["abc"]), 0),
        "items of the format '3w' have no datatype",
    ),
    (KeyError, lambda: comm.Send(np.zeros(2, "i4,f8"), 0), "util.dtlib.from_numpy_dtype"),
    (BufferError, lambda: comm.Send(np.array([None]), 0), "references to objects"),
    (BufferError, lambda: comm.Recv([np.array([None]), MPI.BYTE], 0), "send them by a call in low"),
    (BufferError, lambda: comm.Send(a[::2], 0), "do not lie in a row"),
    (BufferError, lambda: comm.Send(a[::-1], 0), "numpy.ascontiguousarray"),
    (BufferError, lambda: comm.Send(a.astype(">f8"), 0), "byte order is not that of this machine"),
    (BufferError, lambda: comm.Recv(fixed, 0), "this ndarray is read-only, and the call"),
    (BufferError, lambda: comm.Recv(b"abc", 0), "this bytes is read-only"),
    (BufferError, lambda: comm.Allreduce(a, fixed), "this ndarray is read-only"),
    (ValueError, lambda: comm.Send([a, -1, MPI.DOUBLE], 0), "a count of -1; expected 0 to 2**62"),
    (ValueError, lambda: comm.Send([a, 11, MPI.DOUBLE], 0), "take the bytes 0 to 88 of a buffer o"),
    (ValueError, lambda: comm.Send([a, 2**62, MPI.DOUBLE], 0), "a count of 4611686018427387904"),
    (
        ValueError,
        lambda: comm.Send([a, 2**61 + 1, MPI.DOUBLE], 0),
        "2305843009213693953 items of 8",
    ),
    (ValueError, lambda: comm.Send([a, 2**63, MPI.BYTE], 0), "75808; expected below 2**62"),
    (ValueError, lambda: comm.Send([a, 2**70, MPI.DOUBLE], 0), "a count of 11805916207174113034"),
    (ValueError, lambda: _put([0, 1, "d", 4]), "Win.Put: target: expecting 3 items at most, a dis"),
    (TypeError, lambda: comm.group.Incl([0.5]), "Group.Incl: ranks [0.5] is not a sequence of int"),
    (TypeError, lambda: comm.Create_cart([1.5]), "Comm.Create_cart: dims [1.5] is not a sequence"),
    (TypeError, lambda: comm.Create_dist_graph([0], [1], [0], ["x"]), "weights ['x'] is not a seq"),
    (TypeError, lambda: comm.Create_graph(["a"], [0]), "Comm.Create_graph: index ['a'] is not a s"),
    (TypeError, lambda: comm.Create_graph([1], [0.5]), "Comm.Create_graph: edges [0.5] is not a s"),
    (TypeError, lambda: comm.group.Range_incl(["x"]), "Group.Range_incl: the range 'x' is not a s"),
    (
        ValueError,
        lambda: comm.group.Range_incl([(0, 0)]),
        "the range [0, 0] is not (first, last, s",
    ),
    (ValueError, lambda: _put(0, NAN), "Win.Put: target_rank nan is not a number"),
    (ValueError, lambda: comm.bcast(1, NAN), "Comm.bcast: root nan is not an integer"),
    (
        OverflowError,
        lambda: comm.Create_cart([1]).Get_coords(float("inf")),
        "Cartcomm.Get_coords: rank inf is not finite",
    ),
    (ValueError, lambda: comm.Send([a, HUGE, "d"], 0), "Comm.Send: a count of <int of 16610 bits>"),
    (ValueError, lambda: _put("0"), "Win.Put: target: expecting integral or list/tuple, got '0'"),
    (ValueError, lambda: comm.Send([a, (1, 2**61), MPI.DOUBLE], 0), "displacement 2305843009213"),
    (ValueError, lambda: comm.Send([a, (0, 2**60), MPI.DOUBLE], 0), "displacement 115292150460684"),
    (ValueError, lambda: comm.Gatherv(a, [b, [2**61 + 1], [0], "d"]), "2305843009213693953 items"),
    (
        ValueError,
        lambda: comm.Gatherv(a, [b, [1], [2**61], "d"]),
        "displacement 2305843009213693952",
    ),
    (
        ValueError,
        lambda: comm.Allreduce(a, np.zeros(9)),
        "Comm.Allreduce: mismatch in send count 10 and receive count 9",
    ),
    (
        ValueError,
        lambda: comm.Ireduce_scatter(a, np.zeros(10, "f4"), [10]),
        "_scatter: mismatch in send and receive MPI datatypes: MPI_DOUBLE and MPI_FLOAT",
    ),
    (
        ValueError,
        lambda: comm.Scan(a, [b, 10, single]),
        "Comm.Scan: mismatch in send and receive MPI datatypes: MPI_DOUBLE and a derived type",
    ),
    (
        ValueError,
        lambda: comm.Scan([a, 10, MPI.DOUBLE.Dup()], [b, 10, single]),
        "two derived types agree where they are one object",
    ),
    (
        ValueError,
        lambda: comm.Reduce_scatter_block(a, np.zeros(9)),
        "Comm.Reduce_scatter_block: mismatch in send count 10 and receive count 9",
    ),
    (
        ValueError,
        lambda: comm.Reduce_scatter(MPI.IN_PLACE, np.zeros(10), [9]),
        "Comm.Reduce_scatter: mismatch in receive count 10 and sum(counts) 9",
    ),
    (
        ValueError,
        lambda: comm.Reduce_scatter(np.zeros(10), np.zeros(9), [10]),
        "Comm.Reduce_scatter: mismatch in receive count 9 and counts[0] 10",
    ),
    (
        ValueError,
        lambda: comm.Reduce_scatter(a, b, [9]),
        "Comm.Reduce_scatter: mismatch in send count 10 and sum(counts) 9",
    ),
    (ValueError, lambda: comm.scatter([1, 2]), "Comm.scatter: expecting 1 items, got 2"),
    (ValueError, lambda: comm.alltoall([]), "Comm.alltoall: expecting 1 items, got 0"),
    (ValueError, lambda: comm.Create_dist_graph([0], [2], [0]), "degrees [2] and 1 destinations"),
    (MemoryError, lambda: MPI.Alloc_mem(2**62), "Alloc_mem(4611686018427387904): so much memory"),
    (TypeError, lambda: MPI.Alloc_mem(8, "hint"), "Alloc_mem: info 'hint' is not an Info"),
    (TypeError, lambda: comm.Barrier_init("hint"), "Comm.Barrier_init: info 'hint' is not an Info"),
    (
        TypeError,
        lambda: comm.Allreduce_init(a, np.zeros(10), MPI.SUM, 0),
        "Comm.Allreduce_init: info 0 is not an Info",
    ),
    (TypeError, lambda: comm.Psend_init(a, 2, 0, 0, "hint"), "Comm.Psend_init: info 'hint' is not"),
    (
        TypeError,
        lambda: comm.Create_dist_graph([], [], [], None, True),
        "Comm.Create_dist_graph: info True is not an Info",
    ),
    (
        TypeError,
        lambda: comm.Create_dist_graph_adjacent([], [], None, None, True),
        "Comm.Create_dist_graph_adjacent: info True is not an Info",
    ),
    (
        TypeError,
        lambda: MPI.Intracomm.Create_from_group(comm.group, "tag", "hint"),
        "Intracomm.Create_from_group: info 'hint' is not an Info",
    ),
    (TypeError, lambda: MPI.File.Delete("none", 0), "File.Delete: info 0 is not an Info"),
]


@pytest.mark.parametrize(
    ("name", "call", "words"),
    [(name, *each) for name, calls in MPI_ERRORS.items() for each in calls],
    ids=lambda value: value if isinstance(value, str) and value.startswith("ERR") else "",
)
def test_errors_of_mpi_have_their_class_and_name_the_mistake(
    name: str, call: Call, words: str
) -> None:
    with pytest.raises(MPI.Exception) as caught:
        call()
    assert caught.value.Get_error_class() == getattr(MPI, name), str(caught.value)
    assert words in str(caught.value)
    assert not comm.Iprobe()


NAMED: dict[str, Callable[[Any], object]] = {
    "Comm.Send": lambda given: comm.Send(given, 0),
    "Comm.Irecv": lambda given: comm.Irecv(given, 0),
    "Comm.Send_init": lambda given: comm.Send_init(given, 0),
    "Comm.Precv_init": lambda given: comm.Precv_init(given, 2, 0),
    "Comm.Sendrecv": lambda given: comm.Sendrecv(a, 0, 0, given, 0, 0),
    "Comm.Bcast": lambda given: comm.Bcast(given),
    "Comm.Iallgather": lambda given: comm.Iallgather(a, given),
    "Comm.Alltoall_init": lambda given: comm.Alltoall_init(given, b),
    "Comm.Scatterv": lambda given: comm.Scatterv(given, b),
    "Comm.Allreduce": lambda given: comm.Allreduce(a, given),
    "Comm.Ireduce_scatter": lambda given: comm.Ireduce_scatter(a, given),
    "Comm.Neighbor_allgather": lambda given: comm.Create_cart([1]).Neighbor_allgather(given, b),
    "Op.Reduce_local": lambda given: MPI.SUM.Reduce_local(given, b),
    "Win.Put": lambda given: MPI.Win.Create(None).Put(given, 0),
    "Win.Rput": lambda given: MPI.Win.Create(None).Rput(given, 0),
    "Win.Rget": lambda given: MPI.Win.Create(None).Rget(given, 0),
    "Win.Raccumulate": lambda given: MPI.Win.Create(None).Raccumulate(given, 0),
    "Win.Rget_accumulate": lambda given: MPI.Win.Create(None).Rget_accumulate(a, given, 0),
    "Win.Fetch_and_op": lambda given: MPI.Win.Create(None).Fetch_and_op(a, given, 0),
}


@pytest.mark.parametrize(("name", "call"), NAMED.items())
def test_errors_of_message_specifications_name_the_call(
    name: str, call: Callable[[Any], object]
) -> None:
    wrong: tuple[Any, ...] = (
        [a.copy(), -1, MPI.DOUBLE], [a.copy(), 10, float], [a.copy()], "text", 5, a.astype(object),
        [a[::2], 2],
    )  # fmt: skip
    for given in wrong:
        with pytest.raises((TypeError, ValueError, BufferError, KeyError)) as caught:
            call(given)
        assert str(caught.value.args[0]).startswith(f"{name}: "), given


@pytest.mark.parametrize(("kind", "call", "words"), PYTHON_ERRORS)
def test_errors_of_python_name_the_mistake(
    kind: type[BaseException], call: Call, words: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    assert not comm.Iprobe()


def test_the_error_names_a_message_that_is_not_a_pickle() -> None:
    with pytest.raises(Exception, match="invalid load key") as caught:
        _objects_as_buffer()
    assert "the message of 80 bytes from rank 0, tag 6" in caught.value.__notes__[0]


def test_arguments_as_mpi4py_takes_them() -> None:
    comm.Isend(a, 0.0, 3.0)
    comm.Recv(b, np.int64(0), np.int32(3))
    assert (a == b).all()
    assert comm.bcast(5, False) == 5
    window = MPI.Win.Allocate(8)
    window.Lock(0.5)  # which stands for 0, as in the calls above
    window.Unlock(np.float64(0))
    window.Lock(np.int32(0), float(MPI.LOCK_SHARED))
    window.Unlock(False)
    window.Free()
    assert comm.Create_cart([1], [True]).Shift(0.0, 1.0) == (0, 0)
    assert comm.group.Incl([np.int64(0), False][:1]).size == 1
    comm.Isend(np.array(["x"]), 0)
    comm.Recv([bytearray(4), MPI.BYTE], 0)
    named = np.zeros(2, [("Old", "f8")])
    comm.Isend([named, MPI.BYTE], 0)
    comm.Recv([named, MPI.BYTE], 0)


MAKES_OF_GROUPS = """
import os, signal
from mpi4py import MPI
comm = MPI.COMM_WORLD
called = []
handler = MPI.Comm.Create_errhandler(
    lambda where, code: called.append((where, MPI.Get_error_class(code)))
)
mine, other = (MPI.COMM_WORLD.group.Incl([each]) for each in (comm.rank, 1 - comm.rank))
inter, intra = MPI.Intercomm.Create_from_groups, MPI.Intracomm.Create_from_group
def fails(of, call, *args):
    called.clear()
    try:
        call(*args, errhandler=handler)
    except MPI.Exception as error:
        assert error.Get_error_class() == of, error
    else:
        raise AssertionError(args)
    assert called == [(MPI.COMM_NULL, of)], called
fails(MPI.ERR_RANK, inter, mine, 1, other, 0)
fails(MPI.ERR_RANK, inter, mine, -1, other, 0)
fails(MPI.ERR_RANK, inter, mine, 0, other, 1)
fails(MPI.ERR_GROUP, inter, mine, 0, MPI.GROUP_NULL, 0)
fails(MPI.ERR_GROUP, intra, MPI.GROUP_NULL)
assert intra(MPI.GROUP_EMPTY) == MPI.COMM_NULL
comm.Barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
fails(MPI.ERR_PROC_FAILED, inter, mine, 0, other, 0)
print("all handled")
"""


def test_the_given_handler_handles_the_errors_of_making_communicators_of_groups() -> None:
    assert "all handled" in launch(2, "--enable-recovery", "-c", MAKES_OF_GROUPS).stdout
