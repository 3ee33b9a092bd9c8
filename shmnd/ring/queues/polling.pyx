# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: polling, which takes messages from the links and makes results."""

import weakref

from cpython.ref cimport Py_DECREF, Py_INCREF

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.results cimport Bound, FailedResult, Result
from shmnd.ring.shared_memory.registry cimport release_contexts

from shmnd.status import RequestType, Status, error

cdef object _SUCCESS = Status.SUCCESS
cdef object _RECEIVE = RequestType.RECEIVE
cdef tuple _TYPES = tuple(RequestType)
cdef dict _REASONS = {
    int(Status.CANCELED): "the queue pair was flushed, disconnected or closed here",
    int(Status.IO_TIMEOUT): "the peer died, posted no Receive in time, or did not end a copy",
    int(Status.ACCESS_VIOLATION): "memory is not registered for this use, here or at the peer",
    int(Status.BUFFER_OVERFLOW): "the message is longer than the buffers of the Receive",
    int(Status.REMOTE_ERROR): "the peer's Receive was too short, or its memory not registered",
}
cdef dict _STATUSES = {int(status): status for status in Status}
cdef int _KNOWN_OF_ONE_CONTEXT = 8
# How often a queue in use checks for dead peers.
cdef uint64_t _ELSEWHERE_NS = 10000000
# How often a queue is polled for operations that end without a wake-up.
cdef uint64_t _SOON_NS = 2000000

cdef enum:
    # The most steps of one poll: a hostile peer that keeps changing its state must not prolong it.
    _STEPS = 4096


cdef inline object _context_of(const c.shmnd_cqe *e):
    if e.type == c.SHMND_BIND or e.type == c.SHMND_INVALIDATE:
        if type(<object>e.context) is Bound:
            return (<Bound>e.context).context
    return <object>e.context


cdef class PairCore:
    """A queue pair as its completion queues use it: it runs the jobs that a poll leaves."""

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1:
        """Run a job or map a segment; return the number of bytes copied."""
        raise AssertionError("a queue pair overrides this")

    cdef str why(self, uint32_t status, uint32_t type_, uint32_t flags):
        """Return why a request ended with this status."""
        raise AssertionError("a queue pair overrides this")

    cdef str outstanding(self, bint requests, bint receives):
        """Return which requests are outstanding, and with which process."""
        raise AssertionError("a queue pair overrides this")

    @property
    def _receive_cq(self) -> PollingCore:
        """The queue of its Receives."""
        return self.receive_cq


cdef inline int _taking_begins(PollingCore queue) except -1:
    """Begin a call that takes completions: refuse in a child process, and clear the descriptor."""
    if queue.taking != forks or c.shmnd_pace_due(&queue.pace):
        queue._do_periodic_work()
    if queue.readiness is not None:
        if queue.notify_mode:
            # The descriptor is cleared before the poll, so what made it readable comes first.
            queue.engine.progress()
        if queue.readiness is not None:  # closed meanwhile: the poll finds nothing
            queue.readiness.clear()
    queue.polls += 1
    return 0


cdef inline int _taking_ends(PollingCore queue) except -1:
    if queue._keep is not None and queue.takers <= 1 and c.shmnd_cq_count(&queue.raw) == 0:
        queue._keep = None
    if queue.fired:
        queue._tick()
    if queue.sleepers:
        queue._tell_feeders()
    return 0


cdef class PollingCore(RingCore):
    """A completion queue's polling side."""

    def __cinit__(self, *args, **kwargs):
        self.users = {}

    cdef int poll(self, c.shmnd_cqe *out, uint32_t most, uint32_t *n) except -1:
        """Poll until there is a completion or no work is left; run the jobs of the poll.

        `n` is the number of completions, also after an exception.
        """
        cdef c.shmnd_todo todo
        cdef int _
        if self.notify_mode:
            # A completion must satisfy a waiting Notify before it is taken.
            self.collect()
            if c.shmnd_cq_trigger(&self.raw, self.notify_mode):
                self.fired = True
            n[0] = c.shmnd_cq_pop(&self.raw, out, most)
            return 0
        for _ in range(_STEPS):
            n[0] = c.shmnd_cq_poll(&self.raw, out, most, &todo)
            if todo.what == c.SHMND_IDLE:
                break
            self._copied += (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
            if n[0] or self._copied >= <int64_t>c.SHMND_PIECE:
                break
        if self._registry.raw.unreleased != NULL:  # a queue that can be polled has a registry
            release_contexts(&self._registry.raw)
        return 0

    cdef collect(self):
        """Take all messages that arrived into the queue's own ring, as far as it has room.

        One piece of a long copy is run; `_due` returns when to continue.
        """
        cdef c.shmnd_todo todo
        cdef int64_t copied = 0
        cdef int _
        for _ in range(1024):
            c.shmnd_cq_drain_links(&self.raw, &todo)
            if todo.what == c.SHMND_IDLE:
                break
            copied += (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
            if copied >= <int64_t>c.SHMND_PIECE:
                break
        if self._registry is not None:
            release_contexts(&self._registry.raw)

    # -- results --

    cdef object result(self, const c.shmnd_cqe *e):
        """Make the result of a completion, with a reference of its own to each context.

        It runs no code in Python, so no signal handler can raise. The caller returns the
        completion's reference to its context once the result is where it cannot be lost.
        """
        cdef Result r
        if e.status:
            return self.failure(e)
        r = Result.__new__(Result)
        r.status = _SUCCESS
        r.flags = e.flags
        if e.type == c.SHMND_RECEIVE:
            r.bytes = e.bytes
            r.request_type = _RECEIVE
        else:
            r.request_type = _TYPES[e.type]
        r.queue_pair_context = <object>e.qp_context
        r.request_context = _context_of(e)
        return r

    cdef object failure(self, const c.shmnd_cqe *e):
        """Return the result of a completion that is not a success. `explain` adds the reason."""
        cdef FailedResult r = FailedResult.__new__(FailedResult)
        r.status = _STATUSES[e.status]
        r.why = _REASONS.get(e.status, "")
        r.request_type = _TYPES[e.type]
        r.queue_pair_context = <object>e.qp_context
        r.request_context = _context_of(e)
        return r

    cdef explain(self, list results, const c.shmnd_cqe *last, uint32_t n):
        """Add the reasons of failures to the last results."""
        cdef uint32_t i
        for i in range(n):
            result = results[len(results) - n + i]
            if not isinstance(result, FailedResult):
                continue
            # With several queue pairs of one context, a reason counts only if all of them have it.
            reasons = set()
            for reference in self.users.get(<size_t>last[i].qp_context, ()):
                pair = reference()
                if pair is not None:
                    reasons.add((<PairCore>pair).why(last[i].status, last[i].type, last[i].flags))
            if len(reasons) == 1:
                (<FailedResult>result).why = reasons.pop() or (<FailedResult>result).why

    cdef add_user(self, PairCore pair):
        """Add a queue pair that completes here, for the reasons of failed results."""
        cdef size_t key = <size_t>pair.q.context
        living = [reference for reference in self.users.get(key, ()) if reference() is not None]
        if len(living) < _KNOWN_OF_ONE_CONTEXT:
            self.users[key] = [*living, weakref.ref(pair)]
        if len(self.users) > 2 * self.raw.link_count + 64:
            self.users = {key: references for key, references in self.users.items()
                          if any(reference() is not None for reference in references)}

    cdef object take(self, Py_ssize_t most, bint alone):
        """Return the results that a poll finds, or the only one without a list; None if none."""
        return self.take_one() if alone else self.take_results(most) or None

    cdef object take_one(self):
        """Make the result of one completion that a poll finds, or return None.

        The same as `take_results`, without a list, which takes as long as the poll.
        """
        cdef c.shmnd_cqe found
        cdef object result = None
        cdef list kept = None
        cdef uint32_t n = 0
        cdef bint complete = False
        if self.given_back is not None:
            kept = self.take_results(1)
            return kept[0] if kept else None
        if self.spare is None:
            self.spare = [None]  # for the result, which an exception finds no memory for
        self._copied = 0
        self.takers += 1
        try:
            self.poll(&found, 1, &n)
            if n:
                result = self.result(&found)
                n = 0  # first: the release of a context may run any code
                Py_DECREF(<object>found.context)
                if found.status:
                    self.explain([result], &found, 1)
            _taking_ends(self)
            complete = True
        finally:
            self.takers -= 1
            if not complete:
                if result is not None and self.spare is None:
                    kept = [result]
                elif result is not None:
                    kept, self.spare = self.spare, None
                    kept[0] = result
                self.rescue(kept, &found, n)
        return result

    cdef list take_results(self, Py_ssize_t max):
        """Make results of the completions that a poll finds."""
        cdef c.shmnd_cqe out[64]
        cdef list results = None
        cdef uint32_t most, n = 0, made = 0, failed
        cdef bint complete = False
        self._copied = 0
        self.takers += 1
        try:
            if self.given_back is not None:
                results = self.take_back(max)
                max = 0
            while max > 0:
                most = <uint32_t>(max if max < 64 else 64)
                n = made = failed = 0
                self.poll(out, most, &n)
                max -= n
                while made < n:
                    if results is None:
                        results = [self.result(&out[made])]  # often the only one
                    else:
                        results.append(self.result(&out[made]))
                    failed |= out[made].status
                    made += 1  # first: the release of a context may run any code
                    Py_DECREF(<object>out[made - 1].context)
                if failed:
                    self.explain(results, out, n)
                if n < most and (n == 0 or c.shmnd_cq_count(&self.raw) == 0):
                    break
                if self._copied >= <int64_t>c.SHMND_PIECE:
                    break
            _taking_ends(self)
            complete = True
        finally:
            self.takers -= 1
            if not complete:
                self.rescue(results, out + made, n - made)
        return [] if results is None else results

    cdef int take_completions(self, c.shmnd_cqe *out, uint32_t most) except -1:
        """Take completions as they are; the references to both contexts are the caller's."""
        cdef uint32_t n = 0, i
        cdef bint complete = False
        _taking_begins(self)
        if self.given_back is not None:
            for given in self.take_results(most):
                self.cqe_of(given, &out[n])
                n += 1
            return <int>n
        self._copied = 0
        self.takers += 1
        try:
            if most:
                self.poll(out, most, &n)
            _taking_ends(self)
            complete = True
        finally:
            self.takers -= 1
            if not complete:
                self.rescue(None, out, n)
        for i in range(n):  # first: the release of a context may end a queue pair
            Py_INCREF(<object>out[i].qp_context)
        for i in range(n):
            context = _context_of(&out[i])
            Py_INCREF(context)
            Py_DECREF(<object>out[i].context)
            out[i].context = <void *>context
            if out[i].status or out[i].type != c.SHMND_RECEIVE:
                out[i].bytes = 0  # as in a Result
        return <int>n

    cdef void cqe_of(self, object result, c.shmnd_cqe *e) noexcept:
        """Make a completion of a result, with references to both contexts."""
        cdef Result r = result
        e.context, e.qp_context = <void *>r.request_context, <void *>r.queue_pair_context
        Py_INCREF(r.request_context)
        Py_INCREF(r.queue_pair_context)
        e.status, e.type, e.bytes, e.flags = r.status, r.request_type, r.bytes, r.flags

    cdef bint is_solicited(self, object result) noexcept:  # those of version 1 have no flags
        return (not isinstance(result, Result) or (<Result>result).status is not _SUCCESS
                or (<Result>result).flags & c.SHMND_CQE_SOLICITED)

    cdef list poll_results(self, Py_ssize_t max):
        _taking_begins(self)
        return self.take_results(max)

    cdef object poll_for(self, Py_ssize_t most, bint alone):
        """Begin a call that takes completions, and return the results of `take`."""
        _taking_begins(self)
        return self.take(most, alone)

    cdef int _do_periodic_work(self) except -1:
        """Do what not every call does: refuse in a child process, and make periodic progress."""
        if self.taking != forks:
            self._refuse_taking("get_results")
        self._poll_elsewhere()
        return 0

    def _refuse_taking(self, call):
        """Raise the reason why no results can be taken: closed, of another process, or not made."""
        self.usable(call)
        self.adapter._check_open(f"CompletionQueue.{call}")
        raise error(Status.INVALID_HANDLE, f"CompletionQueue.{call}",
                    "the completion queue is closed; take results before close()")

    cdef _poll_elsewhere(self):
        """Check periodically for dead peers, and make progress on the other queues of the process.

        A program that only polls or posts depends on it. It runs before a poll or a post, so an
        exception from it loses no result. The rounds are those of the process: a queue begins none
        if another one has just done so, and polls that one alone, to which the program may only
        post.
        """
        cdef uint64_t now = c.shmnd_coarse_ns()
        if now - self._elsewhere_ns > _ELSEWHERE_NS:
            self._elsewhere_ns = now
            if self.asked():
                c.shmnd_marks_accept_request(self.raw.arming.marks)
                self.collect()
            if not self.engine.alive:
                return
            if self.engine.request_progress.is_round_due(now):
                self.engine.progress()
                self.engine.request_progress.poll_others(self, now)
            else:
                self.engine.request_progress.poll_left_out(self)

    # -- for Notify --

    def _gather(self) -> int:
        """Take all messages that arrived into the queue's own ring; return its length."""
        self.usable("_gather")
        return self.gather()

    cdef uint64_t gather(self) except? 0xFFFFFFFFFFFFFFFF:
        self.collect()
        if self.sleepers:
            self._tell_feeders()
        return self.count()

    cdef bint triggered(self, uint32_t mode) noexcept:
        """Return whether a completion since the last trigger satisfies a Notify. After `gather`."""
        cdef bint taken = self.fired, given = self.given_satisfies(mode)
        self.fired = False
        return c.shmnd_cq_trigger(&self.raw, mode) or taken or given

    def _poll(self) -> None:
        """Arm the bell again, and take all messages that arrived into the queue's own ring."""
        self.usable("_poll")
        self._rearm()  # first: a producer rings once an arming
        c.shmnd_marks_accept_request(self.raw.arming.marks)
        self.collect()

    @property
    def _polls(self) -> int:
        """The number of polls by the program; it wraps."""
        return self.polls

    @property
    def _busy(self) -> bool:
        """Whether requests are pending that only polling finishes, here or at a peer."""
        return self.raw.unsettled != 0 or self.asked()

    @property
    def _due(self) -> float | None:
        """The `time.monotonic()` at which pending requests need a poll without a wake-up."""
        cdef uint64_t due = c.shmnd_cq_next_poll_ns(&self.raw, _SOON_NS)
        return due * 1e-9 if due else None

    def _outstanding(self) -> list:
        """Return a text for each connected queue pair: its outstanding requests and its peer."""
        cdef c.shmnd_qp *qp
        cdef uint32_t i
        parts = []
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            parts.append((<PairCore>qp.owner).outstanding(
                qp.initiator_cq == &self.raw, qp.receive_cq == &self.raw))
        return parts
