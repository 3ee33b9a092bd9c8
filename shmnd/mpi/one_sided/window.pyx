# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What a window is: the memory of its ranks, how it is reached, and its locks.

Memory that the window allocates lies in one segment that all its ranks map. Other memory is read
and written through the kernel. Segments have no names: ranks open the one of their first rank by
its descriptor, which it holds until all have done so.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EFAULT, ESRCH
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.mpi.buffers.buffer cimport buffer, view_at
from shmnd.mpi.communicators.comm_state cimport CommState
from shmnd.mpi.point_to_point.calls cimport PointCalls, post_receive_as, receive_as
from shmnd.mpi.point_to_point.request cimport Request
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_OTHERS_END, SHMPI_POLLS, death_of, note, note_end, poll, refuse, shut, wait_end,
)
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.objects.handle cimport Handle

from shmnd.common.descriptors import file_of
from shmnd.common.interruption import pass_on
from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.one_sided.offers import exchange_offers, is_shortage, open_held, reason_of

cdef extern from "sched.h" nogil:
    int sched_yield()

_LINE = 64

cdef unsigned int _LONG = 100           # turns of a wait for a lock, before it is published anew
cdef int _UNSEEN = 200 * _LONG          # turns after which a dead reader is taken to have it
cdef int _DYNAMIC = constants.WIN_FLAVOR_DYNAMIC
cdef double _FARTHEST = 2.0 ** 62       # how far a call may reach in a window, in bytes


cdef object _shared(comm, Py_ssize_t nbytes, str call):
    """Return a zeroed segment that all ranks of a communicator map. Where one cannot, all raise.

    A rank that cannot map it sends the reason to the others, which wait for it.
    """
    segment = failure = None
    try:
        from shmnd.ring.shared_memory.segment import Segment  # few programs have windows

        if comm.Get_rank() == 0:
            segment = Segment.create(nbytes, label="mpi-window", call=call)
    except Exception as error:
        failure = error
    place = (os.getpid(), segment.fd) if segment is not None else None
    place = comm.bcast(place and (*place, file_of(place[1])), 0)
    if place is not None and segment is None and failure is None:
        try:
            segment = Segment.adopt(open_held(*place), writable=True, call=call)
        except Exception as error:
            failure = error
    # Rank 0 keeps its descriptor until all have tried to open it.
    own = None if failure is None else (is_shortage(failure), reason_of(failure))
    reasons = comm.allgather(own)
    failed = [rank for rank, reason in enumerate(reasons) if reason is not None]
    if failed:
        # Where rank 0 has died, and its memory with it, this raises that error.
        comm._barrier_as(call, comm.ob)
        if failure is not None:
            pass_on(failure)
        short, text = reasons[failed[0]]
        _refuse(
            comm, constants.ERR_NO_MEM if short else constants.ERR_OTHER,
            f"{call}: {nbytes} bytes of shared memory: rank {failed[0]} has no "
            f"{'memory for' if short else 'access to'} it: {text}", failure)
    segment.close_fd()
    return segment


cdef int _refuse(comm, int kind, str text, object cause) except -1:
    """Have the communicator handle the error of memory that is not there, and raise it."""
    try:
        mpi_error(comm, kind, text)
    except MPIException as error:
        raise error from cause
    return 0


cdef buffer _view(void *address, Py_ssize_t nbytes, object keeper):
    """Return memory that outlives the window: programs drop it and use their arrays."""
    cdef buffer found = view_at(address, nbytes, False)
    found.kept = keeper
    return found


cdef class WinState(State):
    """One window."""

    def __cinit__(self, *args, **kwargs):
        self.bases = NULL
        self.mapped = NULL
        self.open_at = NULL

    def __init__(self, comm, int flavor, make_offer, str call):
        """Make it on all ranks of `comm` together. Where the offer of one raises, all raise."""
        State.__init__(self)
        cdef int i
        cdef Py_ssize_t at = 0
        self.comm = comm
        self.flavor = flavor
        self.size = comm.Get_size()
        self.rank = comm.Get_rank()
        self.attached = []
        self.locked = {}
        self.bases = <uint64_t *>calloc(self.size, sizeof(uint64_t))
        self.mapped = <char **>calloc(self.size, sizeof(char *))
        self.open_at = <char *>calloc(self.size, 1)
        if self.bases == NULL or self.mapped == NULL or self.open_at == NULL:
            raise MemoryError(f"{call}: no memory for a window")
        offer, known = exchange_offers(comm, make_offer)
        self.sizes = [each[1] for each in known]
        self.units = [each[2] for each in known]
        for i in range(self.size):
            self.bases[i] = known[i][0]
        self.unit = offer.unit
        self.memory = offer.memory
        self.info = offer.info
        self.control = _shared(comm, self.size * (sizeof(shmpi_gate) + self.size), call)
        self.gates = <shmpi_gate *><size_t>self.control.address
        self.holders.size = self.size
        self.holders.rank = self.rank
        self.holders.to_job = (<CommState>comm.ob).to_job
        self.holders.gates = self.gates
        self.holders.rows = <char *>(self.gates + self.size)
        if flavor in (constants.WIN_FLAVOR_ALLOCATE, constants.WIN_FLAVOR_SHARED):
            rooms = self.sizes  # shared memory: programs compute where the parts of others lie
            if flavor == constants.WIN_FLAVOR_ALLOCATE or all(each[3] for each in known):
                rooms = [-(-each // _LINE) * _LINE for each in self.sizes]
            self.data = _shared(comm, max(_LINE, sum(rooms)), call)
            for i in range(self.size):
                self.mapped[i] = <char *><size_t>self.data.address + at
                at += rooms[i]
            self.memory = _view(self.mapped[self.rank], self.sizes[self.rank], self.data)
        elif self.memory is None:
            self.memory = view_at(NULL, 0, False)
        # A head start, not an order: programs let the first rank fill its part without a barrier.
        comm.bcast(None, 0)

    def __dealloc__(self):
        free(self.bases)
        free(self.mapped)
        free(self.open_at)

    @property
    def base(self) -> int:
        """Return the address of what this rank offers."""
        return self.memory.address

    def part(self, int rank):
        """Return the memory of a rank as a new buffer; None where it is not mapped here."""
        cdef buffer own = self.memory, found
        if rank == self.rank:
            found = _view(own.view.buf, own.view.len, own)
            found.device = own.device
            return found
        if self.mapped[rank] == NULL:
            return None
        return _view(self.mapped[rank], self.sizes[rank], self.data)

    cdef int enter(self, int rank, bint writes, str call) except -1:
        if shut:
            refuse(f"{call or 'Win.Lock'} of {self.title()}")
        cdef Wait wait = Wait(0, False)
        cdef int published = -1, unseen = 0, entered = False
        shmpi_mark(&self.holders, rank, 0 if writes else SHMPI_ASKS)
        try:
            while not shmpi_gate_enter(&self.gates[rank], writes, self.rank):
                _yield()
                if E.failures:
                    unseen = _require_holder(self, rank, unseen, call or "Win.Lock")
                wait.idle += 1
                if wait.idle % _LONG == 0:
                    self.publish(&wait, rank, &published, call or f"Win.Lock({rank})")
            entered = True
        finally:
            shmpi_mark(&self.holders, rank, SHMPI_HOLDS if entered and not writes else 0)
            wait_end(&wait)
        return 0

    cdef int publish(self, Wait *wait, int rank, int *published, str call) except -1:
        """Publish for which rank's return of a lock this one waits, where that has changed."""
        cdef flag left = False
        cdef int holder = shmpi_holder(E, &self.holders, rank, &left)
        cdef int now = 2 * holder + left
        if wait.noted and published[0] == now:
            return 0
        wait.noted = True
        published[0] = now
        note(1 | SHMPI_POLLS | (0 if left else SHMPI_OTHERS_END), holder, -1, call, self.title())
        return 0

    cdef int take(self, int rank, str call) except -1:
        if shut:
            refuse(f"{call} of {self.title()}")
        cdef int holder
        while not shmpi_gate_take(&self.gates[rank], self.rank):
            _yield()
            holder = shmpi_taker(&self.holders, rank) if E.failures else -1
            if holder >= 0 and death_of(holder):
                self.fail_of_dead(holder, call)
        return 0

    def begin_wait(self, call: str, int holder) -> None:
        """Publish that the program polls this window until a rank of it changes it; -1: any."""
        cdef int peer = -1
        cdef bint left = False
        if holder >= 0:
            peer = self.holders.to_job[holder]
            left = shmpi_has_left(E, peer)
        announced = (call, holder, left)
        if announced != self.announced:
            self.announced = announced
            note(1 | SHMPI_POLLS | (0 if left or peer < 0 else SHMPI_OTHERS_END), peer, -1, call,
                 self.title())

    def end_wait(self) -> None:
        """Take back that the program polls this window."""
        if self.announced is not None:
            self.announced = None
            note_end()

    def lock(self, int rank, bint writes, str call = None) -> None:
        """Wait for the lock of a rank, in Win.Lock or in another call."""
        self.enter(rank, writes, call)
        self.locked[rank] = writes  # here, where no handler of a signal comes between

    def unlock(self, int rank) -> None:
        """Release the lock of a rank, which is one of `locked`."""
        if shut:
            refuse(f"Win.Unlock of {self.title()}")
        cdef bint writes = self.locked.pop(rank)
        shmpi_mark(&self.holders, rank, 0 if writes else SHMPI_ASKS)
        shmpi_gate_leave(&self.gates[rank], writes)
        shmpi_mark(&self.holders, rank, 0)

    def send(self, int place, int tag, str call) -> None:
        """Send an empty message; a wait and an error of it are those of `call`."""
        cdef PointCalls comm = self.comm
        if not comm._send_plain(b"", place, tag, True, call):
            comm._isend(b"", place, tag, call).Wait()

    def receive(self, int place, int tag, str call) -> None:
        """Receive an empty message; the wait for it is published as one of `call`."""
        receive_as(self.comm, bytearray(), place, tag, call)

    def post_receive(self, int place, int tag, str call) -> Request:
        """Start to receive an empty message; the wait for it is published as one of `call`."""
        return post_receive_as(self.comm, bytearray(), place, tag, call)

    # -- access epochs --

    def open(self, ranks) -> None:
        """Begin an access epoch at some ranks, or at all of them: None."""
        cdef int rank
        self.fenced = self.used = False
        if ranks is None:
            memset(self.open_at, 1, self.size)
            return
        for rank in ranks:
            self.open_at[rank] = 1

    def close(self, ranks) -> None:
        """End the access epoch at some ranks, or at all of them: None."""
        cdef int rank
        self.fenced = self.used = False
        if ranks is None:
            memset(self.open_at, 0, self.size)
            return
        for rank in ranks:
            self.open_at[rank] = 0

    def epoch(self) -> str:
        """Return the call that ends the access epoch of this rank, or '' where it has none.

        A Fence begins an epoch only where a call that moves data follows it.
        """
        if self.started is not None:
            return "Complete"
        if self.locked:
            return "Unlock_all" if self.all_locked else "Unlock"
        return "Fence" if self.fenced and self.used else ""

    def title(self) -> str:
        """Return its name for a message."""
        return self.name or f"the window of {self.size}"

    def fail_of_dead(self, dead: int, call: str) -> None:
        """Raise the error of a rank of the job that has died with what a call waits for."""
        at = f"{call} of {self.title()}: rank {dead} of the job has died"
        mpi_error(<Handle>self.comm, constants.ERR_PROC_FAILED, at)


cdef int _yield() except -1:
    """Let others run."""
    poll()
    with nogil:
        sched_yield()
    PyErr_CheckSignals()
    return 0


cdef int _require_holder(WinState w, int rank, int unseen, str call) except -1:
    """Raise the error of a lock that is not returned: its rank, or one that holds it, has died.

    Return how many turns in a row saw no holder where a reader may have died with the lock: living
    ones that take or return it are not seen either, for a moment."""
    cdef flag left = False
    cdef int holder = shmpi_holder(E, &w.holders, rank, &left)
    for dead in (holder, w.holders.to_job[rank]):
        if dead >= 0 and death_of(dead):
            w.fail_of_dead(dead, call)
    dead = shmpi_lost_reader(E, &w.holders, rank) if holder < 0 else -1
    if dead >= 0 and unseen >= _UNSEEN:
        w.fail_of_dead(dead, call)
    return unseen + 1 if dead >= 0 else 0


cdef Target target_of(
    object where, WinState w, int rank, Py_ssize_t disp, Py_ssize_t count, TypeState type, str call
):
    """Return the items of a type at a displacement in the memory of a rank."""
    cdef Target t = Target.__new__(Target)
    cdef Py_ssize_t unit = w.units[rank], room = w.sizes[rank], at, first, last
    cdef double reach = abs(<double>count) * max(abs(<double>type.extent), <double>type.size)
    if count < 0:
        mpi_error(
            <Handle>where, constants.ERR_COUNT,
            f"{call}: a count of {count} at the target; expected 0 or more",
        )
    if abs(<double>disp) * unit + reach > _FARTHEST:
        mpi_error(
            <Handle>where, constants.ERR_RMA_RANGE,
            f"{call}: {count} items of {type.extent} bytes at displacement {disp}; the window "
            f"of rank {rank} has {room} bytes",
        )
    t.w = w
    t.where = where
    t.call = call
    t.rank = rank
    t.count = count
    t.type = type
    t.nbytes = count * type.size
    if w.flavor == _DYNAMIC:
        t.address = <uint64_t>disp
        return t
    at = disp * unit
    first = at + min(0, (count - 1) * type.extent) + type.true_lb
    last = at + max(0, (count - 1) * type.extent) + type.true_lb + type.true_extent
    if t.nbytes and (first < 0 or last > room):
        mpi_error(
            <Handle>where, constants.ERR_RMA_RANGE,
            f"{call}: bytes {first} to {last} of rank {rank}, whose window has {room}",
        )
    t.address = w.bases[rank] + at
    if w.mapped[rank] != NULL:
        t.items = w.mapped[rank] + at
    return t


cdef class Target:
    """Items in the memory of another rank: a row of bytes without the gaps of their type.

    A gap is never written, not even with what it held: its owner may change it meanwhile.
    """

    cdef int fetch(self, char *row, Py_ssize_t nbytes) except -1:
        """Copy the first bytes of the items to `row`."""
        if self.items != NULL:
            self.type.pack_part(self.items, self.count, row, 0, nbytes)
            return 0
        return self._copy(row, nbytes, False)

    cdef int put(self, char *row, Py_ssize_t nbytes) except -1:
        """Copy `row` to the first bytes of the items."""
        if self.items != NULL:
            self.type.unpack_bytes(row, nbytes, self.items)
            return 0
        return self._copy(row, nbytes, True)

    cdef int _copy(self, char *row, Py_ssize_t nbytes, bint writes) except -1:
        cdef int job_rank = (<CommState>self.w.comm.ob).to_job[self.rank]
        cdef int why
        cdef TypeState type = self.type
        with nogil:
            if type.contig:
                why = shmpi_copy_by_kernel(E, job_rank, row, self.address, nbytes, writes)
            else:
                why = shmpi_remote_runs(
                    E, job_rank, &type.runs, type.extent, row, self.address, nbytes, writes)
        if why:
            text = (f"{self.call}: {nbytes} bytes at {self.address:#x} of rank {self.rank} cannot "
                    "be reached")
            if why == EFAULT:
                mpi_error(
                    <Handle>self.where, constants.ERR_RMA_RANGE,
                    f"{text}: that rank has no such memory, or it may not be "
                    f"{'written' if writes else 'read'}",
                )
            if why == ESRCH:
                mpi_error(
                    <Handle>self.where, constants.ERR_PROC_FAILED, f"{text}: the rank has ended"
                )
            mpi_error(
                <Handle>self.where, constants.ERR_OTHER,
                f"{text}: {os.strerror(why)}; windows of Win.Allocate need no leave of the kernel",
            )
        return 0
