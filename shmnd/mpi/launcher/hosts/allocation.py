# SPDX-License-Identifier: Apache-2.0
"""Whether hosts are others than this one, and the hosts that a batch system has given to the job.

A host is listed once for each of its slots, as by `--host` and `--hostfile`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

__all__ = ["MOST", "Unreadable", "allocated_hosts", "is_elsewhere", "slots_of"]

MOST: Final = 1024
"""Ranks of one job. Of more hosts, and of more slots of a host, those above one more are left out:
that one more shows that the job would have too many."""


class Unreadable(ValueError):
    """A variable of a batch system has no value that this module can read."""

    def __init__(self, text: str, hosts: list[str] | None = None) -> None:
        super().__init__(text)
        self.hosts: Final = hosts or []
        """The hosts that are known nevertheless, once each."""


def is_elsewhere(hosts: list[str], *, allocated: bool = False) -> bool:
    """Return whether hosts are several, or another one than this. One may have several slots.

    Two names of this host are two hosts for the user who names them, but not for a batch system,
    which has `allocated` them.
    """
    if not allocated and len(set(hosts)) > 1:
        return True
    own = os.uname().nodename
    here = {"localhost", "127.0.0.1", "::1", own, own.partition(".")[0]}
    here.add(os.environ.get("SLURMD_NODENAME", own))  # may differ from the name of the host
    return any(host not in here and host.partition(".")[0] != own for host in set(hosts))


def slots_of(host: str, count: str) -> list[str]:
    """Return a host as often as it has slots; raise ValueError where its slots are not a number."""
    if not count.isdecimal():
        raise ValueError(count)
    return [host] * min(int(count), MOST + 1)


def allocated_hosts(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the hosts of the job, once for each slot; none outside of a batch system.

    Unreadable names the variable and its value.
    """
    for variable, read in _READERS.items():
        value = environment.get(variable)
        if value:
            try:
                hosts = read(value)
            except (OSError, ValueError, IndexError) as exc:
                reason = f": {exc.strerror}" if isinstance(exc, OSError) else ""
                raise Unreadable(f"{variable}={value}{reason}") from exc
            if not hosts:
                raise Unreadable(f"{variable}={value}")
            return _with_slots(hosts, environment) if read is _of_slurm else hosts
    return []


def _of_slurm(nodes: str) -> list[str]:
    return list(islice((host for each in _split(nodes) for host in _expand(each)), MOST + 1))


def _with_slots(hosts: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the hosts of Slurm, which has their slots in a variable of its own."""
    tasks = environment.get("SLURM_TASKS_PER_NODE")
    if not tasks:
        return hosts
    try:
        counts = list(islice(_counts(tasks), MOST + 1))
        found = [
            slot
            for host, count in zip(hosts, counts, strict=True)
            for slot in slots_of(host, count)
        ]
    except ValueError:
        found = []
    if not found:
        raise Unreadable(f"SLURM_TASKS_PER_NODE={tasks}", hosts)
    return found


def _counts(tasks: str) -> Iterator[str]:
    """Yield the slots of each host of a list such as 2(x3),1."""
    for count, _, times in _matches(r"(\d+)(\(x(\d+)\))?", tasks.split(",")):
        for _ in range(int(times or 1)):
            yield count


def _matches(pattern: str, words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of each word, which must match as a whole."""
    for word in words:
        match = re.fullmatch(pattern, word.strip())
        if match is None:
            raise ValueError(word)
        yield match.groups("")


def _split(nodes: str) -> list[str]:
    """Return the parts of a list of Slurm: commas within brackets do not separate them."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodes)
    if ",".join(parts) != nodes:
        raise ValueError(nodes)
    return parts


def _expand(nodes: str) -> Iterator[str]:
    """Yield the hosts of a part such as rack[1-2]node[08-10,12]."""
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", nodes)
    if match is None:
        yield nodes
        return
    begin, ranges, rest = match.groups()
    for first, _, last in _matches(r"(\d+)(-(\d+))?", ranges.split(",")):
        if int(last or first) < int(first):
            raise ValueError(ranges)
        for number in range(int(first), int(last or first) + 1):
            for end in _expand(rest):
                yield f"{begin}{number:0{len(first)}}{end}"


def _of_file(name: str) -> list[str]:
    """Return the hosts of a file with a line for each slot."""
    return Path(name).read_text().split()


def _of_counts(text: str) -> list[str]:
    """Return the hosts of a list such as 'a 4 b 2'."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return [slot for host, count in pairs for slot in slots_of(host, count)]


def _of_table(name: str) -> list[str]:
    """Return the hosts of a file of lines with a host, its slots, and further words."""
    rows = [line.split() for line in Path(name).read_text().splitlines() if line.strip()]
    return [slot for row in rows for slot in slots_of(row[0], row[1])]


_READERS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "SLURM_JOB_NODELIST": _of_slurm,
    "PBS_NODEFILE": _of_file,
    "LSB_MCPU_HOSTS": _of_counts,
    "PE_HOSTFILE": _of_table,
}
"""The variables of Slurm, of PBS and Torque, of LSF, and of Grid Engine."""
