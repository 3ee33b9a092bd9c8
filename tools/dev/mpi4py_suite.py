# SPDX-License-Identifier: Apache-2.0
"""mpi4py's own test suite, unmodified, under `shmnd mpiexec`: `./run mpi4py-suite`.

The source distribution comes from the package index and is unpacked in build/; nothing of it is
kept in the project. Every module runs in a job of its own, so that one that hangs ends alone; with
`--quick` some of them run in one job, and an index that cannot be reached is a remark.
"""

import argparse
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "mpi4py-suite"
WANTED: Final = "mpi4py==4.1.*"
QUICK: Final = (
    "status", "group", "info", "op", "errhandler", "attributes", "request", "p2p_buf", "p2p_obj",
    "p2p_obj_matched", "cco_obj", "cco_nb_buf", "msgspec", "buffer", "pickle", "comm", "environ",
    "objmodel", "subclass", "handle", "exceptions", "package", "toplevel", "threads", "ulfm", "rma",
    "file", "doc",
)  # fmt: skip
LEFT_OUT: Final = {
    "spawn": "a job has the ranks that it was started with",
    "dynproc": "a job has the ranks that it was started with",
    "cffi": "there is no C interface",
    "ctypes": "there is no C interface",
    "mpiapi": "there is no C interface",
    "mpiabi": "there is no C interface",
}
_RAN: Final = re.compile(r"^\[ *\d+\] Ran (\d+) tests? in", re.M)
_ENDED: Final = re.compile(r"^\[ *\d+\] (OK|FAILED)(?: \((.*)\))?$", re.M)


def suite() -> Path | None:
    """Return the folder with the tests; fetch it if it is not there.

    Return None where the index does not answer or does not have it.
    """
    found = sorted(FOLDER.glob("mpi4py-*/test/main.py"))
    if not found:
        FOLDER.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        fetch += ["--no-binary", "mpi4py", "--dest", str(FOLDER), WANTED]
        if subprocess.run(fetch, check=False).returncode:
            return None
        for archive in FOLDER.glob("mpi4py-*.tar.gz"):
            with tarfile.open(archive) as files:
                files.extractall(FOLDER, filter="data")
        found = sorted(FOLDER.glob("mpi4py-*/test/main.py"))
    return found[-1].parent


def run(tests: Path, modules: Sequence[str], ranks: int, seconds: int) -> tuple[bool, str]:
    """Run modules of the suite; return whether all passed, and a line that says how it ended."""
    command = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe", "--prefix"]
    command += ["--timeout", str(seconds), str(tests / "main.py"), "-q"]
    command += [word for module in modules for word in ("-i", f"test_{module}.py")]
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
    title = modules[0] if len(modules) == 1 else f"{len(modules)} modules"
    return good, f"{title:16} {ranks} ranks  {max(ran, default=0):4} tests  {verdict}  {notes}"


def main() -> int:
    """Run the modules that the command line names, or all; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="./run mpi4py-suite", description=__doc__)
    parser.add_argument("-n", default="1,2", help="numbers of ranks, as in 1,2,3")
    parser.add_argument("--quick", action="store_true", help="some modules, in less than a minute")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each module")
    parser.add_argument("modules", nargs="*", help="names without test_")
    options = parser.parse_args()
    tests = suite()
    if tests is None:
        text = f"the package index has no source distribution of {WANTED}"
        print(f"mpi4py-suite: {'skipped' if options.quick else 'failed'}: {text}")
        return 0 if options.quick else 1
    known = [path.stem.removeprefix("test_") for path in sorted(tests.glob("test_*.py"))]
    failed = []
    if options.quick and not options.modules:
        for ranks in map(int, options.n.split(",")):
            good, line = run(tests, QUICK, ranks, options.timeout)
            print(line, flush=True)
            failed += [] if good else [f"with {ranks} ranks"]
        return _verdict(failed)
    chosen = options.modules or known
    for ranks in map(int, options.n.split(",")):
        for module in chosen:
            if module in LEFT_OUT and not options.modules:
                print(f"{module:16} left out: {LEFT_OUT[module]}", flush=True)
                continue
            good, line = run(tests, [module], ranks, options.timeout)
            print(line, flush=True)
            failed += [] if good else [f"{module} with {ranks} ranks"]
    return _verdict(failed)


def _verdict(failed: list[str]) -> int:
    if failed:
        print(f"mpi4py-suite: failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
