# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Small blocking collectives by lines (`lines.h`): no schedule, no request, no object.

What a call gives is packed, at most SHMPI_LINE_MOST bytes, and lives in memory of the caller. All
members decide alike whether a call goes by lines: by its kind and the bytes of its signature, which
MPI demands to be equal, and never by where those bytes lie.
"""

from libc.string cimport memcpy, memmove

from shmnd.mpi.buffers.plain cimport Plain, array_type, plain, plain_array, release
from shmnd.mpi.collectives.op cimport Op, OpState
from shmnd.mpi.communicators.comm_state cimport shmpi_calls, shmpi_lines, whole
from shmnd.mpi.communicators.disputes cimport agree, report_failure, send_call
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, SHMPI_REVOKED, flag, note, note_end, progress, see_failures,
    shmpi_awaited, shmpi_call, turn_for, uint32_t, uint64_t,
)
from shmnd.mpi.transport.outer_call cimport place_of

from shmnd.mpi import constants
from shmnd.mpi.buffers.sentinels import IN_PLACE as _IN_PLACE
from shmnd.mpi.collectives.names import KINDS as _KINDS

cdef extern from "transport/collectives/calls.h" nogil:
    shmpi_call shmpi_calls_last(const shmpi_calls *c)
    void shmpi_calls_undo(shmpi_calls *c)

cdef extern from "collectives/lines.h" nogil:
    enum:
        SHMPI_LINE_MEMBERS
        SHMPI_LINE_FENCE
        SHMPI_LINE_WIN_FREE
        SHMPI_LINE_KINDS

    struct shmpi_entry:
        const char *data

    bint shmpi_arrived(const shmpi_awaited *a)
    shmpi_awaited shmpi_await_entry(const shmpi_lines *lines, uint64_t k, int place)
    shmpi_awaited shmpi_await_room(const shmpi_lines *lines, uint64_t k, int place)
    int shmpi_lines_full(shmpi_lines *lines, uint64_t k)
    bint shmpi_lines_elsewhere(const shmpi_lines *lines, uint64_t k, int place)
    void shmpi_lines_show(shmpi_lines *lines, uint64_t k, uint32_t kind, const void *data,
                          uint64_t n, flag last)
    int shmpi_lines_bytes(const shmpi_lines *lines, uint64_t k, int place, uint32_t kind)
    void shmpi_lines_finish(shmpi_lines *lines, uint64_t k, flag all)
    shmpi_entry *shmpi_lines_entry(const shmpi_lines *lines, uint64_t k, int place)
    char *shmpi_lines_reduce(char **row, int n, mpi_kernel kernel, size_t items)
    void shmnd_pause()

cdef enum:
    LOOKS = 16          # at a word, before the engine makes progress
    LOOKS_CROWDED = 4   # before the core is left to others: with more ranks than cores it takes one

cdef int _BARRIER = _KINDS["Barrier"], _BCAST = _KINDS["Bcast"], _REDUCE = _KINDS["Reduce"]
cdef int _ALLREDUCE = _KINDS["Allreduce"], _ALLGATHER = _KINDS["Allgather"]
cdef int _FENCE = _KINDS["Win.Fence"], _WIN_FREE = _KINDS["Win.Free"]
cdef dict _kinds = _KINDS

# By enum shmpi_line_kind of lines.h.
_NAMES = ("", "Barrier", "Bcast", "Reduce", "Allreduce", "Gather", "Allgather", "Win.Fence",
          "Win.Free")


# -- waiting --

cdef inline int _wait(
    CommBase comm, CommState c, shmpi_awaited *a, uint64_t k, int place, str call
) except -1:
    """Wait for a word of the member at `place`; `k`: the collective of the entry, 0: for room."""
    cdef unsigned int looks = 0, most = LOOKS_CROWDED if E.crowded else E.awake_polls
    while not shmpi_arrived(a):
        looks += 1
        if looks % LOOKS == 0 and progress():
            looks = 0
        elif looks >= most:
            return _wait_long(comm, c, a, k, place, call)
        shmnd_pause()
    return 0


cdef int _wait_long(
    CommBase comm, CommState c, shmpi_awaited *a, uint64_t k, int place, str call
) except -1:
    """Wait after all looks were in vain: yield, sleep, and publish what for."""
    cdef unsigned int idle = E.awake_polls
    cdef bint noted = False, dead, elsewhere
    cdef shmpi_call mine = shmpi_calls_last(&c.calls)
    try:
        while True:
            turn_for(&idle, a)
            dead = E.failures and c.dead()  # before the last poll: an entry that is shown counts
            if shmpi_arrived(a):
                return 0
            if dead:
                comm.fail(SHMPI_FAILED_PEER, call, NULL, c)
            if E.revocations and c.news_of_revocation():
                comm.fail(SHMPI_REVOKED, call, NULL, c)
            elsewhere = k and shmpi_lines_elsewhere(c.lines, k, place)
            if elsewhere:
                progress()  # what it sent before it left this collective
            if noted or elsewhere:
                agree(c, mine, comm)
            if elsewhere:
                _disagree(comm, c, 0, place, -1, call)
            if not noted and idle >= E.awake_polls + E.yields:
                noted = True
                send_call(<int> c.lines.rank[place], mine)
                note(1, <int> c.lines.rank[place], -1, call, c.title(), c.context)
    finally:
        if noted:
            note_end()
    return 0


cdef int _disagree(
    CommBase comm, CommState c, uint64_t k, int place, Py_ssize_t own, str call
) except -1:
    """Raise the error of a collective in whose place a member has another one, with its name if it
    has shown an entry of collective k. `own`: the bytes of this rank."""
    cdef int kind, n
    shown = ""
    at = place_of(c.context, call, c.title())
    report_failure(c, shmpi_calls_last(&c.calls))
    for kind in range(SHMPI_LINE_BARRIER, SHMPI_LINE_KINDS):
        n = shmpi_lines_bytes(c.lines, k, place, kind)
        if k and n >= 0:
            shown = f" ({_NAMES[kind]} with {n})" if n else f" ({_NAMES[kind]})"
            if _NAMES[kind] == call:
                mpi_error(
                    comm, constants.ERR_TRUNCATE,
                    f"{at}: rank {place} takes part with {n} bytes, and this rank with {own}; "
                    "counts, types and roots of all ranks have to agree",
                )
    mpi_error(
        comm, constants.ERR_TRUNCATE,
        f"{at}: rank {place} is in another collective, or in one of another root or number of "
        f"bytes{shown}; all ranks begin the same collectives in the same order",
    )
    return 0


# -- what the calls share --

cdef inline uint64_t _begin(CommBase comm, CommState c, bint shows, str call) except 0:
    """Return the number of the collective that begins. An entry of this rank has room then.

    A call that is interrupted before it has shown anything has not begun.
    """
    cdef shmpi_lines *lines = c.lines
    cdef shmpi_awaited a
    cdef int place
    see_failures()
    if E.failures and c.dead():
        comm.fail(SHMPI_FAILED_PEER, call, NULL, c)
    while shows:
        place = shmpi_lines_full(lines, lines.number + 1)
        if place < 0:
            break
        a = shmpi_await_room(lines, lines.number + 1, place)
        try:
            _wait(comm, c, &a, 0, place, call)
        except BaseException:
            shmpi_calls_undo(&c.calls)
            raise
    lines.number += 1
    return lines.number


cdef inline Py_ssize_t _entry(
    CommBase comm, CommState c, uint64_t k, int place, uint32_t kind, Py_ssize_t own, str call
) except -1:
    """Wait for the entry of a member; return its bytes, which are as many as this rank's own."""
    cdef shmpi_awaited a = shmpi_await_entry(c.lines, k, place)
    _wait(comm, c, &a, k, place, call)
    cdef Py_ssize_t n = shmpi_lines_bytes(c.lines, k, place, kind)
    if n != own:
        _disagree(comm, c, k, place, own, call)
    return n


cdef uint64_t lines_pass(CommState c) noexcept:
    """Count a collective that goes by messages, so that a member that takes it by lines sees it.

    Return its number.
    """
    c.lines.number += 1
    shmpi_lines_finish(c.lines, c.lines.number, False)
    return c.lines.number


cdef int lines_check(
    CommBase comm, CommState c, uint64_t k, Py_ssize_t own, str call
) except -1:
    """Raise the error of a collective by messages that another member takes by lines."""
    cdef int i
    cdef uint32_t kind
    for i in range(c.size):
        for kind in range(SHMPI_LINE_BARRIER, SHMPI_LINE_KINDS):
            if shmpi_lines_bytes(c.lines, k, i, kind) >= 0:
                _disagree(comm, c, k, i, own, call)
    return 0


# -- collectives --

cdef int lines_barrier(CommBase comm, CommState c, str call, uint32_t kind) except -1:
    """Wait for all members. `kind`: that of the call, which may be another one than Barrier."""
    cdef shmpi_lines *lines = c.lines
    cdef uint64_t k = _begin(comm, c, True, call)
    cdef int i
    cdef bint all = False
    shmpi_lines_show(lines, k, kind, NULL, 0, False)
    try:
        for i in range(lines.size):
            if i != lines.place:
                _entry(comm, c, k, i, kind, 0, call)
        all = True
    finally:
        shmpi_lines_finish(lines, k, all)
    return 0


cdef int lines_bcast(CommBase comm, CommState c, char *data, Py_ssize_t n, int root) except -1:
    cdef shmpi_lines *lines = c.lines
    cdef uint64_t k = _begin(comm, c, root == lines.place, "Bcast")
    if root == lines.place:
        shmpi_lines_show(lines, k, SHMPI_LINE_BCAST, data, <uint64_t> n, True)
        return 0
    try:
        n = _entry(comm, c, k, root, SHMPI_LINE_BCAST, n, "Bcast")
        if n:
            memcpy(data, shmpi_lines_entry(lines, k, root).data, n)
    finally:
        shmpi_lines_finish(lines, k, False)
    return 0


cdef int lines_reduce(
    CommBase comm, CommState c, const char *given, char *got, Py_ssize_t n, Py_ssize_t items,
    mpi_kernel kernel, int root, str call
) except -1:
    """Reduce to the root, or to all where it is negative."""
    cdef shmpi_lines *lines = c.lines
    cdef bint gets = root < 0 or root == lines.place, all = False
    cdef uint32_t kind = SHMPI_LINE_REDUCE if root >= 0 else SHMPI_LINE_ALLREDUCE
    cdef uint64_t k = _begin(comm, c, root != lines.place, call)
    cdef char rows[SHMPI_LINE_MEMBERS * SHMPI_LINE_MOST]
    cdef char *row[SHMPI_LINE_MEMBERS]
    cdef const char *source
    cdef int i
    if root != lines.place:
        shmpi_lines_show(lines, k, kind, given, <uint64_t> n, not gets)
    if not gets:
        return 0
    try:
        for i in range(lines.size):
            if i != lines.place:
                _entry(comm, c, k, i, kind, n, call)
            row[i] = rows + i * SHMPI_LINE_MOST
            source = given if i == lines.place else shmpi_lines_entry(lines, k, i).data
            if n:
                memcpy(row[i], source, n)
        all = root < 0
    finally:
        shmpi_lines_finish(lines, k, all)
    if n:
        memcpy(got, shmpi_lines_reduce(row, lines.size, kernel, <size_t> items), n)
    return 0


cdef int lines_gather(
    CommBase comm, CommState c, const char *given, char **got, Py_ssize_t n, int root, str call
) except -1:
    """Gather to the root, or to all where it is negative: a block from each other rank."""
    cdef shmpi_lines *lines = c.lines
    cdef bint gets = root < 0 or root == lines.place, all = False
    cdef uint32_t kind = SHMPI_LINE_GATHER if root >= 0 else SHMPI_LINE_ALLGATHER
    cdef uint64_t k = _begin(comm, c, root != lines.place, call)
    cdef Py_ssize_t came
    cdef int i
    if root != lines.place:
        shmpi_lines_show(lines, k, kind, given, <uint64_t> n, not gets)
    if not gets:
        return 0
    try:
        for i in range(lines.size):
            came = 0 if i == lines.place else _entry(comm, c, k, i, kind, n, call)
            if came:
                memcpy(got[i], shmpi_lines_entry(lines, k, i).data, came)
        all = root < 0
    finally:
        shmpi_lines_finish(lines, k, all)
    return 0


# -- calls with plain arguments --

cdef bint plain_barrier(CommBase comm) except -1:
    """Return whether it was done, as all calls here do; if not, a plan does it, or raises."""
    cdef CommState c = comm.state("Barrier")
    if c.lines == NULL:
        return False
    c.begin(_BARRIER, -1)
    lines_barrier(comm, c, "Barrier", SHMPI_LINE_BARRIER)
    return True


cdef bint barrier_as(CommBase comm, str call) except -1:
    """Do the same under the name of another call, which needs no `OuterCall` for it."""
    cdef CommState c = comm.state(call)
    if c.lines == NULL:
        return False
    cdef int number = _kinds[call]
    c.begin(number, -1)
    lines_barrier(
        comm, c, call, SHMPI_LINE_FENCE if number == _FENCE
        else SHMPI_LINE_WIN_FREE if number == _WIN_FREE else SHMPI_LINE_BARRIER)
    return True


cdef bint plain_bcast(CommBase comm, object buf, object place) except -1:
    cdef CommState c = comm.state("Bcast")
    cdef int root = whole(place, "Bcast", "root")
    cdef Plain given
    if c.lines == NULL or not 0 <= root < c.size or not plain(buf, root == c.rank, &given):
        return False
    try:
        if given.nbytes > SHMPI_LINE_MOST:
            return False
        c.begin(_BCAST, root)
        lines_bcast(comm, c, given.addr, given.nbytes, root)
    finally:
        release(&given)
    return True


cdef mpi_kernel _kernel(object op, TypeState type) noexcept:
    if not isinstance(op, Op) or (<Op> op).ob is None:
        return NULL
    return (<OpState> (<Op> op).ob).kernel(type)


cdef bint plain_reduce(
    CommBase comm, object sendbuf, object recvbuf, object op, object place, str call
) except -1:
    """Reduce to a root, or to all if `place` is None."""
    cdef CommState c = comm.state(call)
    cdef int root = -1 if place is None else whole(place, call, "root")
    cdef char *given
    cdef char *got
    cdef Py_ssize_t n, other
    cdef int number, another
    cdef TypeState type
    cdef mpi_kernel kernel
    if c.lines == NULL or root >= c.size or (root < 0 and place is not None):
        return False
    if root >= 0 and root != c.rank:
        got = NULL
        if recvbuf is not None or not plain_array(sendbuf, True, &given, &n, &number):
            return False
    elif not plain_array(recvbuf, False, &got, &n, &number):
        return False
    elif sendbuf is None or sendbuf is _IN_PLACE:
        given = got
    elif not (
        plain_array(sendbuf, True, &given, &other, &another) and n == other and number == another
        and given != got
    ):
        return False
    if n > SHMPI_LINE_MOST:
        return False
    type = <TypeState> array_type(number)
    kernel = _kernel(op, type)
    if kernel == NULL:
        return False
    c.begin(_REDUCE if root >= 0 else _ALLREDUCE, root)
    lines_reduce(comm, c, given, got, n, n // type.size, kernel, root, call)
    return True


cdef bint plain_allgather(CommBase comm, object sendbuf, object recvbuf) except -1:
    cdef CommState c = comm.state("Allgather")
    cdef char *given
    cdef char *got
    cdef char *block[SHMPI_LINE_MEMBERS]
    cdef Py_ssize_t n, all
    cdef int number, another, i
    if c.lines == NULL or not (
        plain_array(sendbuf, True, &given, &n, &number) and n <= SHMPI_LINE_MOST
        and plain_array(recvbuf, False, &got, &all, &another) and number == another
        and all == n * c.size
    ):
        return False
    for i in range(c.size):
        block[i] = got + i * n
    c.begin(_ALLGATHER, -1)
    lines_gather(comm, c, given, block, n, -1, "Allgather")
    memmove(block[c.rank], given, n)
    return True
