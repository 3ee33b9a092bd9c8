# SPDX-License-Identifier: Apache-2.0
"""The headers of the data plane under a fuzzer that is led by coverage.

What it found worth keeping lies in `corpus` and is run each time, with gcc's sanitizers. Where
clang is installed it also looks for more: shortly here, and as long as one likes by

    SHMND_FUZZ_SECONDS=900 python -m pytest tests/fuzz -m soak -s
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RING = HERE.parents[1] / "shmnd" / "ring"
CORPUS = sorted((HERE / "corpus").iterdir())
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-g1", "-O1", "-fno-sanitize-recover=all", f"-I{RING}"]


def build(compiler: str, sanitizers: str, binary: Path, *more: str) -> None:
    source = str(HERE / "fuzz_peer.c")
    command = [compiler, *FLAGS, f"-fsanitize={sanitizers}", *more, "-pthread", source]
    built = subprocess.run(
        [*command, "-o", str(binary)], capture_output=True, text=True, check=False, timeout=500
    )
    assert built.returncode == 0, built.stderr


def fuzz(tmp_path: Path, *bounds: str, timeout: float) -> str:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed; on Debian: apt install clang")
    build("clang", "fuzzer,address,undefined", tmp_path / "fuzzer")
    found = tmp_path / "found"
    found.mkdir()
    command = [tmp_path / "fuzzer", *bounds, "-max_len=2048", f"-artifact_prefix={tmp_path}/"]
    ran = subprocess.run(
        [*command, found, HERE / "corpus"],
        capture_output=True, text=True, check=False, timeout=timeout,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stderr


@pytest.mark.timeout(600)  # the compiler's, on a busy machine
def test_the_corpus_passes(tmp_path: Path) -> None:
    assert CORPUS
    build("gcc", "address,undefined", tmp_path / "replay", "-DSHMND_REPLAY")
    ran = subprocess.run(
        [tmp_path / "replay", *CORPUS], capture_output=True, text=True, check=False, timeout=100
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(CORPUS)} inputs replayed" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_new_is_found_shortly(tmp_path: Path) -> None:
    assert "Done" in fuzz(tmp_path, "-runs=2000", "-seed=1", timeout=110)


@pytest.mark.soak
def test_nothing_new_is_found_at_length(tmp_path: Path) -> None:
    seconds = int(os.environ.get("SHMND_FUZZ_SECONDS", "900"))
    said = fuzz(tmp_path, f"-max_total_time={seconds}", timeout=seconds + 200)
    print(said[-600:])
    assert "Done" in said
