# SPDX-License-Identifier: Apache-2.0
"""The rows of programs for mpi4py: every one has an answer, and every target a row."""

import os

import pytest

from shmnd_bench.measure.question import COLLECTIVES, Kind, Question
from shmnd_bench.peers.mpi import OpenMpi, ShmndMpi
from shmnd_bench.report.targets import (
    MPI_ARRAYS,
    MPI_COLLECTIVES,
    MPI_OBJECTS,
    MPI_PINGS,
    MPI_RANKS,
    MPI_WINDOW,
    mpi_targets,
)
from shmnd_bench.workers.harness import Stage

QUESTIONS = [*MPI_PINGS, *MPI_ARRAYS, MPI_WINDOW, *MPI_OBJECTS, *MPI_COLLECTIVES]


def test_each_question_is_for_one_number_of_ranks() -> None:
    subjects = [ShmndMpi(ranks=ranks) for ranks in MPI_RANKS]
    for question in QUESTIONS:
        assert [each.answers(question) for each in subjects].count(True) == 1, question.label


def test_every_target_names_subjects_that_answer_its_question() -> None:
    subjects = {
        each.name: each for kind in (ShmndMpi, OpenMpi) for each in map(kind().crowded, MPI_RANKS)
    }
    targets = mpi_targets()
    assert {target.question for target in targets} <= set(QUESTIONS)
    for target in targets:
        assert target.against is not None
        assert subjects[target.subject].answers(target.question), target.label
        assert subjects[target.against].answers(target.question), target.label


def test_labels_are_different() -> None:
    labels = [question.label for question in QUESTIONS]
    assert len(set(labels)) == len(labels)
    assert Question(Kind.PICKLED, 0).label == "small dict, one way"
    assert Question(Kind.BARRIER, 0).label == "Barrier"


@pytest.mark.parametrize("ranks", MPI_RANKS)
def test_ranks_answer_every_question_of_their_number(ranks: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with Stage(cpus) as stage:
        subject = ShmndMpi(ranks=ranks)
        subject.start(stage)
        for question in filter(subject.answers, QUESTIONS):
            if question.size <= 100_000:
                assert subject.measure(question, 3).seconds > 0, question.label
        subject.stop()
    assert ranks == 2 or all(
        question.kind in COLLECTIVES for question in filter(subject.answers, QUESTIONS)
    )
