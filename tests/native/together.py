# SPDX-License-Identifier: Apache-2.0
"""Several test programs as one unit of compilation, so that their headers are compiled once.

Most of the time to build a program is spent on the functions of the headers, which are the same in
each. A program that includes `world.h` alone shares them with others of that kind. The names that
two programs have at file scope are made different by macros. Each program still runs as a process
of its own: the first argument says which one.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SHARED = '"world.h"'
_INCLUDE = re.compile(r"^#include (.*)$", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_NAMES = (
    re.compile(r"^static [^;=(]*?\b(\w+)(?: = |\(|\[|;)", re.MULTILINE),
    re.compile(r"^(?:struct|enum|union) (\w+) \{", re.MULTILINE),
    re.compile(r"^enum (?:\w+ )?\{([^}]*)\}", re.MULTILINE),
)


def can_share(program: Path) -> bool:
    """Return whether the program includes the shared header, and nothing else."""
    return _INCLUDE.findall(program.read_text()) == [SHARED]


def file_scope(text: str) -> set[str]:
    """Return the names of functions, objects, types and constants that the program defines."""
    found = (name for pattern in _NAMES for name in pattern.findall(text))
    return {word for name in found for word in re.findall(r"\b[A-Za-z_]\w*", name)}


def unit(programs: Iterable[Path]) -> str:
    """Return the source of a program that is each of these programs, by its first argument."""
    texts = {path: path.read_text() for path in programs}
    uses = Counter(name for text in texts.values() for name in file_scope(text))
    lines = [f"#include {SHARED}"]
    for path, text in texts.items():
        macros = set(_MACRO.findall(text))
        renamed = sorted({name for name in file_scope(text) if uses[name] > 1} - macros)
        changed = ["main", *renamed]
        lines += [f"#define {name} {path.stem}_{name}" for name in changed]
        lines += [f'#include "{path}"']
        lines += [f"#undef {name}" for name in [*changed, *sorted(macros)]]
    lines += ["int main(int argc, char **argv)", "{", "    if (argc < 2)", "        return 2;"]
    for path in texts:
        lines += [f'    if (!strcmp(argv[1], "{path.stem}"))']
        lines += [f"        return {path.stem}_main(argc - 1, argv + 1);"]
    return "\n".join([*lines, "    return 2;", "}", ""])
