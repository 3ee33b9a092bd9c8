# SPDX-License-Identifier: Apache-2.0
"""Run a program, and abort the job if it ends by an exception: `python -m mpi4py`.

Without it a rank that fails leaves the others waiting for its messages.
"""

from __future__ import annotations

import os
import runpy
import sys
from ast import literal_eval
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from shmnd.common.interruption import pass_on

_USAGE = """\
usage: python -m {0} [options] <pyfile> [arg] ...
   or: python -m {0} [options] -m <mod> [arg] ...
   or: python -m {0} [options] -c <cmd> [arg] ...
   or: python -m {0} [options] - [arg] ...

options:
  --prefix             print the folder of the package
  --version            print the version of the interface
  --mpi-library        print the file of the MPI library
  --mpi-lib-version    print the version of the MPI library
  --mpi-std-version    print the version of the MPI standard
  -rc <key=value,...>  set mpi4py.rc
"""


def run_command_line(args: Sequence[str] | None = None) -> None:
    """Run a script, a module, a command, or the standard input, as Python's command line does."""
    argv = list(sys.argv[1:] if args is None else args)
    if not argv:
        sys.exit("mpi4py.run: no script, -m module, -c command or - is given")
    kind, rest = argv[0], argv[1:]
    if kind in ("-m", "-c") and not rest:
        sys.exit(f"mpi4py.run: {kind} needs an argument")
    if kind == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        _execute(rest[0], "<string>")
    elif kind == "-":
        sys.argv[:] = argv
        _execute(sys.stdin.read(), "<stdin>")
    else:
        sys.argv[:] = argv
        sys.path[0] = os.path.realpath(os.path.dirname(kind))  # noqa: PTH120
        runpy.run_path(kind, run_name="__main__")


def _execute(source: str, name: str) -> None:
    """Run source code in the main module."""
    from types import ModuleType

    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec"), main.__dict__)


def set_abort_status(status: Any) -> None:
    """Have the end of the process abort the job: with a number, or with 1 for anything else."""
    from shmnd.mpi import environment

    code = status if isinstance(status, int) else 0 if status is None else 1
    environment._set_abort_status(code)


def _options(argv: list[str], module: str = "mpi4py") -> list[str]:
    """Act on the options in front of the program, and return the rest."""
    from shmnd.mpi import rc

    while argv and argv[0].startswith("-") and argv[0] not in ("-m", "-c", "-"):
        option = argv.pop(0)
        if option.startswith("--rc="):
            option, _, settings = option.partition("=")
            argv.insert(0, settings)
        if option in ("-h", "--help"):
            print(_USAGE.format(module), end="")
            sys.exit(0)
        if option in ("-rc", "--rc"):
            if not argv:
                sys.exit(f"mpi4py.run: {option} needs an argument, as in: {option} threads=False")
            try:
                rc.rc(**dict(map(_setting, argv.pop(0).split(","))))
            except TypeError as error:
                sys.exit(f"mpi4py.run: {option}: {error}")
            continue
        text = _answer(option.lstrip("-"))
        if text is None:
            sys.exit(f"mpi4py.run: unknown option {option}; --help lists them")
        print(text)
        sys.exit(0)
    return argv


def _setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of one setting of `-rc`."""
    key, _, value = text.partition("=")
    try:
        return key, literal_eval(value)
    except (ValueError, SyntaxError) as error:
        pass_on(error)
        return key, value  # a word


def _answer(option: str) -> str | None:
    """Return the line that an option prints, None for an unknown one."""
    from shmnd.mpi import environment, package

    if option == "prefix":
        return str(package.FRONT / "mpi4py")
    if option == "version":
        return f"mpi4py {package.VERSION}"
    if option == "mpi-library":
        library = find_spec("shmnd.mpi.transport.engine")
        return library.origin if library else None
    if option == "mpi-lib-version":
        return environment.Get_library_version()
    if option == "mpi-std-version":
        return "MPI {}.{}".format(*environment.Get_version())
    return None


def main(module: str = "mpi4py") -> None:
    """Run a program; if it raises, abort the job with status 1, or with that of `SystemExit`.

    The usage names `module`.
    """
    argv = _options(sys.argv[1:], module)
    if not argv:
        print(_USAGE.format(module), end="", file=sys.stderr)
        sys.exit(2)
    try:
        run_command_line(argv)
    except SystemExit as leaving:
        set_abort_status(leaving.code)
        raise
    except KeyboardInterrupt:
        set_abort_status(130)
        raise
    except BaseException:
        set_abort_status(1)
        raise
