# SPDX-License-Identifier: Apache-2.0
"""One job: its memory, its ranks, and its end.

The memory has no name: ranks inherit its descriptor, and it is gone with the last of them. Ranks
die with the launcher (the kernel sends SIGKILL; to one that a shell has started, for the end of a
pipe), and the launcher ends all when one fails.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from shmnd.common.streams import duplicate
from shmnd.mpi.communicators import agreement
from shmnd.mpi.launcher import environment, refusals, signals, waiting
from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.launcher.output import Output, RankPipe
from shmnd.mpi.launcher.rank import Guard, Rank, before_program
from shmnd.mpi.launcher.recovery import Recovery
from shmnd.mpi.launcher.sizes import arena_bytes, fits_in_file, lane_bytes
from shmnd.mpi.transport import job_memory
from shmnd.ring.shared_memory.segment import Segment

_GRACE: Final = 2.0
"""Seconds that ranks have between SIGTERM and SIGKILL."""
_POLL_SECONDS: Final = 0.2
_LAST_POLL_SECONDS: Final = 0.02
"""The same when all ranks have ended, and only what they have started has not."""
_PATIENCE: Final = 0.5
"""Seconds in which ranks may begin to wait for one that has died."""
_PAUSE: Final = 0.025
"""Seconds between two questions of what they do."""
_MOST_REPORTED: Final = 16
"""The most ranks whose waits are reported."""


class Job:
    """The ranks of one command."""

    def __init__(self, options: JobOptions) -> None:
        self._options: Final = options
        self._cores: Final = sorted(os.sched_getaffinity(0))
        self._crowded: Final = options.ranks > len(self._cores)
        self._memory: Segment | None = None
        self._life, self._end_of_life = os.pipe()
        """A pipe that ends with this process, however that does: what ranks under a shell watch."""
        self._recovery: Recovery | None = None
        self._succeeded = False
        self._worst = 0
        self._selector: Final = selectors.DefaultSelector()
        self._ranks: list[Rank] = []
        self._guards: Final[list[Guard]] = []
        self._running: set[Rank] = set()
        self._checks: Final = waiting.Checks()
        self._released: dict[int, float] = {}
        self._verdicts: dict[int, str] = {}
        self._output: Final = Output(self._selector)
        self._hurries = False
        """Whether the end of the job waits for no reader: by a signal, or a limit of time."""
        self._code = 0
        self._ending: float | None = None
        self._interrupts = 0
        self._repeat: float | None = None
        """When a rank in the group of the launcher gets SIGINT, if the terminal has not sent it."""

    # -- starting --

    def run(self, *, leaves: bool = False) -> int:
        """Start all ranks, wait for all of them, and return the exit code of the job.

        This process `leaves` with that code: a later signal ends it at once, and with the same.
        """
        options = self._options
        if self._crowded and not options.oversubscribe:
            unbound = "" if options.bind == "core" else " and nothing is bound"
            self._output.say(
                f"{options.ranks} ranks on {len(self._cores)} cores: they take turns{unbound}; "
                "--oversubscribe says that it is meant so"
            )
        if option := environment.hidden_by(options.command):
            self._output.say(
                f"{Path(options.command[0]).name} {option} ignores PYTHONPATH, by which the ranks "
                "find this mpi4py; with an installed one each is a job of one rank"
            )
        taken = signals.take(
            {
                signal.SIGINT: self._interrupted,
                signal.SIGTSTP: self._stopped,
                **dict.fromkeys(signals.ENDS, self._terminated),
                **dict.fromkeys(signals.PASSED_ON, self._passed_on),
            }
        )
        try:
            self._start()
            self._watch_to_end()
        except BaseException:
            self._code = self._code or 1
            raise
        finally:
            self._send(signal.SIGKILL)
            try:
                with contextlib.suppress(BrokenPipeError):
                    self._output.finish(self._output_timed_out)
            finally:
                self._close()
                if leaves:
                    taken.end_at_once(self._exit_code())
                else:
                    taken.give_back()
        return self._exit_code()

    def _exit_code(self) -> int:
        return self._code or (0 if self._succeeded else self._worst)

    def _close(self) -> None:
        for rank in self._ranks:
            with rank.process:  # waits for it, and closes its pipes
                os.close(rank.descriptor)
        for guard in self._guards:
            guard.end()
        if self._recovery is not None:
            self._recovery.close()
        if self._memory is not None:
            self._memory.close_fd()
        os.close(self._life)
        os.close(self._end_of_life)
        self._selector.close()

    def _start(self) -> None:
        size = self._options.ranks
        lane = lane_bytes(size)
        arena = 0 if self._options.private_arrays else arena_bytes(size)
        committed = job_memory.job_bytes(size, lane)
        whole = job_memory.whole_bytes(size, lane, arena) if arena else committed
        if not fits_in_file(whole):
            arena, whole = 0, committed
        memory = Segment.create(whole, label="mpi", call="shmnd mpiexec", committed=committed)
        self._memory = memory
        if self._options.recovery:
            self._recovery = Recovery(memory, self._selector)
        passed = -1
        try:
            refusals.refuse_missing_script(self._options)
            # A copy for the ranks: a child that is forked off closes that of the segment.
            passed = duplicate(memory.fd)
            job_memory.lay_out(memory, size, lane, self._crowded, arena)
            for number in range(size):
                if self._ending is not None:
                    return  # by a signal
                self._start_rank(number, passed)
        except OSError as exc:
            words, code = refusals.explain(exc, self._options)
            self._output.say(words)
            raise SystemExit(code) from exc
        finally:
            if passed >= 0:
                os.close(passed)

    def _start_rank(self, number: int, descriptor: int) -> None:
        options = self._options
        own_group = number > 0 or not os.isatty(0)
        core = None
        if options.bind == "core" or (options.bind is None and not self._crowded):
            core = self._cores[number % len(self._cores)]
        pipe = subprocess.PIPE if options.prefix else None
        variables = environment.of_rank(options, number, descriptor, self._life)
        inherited = [descriptor, self._life]
        theirs = None
        if self._recovery is not None:
            theirs = self._recovery.connect(number)
            variables[agreement.VARIABLE] = str(theirs.fileno())
            inherited.append(theirs.fileno())
        guard = Guard(self._life)
        self._guards.append(guard)
        inherited += guard.descriptors()
        process = subprocess.Popen(
            options.command,
            cwd=options.folder,
            env=variables,
            stdin=None if number == 0 else subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            pass_fds=inherited,
            preexec_fn=before_program(os.getpid(), own_group, guard, core),
        )
        if theirs is not None:
            theirs.close()
        rank = Rank(number, process, own_group)
        self._ranks.append(rank)
        self._running.add(rank)
        self._selector.register(rank.descriptor, selectors.EVENT_READ, rank)
        if self._ending is not None:  # a signal came before it could be passed on to this rank
            rank.send(signal.SIGTERM)
        if process.stdout is not None and process.stderr is not None:
            self._output.show(process.stdout.fileno(), process.stderr.fileno(), number)

    # -- watching --

    def _watch_to_end(self) -> None:
        """Watch the ranks. Where the reader of their output ends, so does the job.

        A job that ends already, by a signal for example, does so without the output.
        """
        while True:
            try:
                self._watch()
                return
            except BrokenPipeError:  # once for each stream
                if self._ending is None:
                    ranks = "; the ranks are ended" if self._running else ""
                    self._output.say(f"the reader of the output has ended{ranks}")
                    self._fail(1)

    def _watch(self) -> None:
        limit = self._options.timeout
        last = None if limit is None else time.monotonic() + limit
        while self._running or self._output.is_open() or self._leaves():
            self._handle_events()
            for rank in self._ranks:
                rank.look_at_group()
            now = time.monotonic()
            if last is not None and now > last and self._ending is None:
                self._output.say(f"the job has run for {limit} seconds, the limit of --timeout")
                self._report_waits(0.0)  # those of a deadlock have lasted, and are known
                self._hurries = True
                self._fail(124)
            if self._repeat is not None and now > self._repeat:
                self._repeat = None
                self._interrupt(has_group=False)
            if self._ending is None:
                self._end_endless_waits()
            if self._ending is not None and now > self._ending:
                self._send(signal.SIGKILL)
                if not self._running and (self._hurries or not self._output.waits()):
                    self._output.take_last()
                    return

    def _handle_events(self) -> None:
        """Wait a short time for ends, messages and output of ranks, and handle them."""
        seconds = _POLL_SECONDS if self._running else _LAST_POLL_SECONDS
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, Rank):
                self._ended(key.data)
            elif isinstance(key.data, int) and self._recovery is not None:
                self._recovery.read(key.data)
            elif isinstance(key.data, RankPipe):
                self._output.read(key.data)
        self._output.write()

    def _output_timed_out(self) -> bool:
        """Return whether no reader took the last output until the end of a job that hurries."""
        return self._hurries and (self._ending is None or time.monotonic() > self._ending)

    def _ended(self, rank: Rank) -> None:
        self._selector.unregister(rank.descriptor)
        self._running.discard(rank)
        rank.ended = time.monotonic()
        if rank.number in self._released:
            rank.ended -= waiting.ENDLESS_SECONDS  # that wait was in vain before
        job_memory.forget_process(self._memory, rank.number)  # while no other has its number
        code = rank.process.wait()
        job_memory.leave(self._memory, rank.number)
        if not self._running and self._ending is None:
            self._ending = time.monotonic() + _GRACE
        self._succeeded |= code == 0
        if self._recovery is not None:
            self._recovery.ended(rank.number, code)
        if code == 0 and rank.number in self._verdicts and not self._code:
            self._output.say(self._verdicts[rank.number])
            self._fail(1)
        if code == 0 or self._code:
            return
        code = code if code > 0 else 128 - code
        if self._recovery is not None and not job_memory.aborted(self._memory):
            self._worst = self._worst or code
            self._output.say(f"{rank.end_of()}; the others continue")
            return
        if len(self._ranks) > 1 or code > 128:  # an only rank ends as its program does
            others = "; the others are ended" if self._running else ""
            self._output.say(f"{rank.end_of()}{others}")
            self._report_waits()
        self._fail(code)

    def _end_endless_waits(self) -> None:
        """End waits for a rank that makes no call any more, and with them the job.

        A rank that stays at its end is released first: its exit code is that of the job, unless it
        is 0. A job with recovery continues where that rank has ended: to the others it is dead.
        """
        ranks = [
            waiting.Waiter(
                self._process(each),
                self._released.get(number) if each.ended is None else each.ended,
                job_memory.wait_of(self._memory, number),
            )
            for number, each in enumerate(self._ranks)
        ]
        now = time.monotonic()
        for number, rank in enumerate(ranks):
            peers = waiting.awaited(number, ranks)
            if not self._checks.confirm(number, rank, [ranks[peer] for peer in peers], now):
                continue
            words = waiting.endless_words(number, peers, rank)
            if self._recovery is not None and any(self._ranks[peer].ended for peer in peers):
                self._output.say(f"{words}: the call fails")
                self._recovery.give_up(peers)
                continue
            verdict = f"{words}: the job cannot continue, and is ended"
            if self._release({number, *peers}, ranks):
                self._verdicts |= {number: verdict} if waiting.is_at_end(rank) else {}
                return
            self._output.say(verdict)
            self._fail(1)
            return

    def _process(self, rank: Rank) -> int:
        """Return the process that makes the calls of a rank: a shell may have started it."""
        return job_memory.pid_of(self._memory, rank.number) or rank.process.pid

    def _release(self, numbers: set[int], ranks: list[waiting.Waiter]) -> bool:
        """Release those that stay at their end; return whether there are any."""
        staying = {number for number in numbers if waiting.is_at_end(ranks[number])}
        for number in staying:
            self._released[number] = time.monotonic()
            job_memory.release(self._memory, number)
        return bool(staying)

    def _report_waits(self, patience: float = _PATIENCE) -> None:
        """Print what the ranks that run wait for, as far as they do within some seconds or end."""
        last = time.monotonic() + patience
        running = sorted(self._running, key=lambda rank: rank.number)
        waits = [job_memory.wait_of(self._memory, rank.number) for rank in running]
        while time.monotonic() < last and any(
            wait is None and rank.runs() for wait, rank in zip(waits, running, strict=True)
        ):
            time.sleep(_PAUSE)
            waits = [job_memory.wait_of(self._memory, rank.number) for rank in running]
        for wait, rank in list(zip(waits, running, strict=True))[:_MOST_REPORTED]:
            did = "did not wait" if rank.runs() else "ended meanwhile"
            if wait is not None:
                did = f"waited in {waiting.words(wait)}"
            if rank.runs() and waiting.is_stopped(self._process(rank)):
                did = "is stopped" if wait is None else f"{did}, and is stopped"
            self._output.say(f"rank {rank.number} {did}")

    # -- ending --

    def _fail(self, code: int) -> None:
        if not self._code:
            self._code = code
        self._end_others(signal.SIGTERM)

    def _end_others(self, how: signal.Signals) -> None:
        self._ending = time.monotonic() + _GRACE
        self._send(how)

    def _send(self, how: signal.Signals) -> None:
        """Send it to all that runs; once the job fails, to what ended ranks have started, too."""
        for rank in self._ranks if self._code else self._running:
            rank.send(how)

    def _leaves(self) -> bool:
        """Return whether something that is to end with the job, as it fails, runs yet."""
        return self._code != 0 and any(rank.leaves() for rank in self._ranks)

    def _interrupted(self, *_: object) -> None:
        """End the job as Ctrl-C does: the terminal itself sends it to the group of the launcher."""
        self._interrupts += 1
        self._hurries = True
        self._code = self._code or 130
        if self._interrupts > 1:
            self._end_others(signal.SIGKILL)
            return
        now = time.monotonic()
        self._ending, self._repeat = now + _GRACE, now + _GRACE / 2
        self._interrupt(has_group=True)

    def _interrupt(self, *, has_group: bool) -> None:
        for rank in self._ranks:
            if rank.has_group == has_group:
                rank.send(signal.SIGINT)

    def _terminated(self, number: int, _: object) -> None:
        self._hurries = True
        self._code = self._code or 128 + number
        self._end_others(signal.SIGTERM)

    def _passed_on(self, number: int, _: object) -> None:
        for rank in self._running:
            rank.send(signal.Signals(number))

    def _stopped(self, number: int, _: object) -> None:
        """Stop the ranks, which have process groups of their own, and continue them."""
        self._passed_on(number, None)
        signals.stop_here()
        self._passed_on(signal.SIGCONT, None)


def main(arguments: list[str], prog: str = "shmnd mpiexec") -> int:
    """Run the launcher with a command line; return the exit code."""
    from shmnd.mpi.launcher import elsewhere
    from shmnd.mpi.launcher.options import parse

    options = parse(arguments, prog)
    if elsewhere.is_wanted(options.hosts):
        elsewhere.hand_over(options)
    return Job(options).run(leaves=True)
