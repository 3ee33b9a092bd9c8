# SPDX-License-Identifier: Apache-2.0
"""Messages that prove themselves, for long: none lost, doubled, torn or out of order.

What the processes hold of the system is the same at the end as when they were warm. The long run
is `python tests/soak/driver.py --messages 1000000000`; here it is cut short.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

from soak.build import build
from soak.driver import Plan, Totals, figures, run, settled

SEED = int(os.environ.get("SHMND_SEED", "0")) or random.SystemRandom().getrandbits(24)
MIB = 1 << 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("soak")))


def check(totals: list[Totals]) -> None:
    """Every message came, and nothing that is held has grown."""
    print(figures(totals))
    one, other = totals
    assert one.sent == other.received
    assert other.sent == one.received
    assert one.churned == other.churned > 0, "connections in addition to the streams"
    for each in totals:
        warm, end = settled(each)
        assert end.descriptors <= warm.descriptors + 3, "a connection that is being made has some"
        assert end.mappings <= warm.mappings + 8
        assert end.private <= warm.private + 4 * MIB


@pytest.mark.slow
@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("connections", "seconds"),
    [(64, 8.0), (3, 5.0), pytest.param(64, 50.0, marks=pytest.mark.soak)],
)
def test_a_while(made: str, connections: int, seconds: float) -> None:
    print(f"seed: SHMND_SEED={SEED}")
    check(run(Plan(made, SEED, connections, seconds=seconds)))


@pytest.mark.soak
def test_a_thousand_million(made: str) -> None:
    print(f"seed: SHMND_SEED={SEED}")
    totals = run(Plan(made, SEED, messages=10**9))
    check(totals)
    assert sum(each.received for each in totals) >= 10**9


def test_the_proof_detects_each_fault(made: str, tmp_path: Path) -> None:
    """One wrong byte, length or number is noticed: the loop that proves is proven itself."""
    source = tmp_path / "proof.c"
    source.write_text(PROOF)
    here = Path(__file__).parent
    ring = here.parents[1] / "shmnd" / "ring"
    binary = tmp_path / "proof"
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", f"-I{here}", f"-I{ring}", str(source)]
    subprocess.run([*command, "-o", str(binary)], check=True, timeout=100)
    subprocess.run([str(binary)], check=True, timeout=100)


PROOF = """
#include "streams.h"

int main(void)
{
    static uint8_t bytes[1 << 16];
    for (uint64_t number = 0; number < 20000; number++) {
        uint64_t h = soak_mix(77 + number);
        uint32_t size = soak_size(h, sizeof bytes - 8);
        soak_fill(bytes, h, number, size);
        if (!soak_right(bytes, h, number, size))
            return 1;
        if (!size)
            continue;
        bytes[h % size] ^= (uint8_t)(1 << number % 8);
        if (soak_right(bytes, h, number, size))
            return 2;
        bytes[h % size] ^= (uint8_t)(1 << number % 8);
        if (size >= 8 && soak_right(bytes, h, number + 1, size))
            return 3;
        if (size >= 16 && soak_right(bytes, soak_mix(78 + number), number, size))
            return 4;
    }
    return 0;
}
"""
