# SPDX-License-Identifier: Apache-2.0
"""Whether hosts are others than this one, and the hosts that a batch system has given to the job.

A host is listed once for each of its slots, as by `--host` and `--hostfile`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["Unreadable", "allocated_hosts", "is_elsewhere"]


class Unreadable(ValueError):
    """A variable of a batch system has no value that this module can read."""


def is_elsewhere(hosts: list[str]) -> bool:
    """Return whether hosts are several, or another one than this. One may have several slots."""
    if len(set(hosts)) > 1:
        return True
    own = os.uname().nodename
    here = {"localhost", "127.0.0.1", "::1", own, own.partition(".")[0]}
    here.add(os.environ.get("SLURMD_NODENAME", own))  # may differ from the name of the host
    return any(host not in here and host.partition(".")[0] != own for host in hosts)


def allocated_hosts(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the hosts of the job, once for each slot; none outside of a batch system.

    Unreadable names the variable and its value.
    """
    for variable, read in _READERS.items():
        value = environment.get(variable)
        if value:
            try:
                return read(value, environment)
            except (OSError, UnicodeDecodeError, ValueError, IndexError) as exc:
                reason = f": {exc.strerror}" if isinstance(exc, OSError) else ""
                raise Unreadable(f"{variable}={value}{reason}") from exc
    return []


def _of_slurm(nodes: str, environment: Mapping[str, str]) -> list[str]:
    hosts = [host for each in _split(nodes) for host in _expand(each)]
    tasks = environment.get("SLURM_TASKS_PER_NODE")
    if not tasks:
        return hosts
    slots = [
        int(count)
        for count, _, times in _matches(r"(\d+)(\(x(\d+)\))?", tasks.split(","))
        for _ in range(int(times or 1))
    ]
    if len(slots) != len(hosts):
        raise ValueError(tasks)
    return [host for host, count in zip(hosts, slots, strict=True) for _ in range(count)]


def _matches(pattern: str, words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of each word, which must match as a whole."""
    for word in words:
        match = re.fullmatch(pattern, word.strip())
        if match is None:
            raise ValueError(word)
        yield match.groups("")


def _split(nodes: str) -> list[str]:
    """Return the parts of a list of Slurm: commas within brackets do not separate them."""
    if nodes.count("[") != nodes.count("]"):
        raise ValueError(nodes)
    return re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodes)


def _expand(nodes: str) -> Iterator[str]:
    """Yield the hosts of a part such as rack[1-2]node[08-10,12]."""
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", nodes)
    if match is None:
        yield nodes
        return
    begin, ranges, rest = match.groups()
    for first, _, last in _matches(r"(\d+)(-(\d+))?", ranges.split(",")):
        for number in range(int(first), int(last or first) + 1):
            for end in _expand(rest):
                yield f"{begin}{number:0{len(first)}}{end}"


def _of_file(name: str, _: Mapping[str, str]) -> list[str]:
    """Return the hosts of a file with a line for each slot."""
    return Path(name).read_text().split()


def _of_counts(text: str, _: Mapping[str, str]) -> list[str]:
    """Return the hosts of a list such as 'a 4 b 2'."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return [host for host, count in pairs for _ in range(int(count))]


def _of_table(name: str, _: Mapping[str, str]) -> list[str]:
    """Return the hosts of a file of lines with a host, its slots, and further words."""
    rows = [line.split() for line in Path(name).read_text().splitlines() if line.strip()]
    return [row[0] for row in rows for _ in range(int(row[1]))]


_READERS: Final[Mapping[str, Callable[[str, Mapping[str, str]], list[str]]]] = {
    "SLURM_JOB_NODELIST": _of_slurm,
    "PBS_NODEFILE": _of_file,
    "LSB_MCPU_HOSTS": _of_counts,
    "PE_HOSTFILE": _of_table,
}
"""The variables of Slurm, of PBS and Torque, of LSF, and of Grid Engine."""
