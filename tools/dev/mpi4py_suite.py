# SPDX-License-Identifier: Apache-2.0
"""mpi4py's own test suite, unmodified, under `shmnd mpiexec`: `./run mpi4py-suite`.

The source distribution comes from the package index and is unpacked in build/; nothing of it is
kept in the project. Every module runs in a job of its own, so that one that hangs ends alone.
"""

import argparse
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "mpi4py-suite"
WANTED: Final = "mpi4py==4.1.*"
QUICK: Final = (
    "status", "group", "info", "op", "errhandler", "attributes", "request", "p2p_buf", "p2p_obj",
    "cco_obj", "msgspec", "buffer", "pickle", "comm", "environ", "objmodel", "subclass", "handle",
    "exceptions", "package", "toplevel", "doc",
)  # fmt: skip
LEFT_OUT: Final = {
    "spawn": "a job has the ranks that it was started with",
    "dynproc": "a job has the ranks that it was started with",
    "file": "files are read and written by Python",
    "io": "files are read and written by Python",
    "cffi": "there is no C interface",
    "ctypes": "there is no C interface",
    "mpiapi": "there is no C interface",
    "mpiabi": "there is no C interface",
}
_RAN: Final = re.compile(r"^\[ *\d+\] Ran (\d+) tests? in", re.M)
_ENDED: Final = re.compile(r"^\[ *\d+\] (OK|FAILED)(?: \((.*)\))?$", re.M)


def suite() -> Path:
    """Return the folder with the tests; fetch it if it is not there.

    Raise SystemExit where the index does not have it.
    """
    found = sorted(FOLDER.glob("mpi4py-*/test/main.py"))
    if not found:
        FOLDER.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        fetch += ["--no-binary", "mpi4py", "--dest", str(FOLDER), WANTED]
        if subprocess.run(fetch, check=False).returncode:
            sys.exit(f"mpi4py-suite: the package index has no source distribution of {WANTED}")
        for archive in FOLDER.glob("mpi4py-*.tar.gz"):
            with tarfile.open(archive) as files:
                files.extractall(FOLDER, filter="data")
        found = sorted(FOLDER.glob("mpi4py-*/test/main.py"))
    return found[-1].parent


def run(tests: Path, module: str, ranks: int, seconds: int) -> tuple[bool, str]:
    """Run a module of the suite; return whether all passed, and a line that says how it ended."""
    command = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe", "--prefix"]
    command += ["--timeout", str(seconds), str(tests / "main.py"), "-q", "-i", f"test_{module}.py"]
    done = subprocess.run(
        command, cwd=tests, capture_output=True, text=True, errors="replace", check=False
    )
    output = done.stdout + done.stderr
    ran = {int(number) for number in _RAN.findall(output)}
    ended = _ENDED.findall(output)
    good = done.returncode == 0 and len(ended) == ranks and {word for word, _ in ended} == {"OK"}
    good = good and len(ran) == 1 and 0 not in ran
    if not good:
        sys.stderr.write(output)
    notes = ", ".join(sorted({note for _, note in ended if note}))
    verdict = "ok" if good else f"FAILED (exit code {done.returncode})"
    return good, f"{module:16} {ranks} ranks  {max(ran, default=0):4} tests  {verdict}  {notes}"


def main() -> int:
    """Run the modules that the command line names, or all; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="./run mpi4py-suite", description=__doc__)
    parser.add_argument("-n", default="1,2", help="numbers of ranks, as in 1,2,3")
    parser.add_argument("--quick", action="store_true", help="the modules that take seconds")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each module")
    parser.add_argument("modules", nargs="*", help="names without test_")
    options = parser.parse_args()
    tests = suite()
    known = [path.stem.removeprefix("test_") for path in sorted(tests.glob("test_*.py"))]
    chosen = options.modules or (QUICK if options.quick else known)
    failed = []
    for ranks in map(int, options.n.split(",")):
        for module in chosen:
            if module in LEFT_OUT and not options.modules:
                print(f"{module:16} left out: {LEFT_OUT[module]}", flush=True)
                continue
            good, line = run(tests, module, ranks, options.timeout)
            print(line, flush=True)
            failed += [] if good else [f"{module} with {ranks} ranks"]
    if failed:
        print(f"mpi4py-suite: failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
