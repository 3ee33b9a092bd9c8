# SPDX-License-Identifier: Apache-2.0
"""The sections of the report: their questions and subjects, and the layout of their answers."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..ipc import targets as ipc_targets
from ..measure.how import How, Memory, Wait
from ..measure.question import Kind, Question, format_size
from ..peers import catalogue, mpi_ranks
from ..peers.mpi import Mpi, ShmndMpi
from ..peers.two_sided import TwoSided
from ..report import comparison, mpi_plot
from ..report.figures import LATENCY_HEADINGS, latency_cells
from ..report.plot import Panel
from ..report.table import Notes, markdown, number
from ..report.targets import (
    CORE,
    HEADINGS,
    IDLE,
    MEETING_OF,
    MPI_ARRAYS,
    MPI_BETWEEN,
    MPI_COLLECTIVES,
    MPI_LARGE_OBJECT,
    MPI_OBJECTS,
    MPI_PINGS,
    MPI_RANKS,
    MPI_STREAMS,
    MPI_WINDOW,
    SEND,
    Verdict,
    about_floors,
    judge,
    mpi_targets,
    summary,
)
from ..subjects.connecting import Connecting
from ..subjects.many import Many
from ..subjects.mesh import Mesh
from ..subjects.own import Shmnd, ShmndCrowd, ShmndNative, ShmndUvloop
from ..subjects.registration import Registrar
from ..subjects.rounds import Answer, Answers, Record
from ..subjects.subject import Subject
from ..workers.harness import Stage
from . import connections, ipc
from .compare import verdicts
from .notify import RATE as WAKING_RATE

_LATENCY_SIZES: Final = tuple(8 << (3 * step) for step in range(6))
_STREAM_SIZES: Final = (8, 512, 4096, 32768, 262144, 2 << 20)
_PROCESSES: Final = (2, 4, 8)
_CROWDS: Final = (10, 100, 1000)


@dataclasses.dataclass(slots=True)
class Taken:
    """The results of a section."""

    answers: Answers
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Results that are not answers to a question."""


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """One part of the report."""

    title: str
    text: str
    ask: Callable[[argparse.Namespace], tuple[list[Question], list[Subject]]]
    lines: Callable[[Taken], list[str]]
    record: Record = Record.NEVER
    share: float = 1.0
    """The fraction of the usual measuring time that each measurement of the section takes."""
    picture: str = ""
    """Name of a plot of its answers."""
    panels: tuple[Panel, ...] = ()
    """The panels of the plot; none: the usual ones."""
    columns: int = 0
    """So many panels are next to each other; 0: all."""
    once: Callable[[Stage, Callable[[str], None]], dict[str, Any]] | None = None
    """Measures facts that are taken once, after the rounds."""


def _own(args: argparse.Namespace) -> list[Subject]:
    return [Shmnd(args.namespace), ShmndNative(args.namespace)]


def _ask_core(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    questions = [*CORE, dataclasses.replace(SEND, idle=IDLE)]
    own = [*_own(args), ShmndUvloop(args.namespace), ShmndCrowd(args.namespace)]
    return questions, [*own, *catalogue.chosen(args)]


def _judged_and_whole(
    taken: Taken, judged: list[Verdict], headings: Sequence[str] = comparison.HEADINGS
) -> list[str]:
    """Return the verdicts of a section, and then all that it measured in the columns named."""
    notes = Notes()
    questions = list(dict.fromkeys(answer.question for answer in taken.answers))
    figures = comparison.rows(taken.answers, questions, notes)
    return [
        "### Targets",
        markdown(HEADINGS, [verdict.cells(notes) for verdict in judged]),
        *about_floors(judged),
        summary(judged).capitalize() + ".",
        "### Every figure",
        markdown(headings, [row[: len(headings)] for row in figures]),
        *notes.paragraphs(),
    ]


def _render_core(taken: Taken) -> list[str]:
    return _judged_and_whole(
        taken, verdicts(taken.answers, IDLE, taken.facts.get("bytes_per_idle"))
    )


def _ask_sizes(
    kind: Kind, sizes: Sequence[int]
) -> Callable[[argparse.Namespace], tuple[list[Question], list[Subject]]]:
    def ask(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
        questions = [Question(kind, size) for size in sizes]
        return questions, [*_own(args), *catalogue.chosen(args)]

    return ask


def _render_grid(taken: Taken) -> list[str]:
    """Return a table of medians with a row for each subject and a column for each size."""
    notes = Notes()
    answers = list(taken.answers)
    questions = list(dict.fromkeys(answer.question for answer in answers))
    rows = []
    for subject in dict.fromkeys(answer.subject for answer in answers):
        cells = [subject]
        for question in questions:
            answer = taken.answers.get(subject, question)
            cells.append(_median(answer, notes) if answer else "")
        rows.append(cells)
    headings = ["subject", *(format_size(question.size) for question in questions)]
    unit = "MB/s" if questions and questions[0].is_stream else "µs, one way"
    return [f"Medians, in {unit}.", markdown(headings, rows), *notes.paragraphs()]


def _median(answer: Answer, notes: Notes) -> str:
    if answer.spread is None:
        return notes.refer(answer.reason)
    seconds = answer.spread.median
    if answer.question.is_stream:
        return number(answer.question.size / seconds / 1e6)
    return number(seconds * 1e6)


def _ask_verbs(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    kinds = (Kind.PINGPONG, Kind.WRITE, Kind.READ)
    return [Question(kind, size) for kind in kinds for size in (40, 4096)], _own(args)


def _ask_waking(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    ways = (Wait.EVENT, Wait.NOTIFY, Wait.ASYNCIO)
    questions = [
        Question(Kind.PINGPONG, SEND.size, how=How(wait=way, rate=WAKING_RATE)) for way in ways
    ]
    return questions, [Shmnd(args.namespace), *_sleeping(args)]


def _sleeping(args: argparse.Namespace) -> list[Subject]:
    peers = catalogue.chosen(args)
    return [peer for peer in peers if isinstance(peer, TwoSided) and peer.sleeps]


def _ask_setup(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    sizes = (4096, 1 << 20)
    kinds = (Kind.REGISTER, Kind.DEREGISTER)
    questions = [Question(kind, size) for kind in kinds for size in sizes]
    subjects: list[Subject] = [Connecting(args.namespace), Registrar(args.namespace)]
    return [Question(Kind.CONNECT, 0), *questions], subjects


def _ask_connections(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    return connections.asked(Many(args.namespace), MEETING_OF, args.namespace)


def _render_connections(taken: Taken) -> list[str]:
    return _judged_and_whole(
        taken, connections.verdicts(taken.answers, taken.facts.get("bytes_each", {}))
    )


def _ask_scale(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    crowds = [dataclasses.replace(SEND, idle=number) for number in _CROWDS]
    meshes = [Question(Kind.MESH, SEND.size, how=How(processes=n)) for n in _PROCESSES]
    subjects: list[Subject] = [
        ShmndCrowd(args.namespace),
        *(Mesh(n, args.namespace) for n in _PROCESSES),
    ]
    return [*crowds, *meshes], subjects


_MPI_QUESTIONS: Final = (
    *sorted(
        (*MPI_PINGS, *MPI_ARRAYS, *MPI_STREAMS, *MPI_BETWEEN),
        key=lambda question: (question.kind, question.how.memory is Memory.NUMPY, question.size),
    ),
    MPI_WINDOW,
    *MPI_OBJECTS,
    MPI_LARGE_OBJECT,
    *MPI_COLLECTIVES,
)


def _ask_mpi(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    pairs = [ShmndMpi(), *(peer for peer in catalogue.chosen(args) if isinstance(peer, Mpi))]
    crowds = [pair.crowded(ranks) for ranks in MPI_RANKS if ranks != 2 for pair in pairs]
    return list(_MPI_QUESTIONS), [*pairs, *crowds]


def _render_mpi(taken: Taken) -> list[str]:
    judged = [judge(target, taken.answers) for target in mpi_targets()]
    return [*mpi_ranks.paragraphs(taken.facts), *_judged_and_whole(taken, judged)]


def _ask_ipc(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
    return ipc_targets.questions(), ipc.subjects_of(args.namespace)


def _render_ipc(taken: Taken) -> list[str]:
    judged = ipc_targets.verdicts(taken.answers, ipc_targets.questions())
    return _judged_and_whole(taken, judged, comparison.HEADINGS[:4])


def _render_times(taken: Taken) -> list[str]:
    notes = Notes()
    rows = [
        [answer.question.label, answer.subject, *latency_cells(answer, notes)[1:]]
        for answer in taken.answers
    ]
    headings = ("what", "subject", *LATENCY_HEADINGS[1:])
    return [markdown(headings, rows), *notes.paragraphs()]


SECTIONS: Final = {
    "core": Section(
        "Side by side",
        "Each question is measured for every subject in turn, round after round. A figure is the "
        "median of the rounds, with the least and the greatest in brackets. A ratio compares two "
        "figures of the same round; in brackets is the interval between two of the rounds that "
        "encloses the true median with a probability of 95 % (of up to eight rounds the least and "
        "the greatest, of fifteen the fourth and the twelfth). A verdict is *unsure* if that "
        "interval contains the bound. If its ends differ by more than a factor of two, there is no "
        "verdict: the row is too noisy.",
        _ask_core,
        _render_core,
    ),
    "latency": Section(
        "Latency over size",
        "Ping-pong, half of a round trip. The percentiles in the plot are those of single round "
        "trips of the smallest size, which are timed separately from the means.",
        _ask_sizes(Kind.PINGPONG, _LATENCY_SIZES),
        _render_grid,
        Record.APART,
        share=0.4,
        picture="latency.png",
    ),
    "bandwidth": Section(
        "Bandwidth over size",
        "One direction; each transport has the number of messages in flight that suits it best.",
        _ask_sizes(Kind.STREAM, _STREAM_SIZES),
        _render_grid,
        share=0.4,
        picture="bandwidth.png",
    ),
    "mpi": Section(
        "Programs for mpi4py",
        "The same program of mpi4py under `shmnd mpiexec`, on Open MPI and on MPICH: blocking Send "
        "and Recv of two ranks, streams, objects, windows of messages that do not block, and "
        "collectives of two and of four ranks, of which those beyond the cores share them. The "
        "time of a collective is that of rank 0. Messages are bytearrays, in private memory; rows "
        "of numpy memory, and collectives, have arrays of numpy, which under shmnd lie in memory "
        "that all ranks map. In the plot, a colour is an implementation.",
        _ask_mpi,
        _render_mpi,
        share=0.15,
        picture="mpi.png",
        panels=mpi_plot.PANELS,
        columns=mpi_plot.COLUMNS,
        once=mpi_ranks.measure,
    ),
    "ipc": Section(
        "Topics and queues",
        "`shmnd.ipc` from Python, with the libraries that such programs use. A value of up to 40 "
        "bytes is sent and read; larger ones are loaned, sent and received, and not "
        "read. With arrays at both ends, one element is written and one is read. Arrays built in "
        "place are filled by the sender, byte by byte. A subscriber that sleeps says when it had "
        "the value, on the clock that all processes share. `ipc.Queue` and `multiprocessing.Queue` "
        "are one program with another import.",
        _ask_ipc,
        _render_ipc,
        share=0.4,
        picture="ipc.png",
    ),
    "verbs": Section(
        "Send, Write and Read",
        "Percentiles of single round trips in µs, one way.",
        _ask_verbs,
        _render_times,
        Record.ALWAYS,
    ),
    "waking": Section(
        "Waking up",
        "A thousand ping-pongs a second between two processes that both sleep: in a wait that "
        "sleeps at once, on the overlapped operation of a Notify, and in an event loop. Times are "
        "in µs for a round trip, in which both processes wake up one after the other. Pipe and "
        "ZeroMQ block in their call.",
        _ask_waking,
        _render_times,
        Record.ALWAYS,
    ),
    "setup": Section(
        "Setting up",
        "From Connect to the end of CompleteConnect, and Register and Deregister. Times are in µs.",
        _ask_setup,
        _render_times,
        Record.ALWAYS,
    ),
    "connections": Section(
        "Connections by the hundred",
        "The time of one of many connections that a process makes at once with another one, and "
        "the time in which all pairs of 32 processes connect, from the first signal until "
        "everyone is connected. The broker is part of it; ending the connections is not. 256 "
        "idle connections stand meanwhile.",
        _ask_connections,
        _render_connections,
    ),
    "scale": Section(
        "Many connections, many processes",
        "One connection among idle ones on the same completion queue; and all to all, where a "
        "round is one message from each process to each other. Times are in µs.",
        _ask_scale,
        _render_times,
        Record.ALWAYS,
    ),
}
