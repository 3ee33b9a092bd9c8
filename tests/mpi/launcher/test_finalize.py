# SPDX-License-Identifier: Apache-2.0
"""A rank at its end stays for what it began, whether its program waits for it or not."""

import pytest

from mpi.launcher.jobs import UNTIL_WAITS, launch

BEGIN = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, last = comm.rank, comm.size - 1
mine, come = np.full(300_000, 1 + rank, "i4"), np.zeros(300_000, "i4")
small = np.zeros(1, "i4")
"""


def run(program: str, ranks: int = 2, expect: int = 0, *options: str) -> tuple[str, str]:
    """Run a program as ranks of one job; return what it wrote."""
    ran = launch(ranks, *options, "-c", BEGIN + program, expect=expect)
    return ran.stdout, ran.stderr


KEPT = {
    "Isend": ("comm.Isend(mine, 1, 3)", "comm.Recv(come, 0, 3)"),
    "isend": ("comm.isend(mine, 1, 3)", "come[:] = comm.recv(None, 0, 3)"),
    "Send_init": ("comm.Send_init(mine, 1, 3); kept.Start()", "comm.Recv(come, 0, 3)"),
    "Psend_init": (
        "comm.Psend_init(mine, 1, 1, 3); kept.Start(); kept.Pready(0)",
        "kept = comm.Precv_init(come, 1, 0, 3); kept.Start(); kept.Wait()",
    ),
    "Ibcast": ("comm.Ibcast(mine, 0)", "comm.Ibcast(come, 0).Wait()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", KEPT)
def test_a_message_arrives_although_its_program_keeps_the_request_and_ends(call: str) -> None:
    sends, receives = KEPT[call]
    said, _ = run(f"""
if rank == 0:
    kept = {sends}
else:
    time.sleep(0.5)
    {receives}
    assert (come == 1).all()
    print("well")
""")
    assert said == "well\n"


LEFT = {
    "freed": "comm.Irecv(come, {source}, 3).Free()",
    "dropped": "comm.Irecv(come, {source}, 3)",
    "kept": "kept = comm.Irecv(come, {source}, 3)",
    "of an object": "kept = comm.irecv(source={source}, tag=3)",
    "persistent": "kept = comm.Recv_init(come, {source}, 3); kept.Start()",
}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["1", "MPI.ANY_SOURCE"])
@pytest.mark.parametrize("receive", LEFT)
def test_a_receive_that_the_program_left_gets_its_message(receive: str, source: str) -> None:
    send = "comm.send(mine, 0, 3)" if receive == "of an object" else "comm.Send(mine, 0, 3)"
    said, _ = run(f"""
if rank == 0:
    {LEFT[receive].format(source=source)}
else:
    time.sleep(0.5)
    {send}
    print("well")
""")
    assert said == "well\n"


def test_finalize_completes_a_receive_while_it_waits() -> None:
    said, _ = run("""
if rank == 0:
    kept = comm.Irecv(come, 1, 3)
    MPI.Finalize()
    assert (come == 2).all()
    print("well")
else:
    time.sleep(0.3)
    comm.Send(mine, 0, 3)
""")
    assert said == "well\n"


ENDS = {
    "each of the other": "kept = comm.Irecv(come, 1 - rank, 3)",
    "any of any": "kept = comm.Irecv(come, MPI.ANY_SOURCE, 3)",
    "from itself": "kept = comm.Irecv(come, rank, 3)",
    "of one that ends without a call": """
if rank: os._exit(0)
kept = comm.Irecv(come, 1, 3)""",
    "of one that ends later without a call": """
if rank:
    time.sleep(0.5)
    os._exit(0)
kept = comm.Irecv(come, MPI.ANY_SOURCE, 3)""",
    "collectives that do not belong together": """
several = [comm.Dup(), comm.Dup()]
kept = several[rank].Ibarrier(), several[rank].Iallreduce(mine, come)""",
    "a collective that one does not join": "kept = comm.Ibarrier() if rank else None",
}


@pytest.mark.parametrize("left", ENDS)
def test_requests_that_cannot_end_hold_up_no_rank_when_all_are_at_their_end(left: str) -> None:
    run(ENDS[left])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 7])
def test_collectives_that_a_rank_left_do_not_hold_up_the_other_ranks(ranks: int) -> None:
    said, _ = run(
        """
if rank < last:
    kept = comm.Ibarrier(), comm.Iallreduce(mine, come), comm.Ibcast(come[:9], last)
else:
    time.sleep(3)
    comm.Ibarrier().Wait()
    comm.Iallreduce(mine, come).Wait()
    assert (come == sum(range(comm.size + 1))).all()
    print("well")
""",
        ranks,
    )
    assert said == "well\n"


STAYS = {
    "for a message": ("Irecv(come, MPI.ANY_SOURCE, 3)", "comm.Ssend(small, 0, 9)", 0),
    "for a collective": ("Ibarrier()", "comm.recv(source=0, tag=9)", 0),
    "with an exit code": ("Irecv(come, MPI.ANY_SOURCE, 3)", "comm.recv(source=0, tag=9)", 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("stays", STAYS)
def test_a_wait_for_a_rank_that_stays_for_others_ends_the_job(stays: str) -> None:
    left, call, code = STAYS[stays]
    _, errors = run(
        f"""
if rank:
    {call} if rank == 1 else time.sleep(30)
else:
    kept = comm.{left}
    sys.exit({code})
""",
        ranks=3,
        expect=code or 1,
    )
    if code:
        assert f"ended with exit code {code}" in errors
    else:
        assert "rank 0 has ended, and rank 1 waits for it in" in errors
    assert "tag 9" in errors


@pytest.mark.slow
def test_the_exit_code_of_a_rank_whose_send_no_rank_receives_is_that_of_the_job() -> None:
    run(
        """
if not rank:
    comm.Isend(mine, 1, 3)
    sys.exit(7)
""",
        expect=7,
    )


def test_a_death_ends_a_job_whose_rank_stays() -> None:
    _, errors = run(
        UNTIL_WAITS
        + """
if rank:
    until_waits(0, "Finalize")
    os.kill(os.getpid(), signal.SIGKILL)
kept = comm.Irecv(come, 1, 3)
""",
        expect=137,
    )
    assert "was killed by SIGKILL" in errors
    assert "rank 0 waited in Finalize for rank 1, tag 3" in errors


def test_a_death_keeps_no_rank_of_a_job_with_recovery() -> None:
    run(
        UNTIL_WAITS
        + """
if rank:
    until_waits(0, "Finalize")
    os.kill(os.getpid(), signal.SIGKILL)
kept = [comm.Irecv(come, source, 3) for source in (1, MPI.ANY_SOURCE)]
""",
        2,
        0,
        "--enable-recovery",
    )


def test_an_exception_that_the_program_does_not_catch_ends_its_rank_at_once() -> None:
    _, errors = run(
        """
kept = comm.Irecv(come, 1 - rank, 3)
if rank:
    raise ValueError("of the program")
time.sleep(60)
""",
        expect=1,
    )
    assert "of the program" in errors
    assert "rank 1 (process" in errors
