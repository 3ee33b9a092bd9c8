# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""What a communicator is, and the checks that all its calls share.

Each has eight contexts of its own: messages, collectives, news of new communicators, one that
neighbours use, and four of a twin that agrees when the first four are revoked. The numbers are
counted in the memory of the job, so that they are never shared.
"""

from weakref import WeakValueDictionary

from libc.stdlib cimport free, malloc

from shmnd.mpi.transport.engine cimport (
    E, FINALIZED, SHMPI_BROKEN, SHMPI_FAILED_PEER, SHMPI_NO_MEMORY, SHMPI_TRUNCATED,
    SHMPI_REVOKED, SHMPI_SPOILED, death_of, is_revoked, new_contexts, refuse,
    revoke, shmpi_job, shut,
)
from shmnd.mpi.transport.outer_call cimport (
    CONTEXTS as _CONTEXTS, OuterCall, place_of, full_name, name_of, outer_of,
)
from shmnd.mpi.objects.errhandler cimport mpi_error

cdef extern from "objects/small_int.h":
    bint shmpi_small_int(object given, int *value)

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.collectives.names import KINDS as _KINDS
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.errors import REMEDY_OF_MEMORY as _REMEDY

cdef extern from "transport/collectives/calls.h" nogil:
    void shmpi_calls_open(shmpi_engine *e, shmpi_calls *c, uint32_t context)
    void shmpi_calls_close(shmpi_calls *c)
    shmpi_call shmpi_calls_begin(shmpi_engine *e, shmpi_calls *c, unsigned int kind, int root)
    shmpi_call shmpi_calls_last(const shmpi_calls *c)

cdef extern from "transport/engine.h" nogil:
    const uint32_t SHMPI_CONTEXTS_END
    void shmpi_forget_contexts(shmpi_engine *e, uint32_t first, uint32_t count)

cdef extern from "collectives/lines.h" nogil:
    bint shmpi_lines_fit(uint32_t context, int size)
    shmpi_lines *shmpi_lines_new(shmpi_job *job, uint32_t job_size, uint32_t context, int size,
                                 int place, const int *ranks)

CONTEXTS = _CONTEXTS
"""Contexts of one communicator."""
TWIN = 4
"""The first context of its twin, from its own first."""

cdef uint32_t _TWIN = TWIN
_NO_MORE = (
    "no more communicators can be made: the job has used all numbers of communicators; a program "
    "that makes hundreds of millions has to use some of them again"
)

_known = WeakValueDictionary()

cdef int TAG_MOST = 0x7fffffff
cdef int ANY_SOURCE = constants.ANY_SOURCE
cdef int ANY_TAG = constants.ANY_TAG
cdef int PROC_NULL = constants.PROC_NULL
cdef int BEYOND = -0x7ffffffe       # no rank, no tag, none of MPI's constants


cdef int whole(given, str call, str role) except? -0x7fffffff:
    """Return an argument that is a rank or a tag as a number, or BEYOND where it has too many bits.

    Floating-point numbers lose their fraction, as in mpi4py.
    """
    cdef int value
    if shmpi_small_int(given, &value):
        return value
    return _narrowed(given, "Comm", call, role)


cdef int _narrowed(given, str family, str call, str role) except? -0x7fffffff:
    cdef long long wide
    try:
        wide = given
    except OverflowError:
        return BEYOND
    except (TypeError, ValueError) as exc:  # NaN is a ValueError
        kind = ValueError if isinstance(exc, ValueError) else TypeError
        raise kind(f"{family}.{call}: {role} {shown(given)} is not an integer") from None
    return <int>wide if -0x7ffffff0 <= wide <= 0x7fffffff else BEYOND


def small_number(given: object, call: str, role: str, family: str = "Comm") -> int:
    """Return an argument as `whole` does: BEYOND for more than 32 bits. Errors name `family`."""
    return _narrowed(given, family, call, role)


cdef class CommState(State):
    """A group of ranks with contexts of its own, seen from one of them."""

    def __cinit__(self, *args, **kwargs):
        self.to_job = self.from_job = self.own = NULL
        self.lines = NULL

    def __init__(self, context: int, group: tuple[int, ...], remote: tuple[int, ...] | None = None):
        State.__init__(self)
        cdef int i
        peers = group if remote is None else remote
        if context >= SHMPI_CONTEXTS_END:
            raise MPIException(constants.ERR_OTHER, _NO_MORE)
        self.context = context
        self.group = group
        self.remote = remote
        self.inter = remote is not None
        self.size = len(group)
        self.peers = len(peers)
        self.rank = group.index(E.rank)
        self.to_job = <int *>malloc(max(1, self.peers) * sizeof(int))
        self.own = <int *>malloc(self.size * sizeof(int))
        self.from_job = <int *>malloc(E.size * sizeof(int))
        if self.to_job == NULL or self.from_job == NULL or self.own == NULL:
            raise MemoryError("shmnd.mpi: no memory for a communicator")
        for i in range(E.size):
            self.from_job[i] = -1
        for i in range(self.peers):
            self.to_job[i] = peers[i]
            self.from_job[self.to_job[i]] = i
        for i in range(self.size):
            self.own[i] = group[i]
        if not self.inter and shmpi_lines_fit(self.context, self.size):
            self.lines = shmpi_lines_new(
                E.job, E.size, self.context, self.size, self.rank, self.own
            )
            if self.lines == NULL:
                raise MemoryError("shmnd.mpi: no memory for a communicator")
        shmpi_calls_open(E, &self.calls, self.context + 1)
        _known[context] = self

    def __dealloc__(self):
        shmpi_calls_close(&self.calls)
        if self.own != NULL:
            shmpi_forget_contexts(E, self.context, _TWIN)
        free(self.to_job)
        free(self.from_job)
        free(self.own)
        free(self.lines)

    cdef shmpi_group as_group(self) noexcept:
        cdef shmpi_group g
        g.size = self.size
        g.rank = self.rank
        g.ranks = self.own
        return g

    cdef bint news_of_revocation(self, str call=None) except -1:
        if shut:
            refuse(place_of(self.context, call, self.title()) if call else "")
        if not self.was_revoked and is_revoked(self.context):
            # The news passes on once, so that it reaches all even if the first rank dies meanwhile.
            self.was_revoked = True
            revoke(self.context, self.group + (self.remote or ()))
        return self.was_revoked

    @property
    def revoked(self) -> bool:
        """Return whether it is revoked, as far as this rank knows."""
        if shut == FINALIZED:  # no rank waits for the news
            return self.was_revoked or is_revoked(self.context)
        return self.news_of_revocation()

    def is_revoked(self, call: str) -> bool:
        """Return the same, or raise the error of a call that this process may not make."""
        return self.news_of_revocation(call)

    def revoke(self) -> None:
        """Revoke it for all its ranks."""
        if not self.news_of_revocation("Revoke"):
            self.was_revoked = True
            revoke(self.context, self.group + (self.remote or ()))

    def title(self) -> str:
        """Return its name for a message."""
        if self.name or self.label:
            return self.name or self.label
        if self.inter:
            return f"the intercommunicator of {self.size} and {self.peers}"
        return f"the communicator of {self.size}"

    def failed(self) -> list[int]:
        """Return the ranks of the job that have died in it, in the order of their deaths."""
        dead = [(death_of(each), each) for each in self.group + (self.remote or ())]
        return [each for number, each in sorted(dead) if number]

    cdef int dead(self) noexcept:
        """Return how many of its ranks have died."""
        if self.seen_failures != E.failures:
            self.seen_failures = E.failures
            self.dead_members = len(self.failed())
        return self.dead_members

    cdef shmpi_call begin(self, int kind, int root) noexcept:
        """Count the next collective: all ranks begin them in one order. A negative root is none."""
        return shmpi_calls_begin(E, &self.calls, <unsigned int>kind, root)

    cdef shmpi_call call_of(self, int tag) noexcept:
        """Return the collective that began last, if it has this tag; else one without a number."""
        cdef shmpi_call last = shmpi_calls_last(&self.calls)
        if tag_of_call(last) != tag:
            last.number = 0
        return last


cdef int kind_in(CommState c, str call) except -1:
    """Return the number of a collective, or of the call of the program that it is part of."""
    cdef OuterCall outer = outer_of(c.context)
    return _KINDS.get(call if outer is None else outer.name, 0)


cdef int tag_of_call(shmpi_call call) noexcept:
    """Return the tag of the messages of a collective."""
    return <int>(call.number & <uint64_t>TAG_MOST)


cdef CommState known(uint32_t context):
    """Return the communicator with this context, or None."""
    return _known.get(context & ~3u)


cdef int check_context(uint32_t context, CommBase comm) except -1:
    """Raise the error of a communicator that cannot be used any more, given one of its contexts.

    The error handler of `comm`, a handle to it, or None, handles it first.
    """
    cdef CommState c = known(context)
    if c is None:
        return 0
    at = place_of(context, c.call or "a call", c.title())
    if c.news_of_revocation():
        mpi_error(comm, constants.ERR_REVOKED, f"{at}: the communicator is revoked")
    if c.dead():
        mpi_error(
            comm, constants.ERR_PROC_FAILED, f"{at}: rank {c.failed()[0]} of the job has died"
        )
    return 0


# Apart from the calls that look whether to raise them, which are in the path of every message.

cdef int _refuse_null(CommBase comm, str call) except -1:
    mpi_error(comm, constants.ERR_COMM, f"Comm.{call}: the communicator is null")
    return 0


cdef int _refuse_revoked(CommBase comm, CommState c, str call) except -1:
    where = name_of(c.context, call)
    mpi_error(comm, constants.ERR_REVOKED, f"{where}: the communicator is revoked")
    return 0


def reserve_contexts(count: int = 1) -> int:
    """Return the first of the contexts for `count` new communicators."""
    return new_contexts(CONTEXTS * count)


cdef class CommBase(Keyed):
    """The checks of a communicator's calls."""

    _family = "Comm"

    def Get_size(self) -> int:
        """Return the number of processes in a communicator."""
        if self.ob is None:
            _refuse_null(self, "Get_size")
        return (<CommState>self.ob).size

    def Get_rank(self) -> int:
        """Return the rank of this process in a communicator."""
        if self.ob is None:
            _refuse_null(self, "Get_rank")
        return (<CommState>self.ob).rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.Get_size()

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.Get_rank()

    cdef CommState state(self, str call):
        if self.ob is None:
            _refuse_null(self, call)
        cdef CommState c = <CommState>self.ob
        if E.revocations and c.news_of_revocation(call):
            _refuse_revoked(self, c, call)
        return c

    cdef int to(self, CommState c, place, str call, str role) except -1000:
        """Return the rank of the job at a place of the communicator; PROC_NULL stays as it is."""
        cdef int number = whole(place, call, role)
        if 0 <= number < c.peers:
            return c.to_job[number]
        if number != PROC_NULL:
            mpi_error(
                self, constants.ERR_RANK,
                f"Comm.{call}: {role} {place}; {c.title()} has ranks 0 to {c.peers - 1}",
            )
        return PROC_NULL

    cdef int source(self, CommState c, place, str call) except -1000:
        cdef int number = whole(place, call, "source")
        if 0 <= number < c.peers:
            return c.to_job[number]
        return ANY_SOURCE if number == ANY_SOURCE else self.to(c, place, call, "source")

    cdef int tag(self, given, bint any_allowed, str call) except -1000:
        """Return the tag of a message."""
        cdef int number = whole(given, call, "tag")
        if number < 0 and not (any_allowed and number == ANY_TAG):
            mpi_error(
                self, constants.ERR_TAG,
                f"Comm.{call}: tag {given}; a tag is 0 to {TAG_MOST}"
                + (", or ANY_TAG" if any_allowed else ""),
            )
        return number

    cdef object fail(self, int fault, str call, shmpi_req *r, CommState c):
        """Raise what went wrong with an operation."""
        cdef OuterCall outer = outer_of(c.context)
        cdef str name = full_name(call if outer is None else outer.name)
        cdef str title = c.title() if outer is None else outer.title()
        at = ""
        if r != NULL:
            peer = r.source if r.receives else r.peer
            tag = r.source_tag if r.receives else r.tag
            place = c.from_job[peer] if 0 <= peer < E.size else -1
            at = " with " + ("any rank" if place < 0 else f"rank {place}")
            if outer is None:
                at += f", tag {tag}" if tag >= 0 else ", any tag"
        if fault == SHMPI_TRUNCATED:
            mpi_error(
                self, constants.ERR_TRUNCATE,
                f"{name}: a message{at} of {title} is longer than the buffer of "
                f"{r.bytes} bytes: it has {r.refused}",
            )
        if fault == SHMPI_NO_MEMORY:
            mpi_error(
                self, constants.ERR_NO_MEM,
                f"{name} of {title}: no memory for a message{at}; {_REMEDY}",
            )
        if fault == SHMPI_FAILED_PEER:
            if not at:
                at = f" {c.failed()[0]} of the job" if c.failed() else ""
            mpi_error(
                self, constants.ERR_PROC_FAILED,
                f"{name} of {title}: the peer{at} has died"
                if r == NULL or not r.receives or r.source >= 0
                else f"{name} of {title}{at}: rank {c.failed()[0]} of the job, which "
                "may have been the sender, has died",
            )
        if fault == SHMPI_SPOILED:
            mpi_error(
                self, constants.ERR_OTHER,
                f"{name} of {title}: the part of another rank failed, which raises "
                "the cause: its operation raised, or a buffer was too short",
            )
        if fault == SHMPI_REVOKED:
            mpi_error(
                self, constants.ERR_REVOKED, f"{name}: {title} is revoked"
            )
        if fault == SHMPI_BROKEN:
            mpi_error(
                self, constants.ERR_INTERN,
                f"{name}: the memory of the message{at} cannot be read: its buffer was freed "
                "before the send ended",
            )
        mpi_error(self, constants.ERR_OTHER, f"{name}: failed{at}")


cdef void empty_status(Status status) noexcept:
    if status is not None:
        status.c_source = ANY_SOURCE
        status.c_tag = ANY_TAG
        status.c_error = 0
        status.c_cancelled = False
        status.c_nbytes = 0


cdef void null_status(Status status) noexcept:
    """Set the status of a receive from PROC_NULL."""
    if status is not None:
        empty_status(status)
        status.c_source = PROC_NULL


cdef void set_status(Status status, CommState c, shmpi_req *r) noexcept:
    if status is None:
        return
    if r.receives:
        status_of(status, c, r.source, r.source_tag, r.got)
    else:
        empty_status(status)
    status.c_cancelled = r.cancelled


cdef void status_of(Status status, CommState c, int source, int tag, uint64_t got) noexcept:
    """Write the status of a message: `source` is a rank of the job, or -1."""
    if status is None:
        return
    status.c_source = c.from_job[source] if source >= 0 else source
    status.c_tag = tag
    status.c_error = 0
    status.c_cancelled = False
    status.c_nbytes = <long long>got
