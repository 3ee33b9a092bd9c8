# SPDX-License-Identifier: Apache-2.0
"""The C headers of the data plane, compiled and run without an interpreter.

Each `test_*.c` is a program of its own. It is built with the address and undefined-behaviour
sanitizers. Programs with threads are also built plain, since at full speed their threads meet at
other places, and with the thread sanitizer; `-m further` builds the others plain, too. Programs
that include the same header are compiled together, see `together.py`. Conventions of the headers
(labels, memory orders, lengths) are checked in their text.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from native import together

HERE = Path(__file__).parent
RING = HERE.parents[1] / "shmnd" / "ring"
SOURCES = {path.stem: path for path in HERE.rglob("test_*.c")}
PROGRAMS = sorted(SOURCES)
THREADED = [
    name for name in PROGRAMS if re.search("pthread_create|lanes.h", SOURCES[name].read_text())
]
HEADERS = sorted(RING.rglob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
FLAVOURS = {
    "plain": ["-O2"],
    "sanitized": ["-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    # The thread sanitizer does not model fences; the models in tests/model do.
    "threads": ["-O1", "-fsanitize=thread", "-Wno-tsan"],
}

# With one of these variables set, a run has no time limit.
ASKED_FOR = {"SHMND_HOSTILE_RUNS", "SHMND_ENDINGS"} & os.environ.keys()


def test_there_is_something_to_check() -> None:
    assert len(PROGRAMS) >= 5
    assert len(PROGRAMS) == len([*HERE.rglob("test_*.c")]), "two programs of one name"
    assert THREADED
    assert len(HEADERS) >= 14


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_check_of_a_program_is_run(program: str) -> None:
    """A function without arguments whose name occurs only once is missing in the table of tests."""
    source = SOURCES[program].read_text()
    checks = re.findall(r"^static void (\w+)\(void\)$", source, re.MULTILINE)
    assert checks
    assert not [name for name in checks if len(re.findall(rf"\b{name}\b", source)) < 2]


def build(source: Path, flavour: str, folder: Path) -> tuple[Path, str]:
    """Return the program, and the messages of the compiler if it failed."""
    binary = folder / f"{source.stem}-{flavour}"
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-g1", *WARNINGS, *FLAVOURS[flavour]]
    command += [f"-I{RING}", f"-I{HERE}", "-pthread", str(source)]
    built = subprocess.run(
        [*command, "-o", str(binary)], capture_output=True, text=True, check=False, timeout=500
    )
    return binary, built.stderr if built.returncode else ""


def units(programs: Iterable[str], flavour: str, folder: Path) -> dict[Path, list[str]]:
    """Return what to compile, and the programs in each, the largest one first."""
    sources = {name: SOURCES[name] for name in programs}
    shared = {name: path for name, path in sources.items() if together.can_share(path)}
    joined = folder / f"together-{flavour}.c"
    joined.write_text(together.unit(shared.values()))
    alone = {path: [name] for name, path in sources.items() if name not in shared}
    return {joined: [*shared], **alone} if shared else alone


@pytest.fixture(scope="module")
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], tuple[list[str], str]]:
    """Compile all programs that will be run beforehand, on all processors.

    For each: its command, and the messages of the compiler if it failed.
    """
    folder = tmp_path_factory.mktemp("native")
    cases = [
        (item.callspec.params["program"], item.callspec.params["flavour"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_program
    ]
    jobs = [
        (source, flavour, names)
        for flavour in FLAVOURS
        for source, names in units(
            [name for name, asked in cases if asked == flavour], flavour, folder
        ).items()
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda job: build(job[0], job[1], folder), jobs)
        return {
            (name, flavour): ([str(binary), *([name] if source != SOURCES[name] else [])], told)
            for (source, flavour, names), (binary, told) in zip(jobs, done, strict=True)
            for name in names
        }


@pytest.mark.timeout(600)  # the first one waits for all compilers
@pytest.mark.parametrize(
    ("program", "flavour"),
    [
        pytest.param(program, flavour, marks=pytest.mark.further)
        if flavour == "plain" and program not in THREADED
        else (program, flavour)
        for program in PROGRAMS
        for flavour in FLAVOURS
        # The thread sanitizer is of use only for programs with threads.
        if flavour != "threads" or program in THREADED
    ],
)
def test_program(
    built: dict[tuple[str, str], tuple[list[str], str]], program: str, flavour: str
) -> None:
    command, complaint = built[program, flavour]
    assert not complaint, complaint
    patience = None if ASKED_FOR else 130
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # The count is that of this source: a unit has several programs.
    tests = len(re.findall(r"\bTEST\(\w+\)", SOURCES[program].read_text()))
    assert tests
    assert re.search(rf"^{tests} tests passed$", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.soak
@pytest.mark.timeout(0 if ASKED_FOR else 900)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_ends_in_the_midst_of_it(flavour: str, tmp_path: Path) -> None:
    """Two runs at once for each processor, so that threads are preempted anywhere."""
    binary, complaint = build(SOURCES["test_threads"], flavour, tmp_path)
    assert not complaint, complaint
    rounds = int(os.environ.get("SHMND_ENDINGS", "200"))
    seed = int(os.environ.get("SHMND_ENDINGS_SEED", "1000"))

    def run(number: int) -> str:
        numbers = {"SHMND_ENDINGS": rounds, "SHMND_ENDINGS_SEED": seed + number * rounds}
        ran = subprocess.run(
            [binary, "in_the_midst"],
            capture_output=True, text=True, check=False, timeout=None if ASKED_FOR else 800,
            env=os.environ | {name: str(value) for name, value in numbers.items()},
        )  # fmt: skip
        return "" if ran.returncode == 0 else f"{numbers}: {ran.stdout}{ran.stderr}"

    workers = 2 * (os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        failures = [trouble for trouble in pool.map(run, range(workers)) if trouble]
    assert not failures, "\n".join(failures)


# Of ranks. Some declare functions that a later one defines.
ENGINES = sorted(
    path
    for room in ("transport", "collectives")
    for path in (RING.parent / "mpi" / room).rglob("*.h")
)


@pytest.mark.parametrize("header", [*HEADERS, *ENGINES], ids=lambda path: path.name)
def test_header_compiles_alone(header: Path, tmp_path: Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text(f'#include "{header}"\nint main(void) {{ return 0; }}\n')
    build = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", *WARNINGS, "-Wno-unused-variable", f"-I{RING}"]
    build.append(f"-I{RING.parent / 'mpi'}")
    if header in ENGINES:
        build += ["-w", "-Werror=implicit-function-declaration"]
    built = subprocess.run(
        [*build, "-c", str(source), "-o", str(tmp_path / "alone.o")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr


def test_every_sync_label_has_both_sides() -> None:
    labels: Counter[str] = Counter()
    for path in [*HEADERS, *RING.rglob("*.pyx")]:
        labels.update(re.findall(r"SYNC ([a-z-]+)", path.read_text()))
    assert labels
    alone = [label for label, times in labels.items() if times < 2]
    assert not alone


ORDERED = re.compile(
    r"shmnd_(?:(?:acquire|release)(?:32|64)|release_byte|byte_at|swap64|add64|set_bits|clear_bits"
    r"|store_then_load|loads_before|stores_before)\("
)


def test_every_order_has_a_label_or_a_reason() -> None:
    """The lines before it have a label, or the reason why no order is needed."""
    silent = []
    for path in HEADERS:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            said = " ".join(lines[max(0, number - 5) : number + 1])
            if ORDERED.search(line) and not re.search("SYNC [a-z]|needs no order", said):
                silent.append(f"{path.name}:{number + 1}: {line.strip()}")
    assert not [line for line in silent if not line.startswith("atomics.h")]


def test_memory_orders_are_spelled_in_one_file() -> None:
    spelled = {path.name for path in HEADERS if "memory_order_" in path.read_text()}
    assert spelled <= {"atomics.h"}


def test_functions_can_be_held_in_the_head() -> None:
    long = []
    for path in HEADERS:
        start, name = 0, ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.match(r"static (inline .*\w|__attribute__)\(", line):
                start, name = number, line
            if line == "}" and start and number - start > 60:
                long.append((path.name, name, number - start))
                start = 0
    assert not long
