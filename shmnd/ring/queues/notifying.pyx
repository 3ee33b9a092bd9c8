# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: the Notify operations that wait, and the tasks that poll for them.

Compiled because all of it runs between the wake-up of an event loop and its task.

What waits and for what the bell is armed change together without a lock: between the two no code in
Python runs, so no other thread does, and no finaliser or handler of a signal.
"""

import time

from libc.stdint cimport uint32_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.process.waiting cimport Sleepers

from shmnd.status import CqNotify, Status

cdef object _ANY = CqNotify.ANY
cdef object _SOLICITED = CqNotify.SOLICITED
cdef object _SUCCESS = Status.SUCCESS
cdef unsigned int _TURNS = 16  # turns of a task that polls, after which it polls everything
cdef double _RETRY = 0.002  # seconds after which a queue with pending requests is polled again


cdef class NotifyCore(CompletionCore):
    """A completion queue with Notify."""

    def __cinit__(self, *args, **kwargs):
        self._waiting = {}
        self.satisfied = []

    def _add_notify(self, overlapped, kind) -> None:
        """Let an operation wait for a completion, or end it now if one is there already."""
        if self.closed or overlapped._final is not None:
            return  # another thread has closed it or cancelled the operation since
        self._waiting[overlapped] = kind
        self.arm()
        self.complete_satisfied()

    def _forget_notify(self, overlapped) -> bool:
        """Remove an operation from those that wait."""
        self._waiting.pop(overlapped, None)
        self.arm()
        return True

    def _end_notifies(self) -> None:
        """Remove all operations from those that wait."""
        self._waiting.clear()
        self.arm()

    cdef arm(self):
        """Arm for the strongest kind that waits, and be polled as long as one does."""
        cdef uint32_t was = self.notify_mode, strongest = 0
        for kind in self._waiting.values():
            if kind is _ANY or kind == _ANY:  # `is` calls nothing
                strongest = c.SHMND_ARMED_ANY
                break
            if kind == _SOLICITED:
                strongest = c.SHMND_ARMED_SOLICITED
        self._arm_for(strongest)
        if strongest and not was:
            self.engine.pending_operations.add(self)
        elif was and not strongest:
            self.engine.pending_operations.remove(self)
            self.engine.request_progress.poller_left(self)

    def _tick(self) -> None:
        """Arm the bell again, and complete the Notify operations that a completion satisfies."""
        if not self.notify_mode:
            return
        self._arm_for(self.notify_mode)  # anew: a producer rings once an arming
        self.complete_satisfied()

    cdef complete_satisfied(self):
        """Complete the Notify operations that a completion satisfies.

        If none does while requests are pending, set the time of the next poll.
        """
        if not self.notify_mode:
            return
        self.usable("notify")
        self.gather()
        if self.triggered(self.notify_mode) and self._waiting:
            self.satisfied.extend(self._waiting)
            self._waiting.clear()
            if self.awaiting_since:  # a task waits
                self.count_wait(c.shmnd_now_ns() - self.awaiting_since, True)
                self.awaiting_since = 0
            self.end_satisfied()
        if self.notify_mode and self._busy:
            due = self._due
            retry = time.monotonic() + _RETRY
            self.engine.wake_at(retry if due is None else min(due, retry))

    def _finish(self) -> None:
        """Continue with an end that was put off."""
        self.end_satisfied()

    cdef end_satisfied(self):
        """End the operations whose completion has come.

        Where a handler of a signal raises, the next poll continues with those that are left.
        """
        cdef bint complete = False
        try:
            self.arm()
            while self.satisfied:
                overlapped = self.satisfied[0]
                overlapped._complete(_SUCCESS)
                # Unless another thread took it out.
                if self.satisfied and self.satisfied[0] is overlapped:
                    self.satisfied.pop(0)
            if self.readiness is not None:
                self.readiness.set()
            complete = True
        finally:
            if not complete:
                self.engine.pending_operations.put_off(self)

    def _keep_readiness(self, made) -> object:
        """Return the descriptor of `fileno`; `made` becomes it if there is none."""
        if self.readiness is None:
            self.readiness = made
        return self.readiness

    # -- tasks that await a Notify poll first --

    def _poll_window(self) -> float:
        """Return the seconds for which a task that begins to wait polls before it sleeps."""
        cdef uint64_t window
        self.awaiting_since = c.shmnd_now_ns()
        window = c.shmnd_window_next(&self.poll_window, self.window_ns(), 0)
        if window:
            self.yields = c.shmnd_on_one_cpu()
        return window * 1e-9

    def _begin_turns(self) -> None:
        """Note that a task polls from now on, a turn of its event loop between two polls."""
        self._turns += 1
        self.disarm_if_polled()

    cdef disarm_if_polled(self):
        """Disarm the bell while all that wait are tasks that poll, unless others need it.

        Everything that arms the bell arms it again; `_arm_for` does after the last poll.
        """
        cdef Sleepers others
        if self.born != forks or self._turns < len(self._waiting):
            return
        if self.readiness is not None or self.sleepers:
            return
        if self.announcing:
            others = self.engine.request_progress
            if others is None or others._sleepers:
                return
            self.announcing = False  # for the last one that slept
        c.shmnd_bell_disarm(&self.raw.arming)

    def _take_turn(self) -> None:
        """Poll once; on a single CPU the peer may have the same one, and runs before."""
        if self.yields:
            with nogil:  # before anything is read: other threads may run
                c.shmnd_yield()
        if not self.notify_mode:
            return
        self.turns_taken += 1
        self.usable("_take_turn")
        if self._something():
            self.complete_satisfied()
        if self.notify_mode and self.turns_taken % _TURNS == 0:
            # The end of a peer shows nowhere else. It arms the bell.
            self.engine.progress()
            self.disarm_if_polled()

    def _end_turns(self) -> None:
        """Note that the task polls no more: what it waits for was found, or it sleeps."""
        self._turns -= 1
        if not self.engine.alive:
            return
        self._arm_for(self.notify_mode)
        self.complete_satisfied()  # last: it finds results from before the bell was armed
