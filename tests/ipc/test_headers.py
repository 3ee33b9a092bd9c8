# SPDX-License-Identifier: Apache-2.0
"""The C headers of `shmnd.ipc` alone: compiled without an interpreter, and under the sanitizers."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IPC = ROOT / "shmnd" / "ipc"
FOLDERS = (IPC, *(IPC / each for each in ("common", "queue", "topic/board")))
INCLUDES = [f"-I{path}" for path in (*FOLDERS, ROOT / "shmnd" / "ring", ROOT / "tests" / "native")]
PROGRAMS = sorted((HERE / "native").glob("test_*.c"))
HEADERS = sorted(IPC.rglob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
FLAVOURS = {
    "plain": ["-O2"],
    "sanitized": ["-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "threads": ["-O1", "-fsanitize=thread", "-Wno-tsan"],
}


def test_there_is_something_to_check() -> None:
    assert PROGRAMS
    assert len(HEADERS) >= 4


def _built(source: Path, flags: list[str], binary: Path) -> None:
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-g1", *WARNINGS, *flags, *INCLUDES]
    built = subprocess.run(
        [*command, "-pthread", str(source), "-o", str(binary)],
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_program(source: Path, flavour: str, tmp_path: Path) -> None:
    binary = tmp_path / "program"
    _built(source, FLAVOURS[flavour], binary)
    ran = subprocess.run([binary], capture_output=True, text=True, check=False, timeout=130)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^[1-9]\d* tests passed$", ran.stdout, re.MULTILINE)


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_every_check_of_a_program_is_run(source: Path) -> None:
    text = source.read_text()
    checks = re.findall(r"^static void (\w+)\(void\)$", text, re.MULTILINE)
    assert checks
    assert not [name for name in checks if len(re.findall(rf"\b{name}\b", text)) < 2]


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_header_compiles_alone(header: Path, tmp_path: Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text(f'#include "{header}"\nint main(void) {{ return 0; }}\n')
    _built(source, ["-c", "-Wno-unused-variable"], tmp_path / "alone.o")


@pytest.mark.parametrize(
    "header", [each for each in HEADERS if each.name != "futex.h"], ids=lambda path: path.name
)
def test_header_is_free_of_the_interpreter_and_the_system(header: Path) -> None:
    text = header.read_text()
    assert "memory_order_" not in text
    assert not re.search(r"#include.*(Python|stdlib|unistd|sys/)|malloc\(|syscall\(", text)


def test_every_sync_label_has_both_sides() -> None:
    labels: Counter[str] = Counter()
    for path in HEADERS:
        labels.update(re.findall(r"/\*[^/]*?SYNC ([a-z-]+)", path.read_text(), re.DOTALL))
    assert labels
    assert not [label for label, times in labels.items() if times < 2]


ORDERED = re.compile(
    r"shmnd_(?:(?:acquire|release|swap)(?:32|64)|gate_swap|add64|store_then_load)\("
)


def test_every_order_has_a_label_or_a_reason() -> None:
    silent = []
    for path in HEADERS:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            said = " ".join(lines[max(0, number - 5) : number + 1])
            declared = line.startswith("static")
            explained = re.search("SYNC [a-z]|needs no order|return shmnd_swap32", said)
            if ORDERED.search(line) and not declared and not explained:
                silent.append(f"{path.name}:{number + 1}: {line.strip()}")
    assert not silent
