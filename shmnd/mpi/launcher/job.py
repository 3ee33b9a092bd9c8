# SPDX-License-Identifier: Apache-2.0
"""One job: its start, and what happens from then until its end.

The launcher ends all ranks when one fails. The parts of a job are objects of their own: its memory,
its processes, its output, the waits of its ranks, and its ending.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from pathlib import Path
from typing import Final

from shmnd.common.streams import duplicate
from shmnd.mpi.launcher import environment, refusals, waiting
from shmnd.mpi.launcher.ending import Ending
from shmnd.mpi.launcher.memory import Memory
from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.launcher.output import Output, OutputError, RankPipe
from shmnd.mpi.launcher.processes import Processes
from shmnd.mpi.launcher.rank import Rank
from shmnd.mpi.launcher.recovery import Recovery
from shmnd.mpi.launcher.start import Start
from shmnd.mpi.launcher.waits import Waits

_POLL_SECONDS: Final = 0.2
_LAST_POLL_SECONDS: Final = 0.02
"""The same when all ranks have ended, and only what they have started has not."""

_PATIENCE: Final = 0.5
"""Seconds in which ranks may begin to wait for one that has died."""


class Job:
    """The ranks of one command."""

    def __init__(self, options: JobOptions) -> None:
        self._options: Final = options
        self._selector: Final = selectors.DefaultSelector()
        self._output: Final = Output(self._selector)
        self._memory: Final = Memory()
        self._processes: Final = Processes(options, self._selector)
        self._ending: Final = Ending(self._processes)
        self._waits: Final = Waits(self._memory, self._processes, self._output)
        self._recovery: Recovery | None = None
        self._succeeded = False
        self._worst = 0

    # -- starting --

    def run(self, *, exits: bool = False) -> int:
        """Start all ranks, wait for all of them, and return the exit code of the job.

        This process `exits` with that code: a later signal ends it at once, and with the same.
        """
        self._warn()
        taken = self._ending.take_signals()
        try:
            self._start()
            self._watch_to_end()
        except BaseException:
            self._ending.code = self._ending.code or 1
            raise
        finally:
            self._ending.send(signal.SIGKILL)
            try:
                with contextlib.suppress(BrokenPipeError, OutputError):
                    self._output.finish(self._output_timed_out)
            finally:
                self._close()
                if exits:
                    taken.end_at_once(self._exit_code())
                else:
                    taken.give_back()
        return self._exit_code()

    def _warn(self) -> None:
        options = self._options
        if options.note:
            self._output.say(options.note)
        if self._processes.crowded and not options.oversubscribe:
            unbound = "" if options.bind == "core" else " and nothing is bound"
            self._output.say(
                f"{options.ranks} ranks on {len(self._processes.cores)} cores: they take turns"
                f"{unbound}; --oversubscribe says that it is meant so"
            )
        if option := environment.hidden_by(options.command):
            self._output.say(
                f"{Path(options.command[0]).name} {option} ignores PYTHONPATH, by which the ranks "
                "find this mpi4py; with an installed one each is a job of one rank"
            )

    def _exit_code(self) -> int:
        return self._ending.code or (0 if self._succeeded else self._worst)

    def _close(self) -> None:
        self._processes.close()
        if self._recovery is not None:
            self._recovery.close()
        self._memory.close()
        self._selector.close()

    def _start(self) -> None:
        options = self._options
        segment = self._memory.create(options)
        if options.recovery:
            self._recovery = Recovery(segment, self._selector)
        passed = -1
        try:
            refusals.refuse_missing_script(options)
            # A copy for the ranks: a child that is forked off closes that of the segment.
            passed = duplicate(segment.fd)
            self._memory.lay_out(options.ranks, self._processes.crowded)
            for number in range(options.ranks):
                if self._ending.has_begun():
                    return  # by a signal
                self._start_rank(number, passed)
        except OSError as exc:
            words, code = refusals.explain(exc, options)
            self._output.say(words)
            raise SystemExit(code) from exc
        finally:
            if passed >= 0:
                os.close(passed)

    def _start_rank(self, number: int, memory: int) -> None:
        agreements = None if self._recovery is None else self._recovery.connect(number)
        rank = self._processes.start(number, memory, agreements)
        if agreements is not None:
            agreements.close()
        if self._ending.has_begun():  # a signal came before it could be passed on to this rank
            rank.send(signal.SIGTERM)
        out, err = rank.process.stdout, rank.process.stderr
        if out is not None and err is not None:
            self._output.show(out.fileno(), err.fileno(), number)

    # -- watching --

    def _watch_to_end(self) -> None:
        """Watch the ranks. Where their output cannot be written, the job fails.

        Its reader may have ended, or the disk may be full. A job that fails already, by a signal
        for example, does so without the output.
        """
        while True:
            try:
                self._watch()
                return
            except BrokenPipeError:  # once for each stream
                self._output_failed("the reader of the output has ended")
            except OutputError as error:
                self._output_failed(f"the output cannot be written: {error}")

    def _output_failed(self, why: str) -> None:
        if not self._ending.code:
            ranks = "; the ranks are ended" if self._processes.running else ""
            self._output.say(f"{why}{ranks}")
            self._ending.fail(1)

    def _watch(self) -> None:
        limit = self._options.timeout
        last = None if limit is None else time.monotonic() + limit
        ending, running = self._ending, self._processes.running
        start = Start(self._processes, self._memory, self._output)
        while running or self._output.is_open() or ending.has_more_to_end():
            self._handle_events()
            self._processes.look_at_groups()
            if last is not None and time.monotonic() > last and not ending.has_begun():
                self._end_by_limit()
            if not ending.has_begun():
                start.show()
            if not ending.has_begun() and self._waits.end_endless(self._recovery):
                ending.fail(1)
            takes_more = self._output.waits() and not ending.hurries
            if ending.advance() and not running and not takes_more:
                self._output.take_last()
                self._output.finish(self._output_timed_out)
                return

    def _end_by_limit(self) -> None:
        seconds = self._options.timeout
        self._output.say(f"the job has run for {seconds} seconds, the limit of --timeout")
        self._waits.report(0.0)  # those of a deadlock have lasted, and are known
        self._ending.fail_in_haste(124)

    def _handle_events(self) -> None:
        """Wait a short time for ends, messages and output of ranks, and handle them."""
        seconds = _POLL_SECONDS if self._processes.running else _LAST_POLL_SECONDS
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, Rank):
                self._ended(key.data)
            elif isinstance(key.data, int) and self._recovery is not None:
                self._recovery.move(key.data)
            elif isinstance(key.data, RankPipe):
                self._output.read(key.data)
        self._output.write()

    def _output_timed_out(self) -> bool:
        """Return whether no reader took the last output until the end of a job that hurries."""
        ending = self._ending
        return ending.hurries and (not ending.has_begun() or ending.is_over())

    # -- the end of a rank --

    def _ended(self, rank: Rank) -> None:
        self._processes.take_out(rank)
        rank.ended = time.monotonic()
        if self._waits.was_released(rank):
            rank.ended -= waiting.ENDLESS_SECONDS  # that wait was in vain before
        self._memory.forget_process(rank)  # while no other has its number
        code = rank.process.wait()
        self._memory.leave(rank)
        if not self._processes.running:
            self._ending.begin()
        if self._recovery is not None:
            self._recovery.ended(rank.number, code)
        if code == 0:
            self._ended_well(rank)
        elif not self._ending.code:
            self._failed(rank, code if code > 0 else 128 - code)

    def _ended_well(self, rank: Rank) -> None:
        self._succeeded = True
        verdict = self._waits.verdict_of(rank)
        if verdict is not None and not self._ending.code:
            self._output.say(verdict)
            self._ending.fail(1)

    def _failed(self, rank: Rank, code: int) -> None:
        """End the job for a rank that has failed; one with recovery continues."""
        if self._recovery is not None and not self._memory.is_aborted():
            self._worst = self._worst or code
            self._output.say(f"{rank.end_of()}; the others continue")
            return
        if len(self._processes.ranks) > 1 or code > 128:  # an only rank ends as its program does
            others = "; the others are ended" if self._processes.running else ""
            self._output.say(f"{rank.end_of()}{others}")
            self._waits.report(_PATIENCE)
        self._ending.fail(code)


def main(
    arguments: list[str],
    prog: str = "shmnd mpiexec",
) -> int:
    """Run the launcher with a command line; return the exit code."""
    from shmnd.mpi.launcher.hosts.allocation import is_elsewhere
    from shmnd.mpi.launcher.options import parse

    options = parse(arguments, prog)
    if is_elsewhere(options.hosts, allocated=options.allocated):
        from shmnd.mpi.launcher.hosts.elsewhere import hand_over

        hand_over(options)
    return Job(options).run(exits=True)
