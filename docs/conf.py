# SPDX-License-Identifier: Apache-2.0
"""How the pages are built: `./run docs`, where every warning is an error.

The source folder is the top of the tree, so that links between pages are the same in the built
pages, in the files, and wherever else Markdown is shown.
"""

import argparse
import ast
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx
from sphinx.util import logging

import shmnd
import shmnd.nd1
from shmnd_tools.commands import whole_parser

project = "shmnd"
author = "the shmnd authors"
version = release = shmnd.__version__

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = ["build", "dist", "shmnd", "tests", "tools", "bench", ".*"]
source_suffix = {".md": "markdown"}
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # generated pages begin with a comment

html_theme = "furo"
html_title = f"shmnd {version}"
html_copy_source = False

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
nitpicky = True
nitpick_ignore_regex = [
    # Types of the standard library and of numpy, and protocols that a page describes in words.
    (
        "py:class",
        r"(.*\.)?(Buffer|AnyBuffer|NDArray|uint8|dtype|Sequence|Mapping|Callable|Awaitable|Context"
        r"|PlainInt|SharedArray|Future|Task|type)",
    ),
    # What calls of the IPC library return: their pages show them by example.
    ("py:class", r"(shmnd\.ipc\.[\w.]+\.)?(Request|Pending|Answer|Loan|Stream|Description|Watch)"),
]

_LOG: Final = logging.getLogger(__name__)

# Programs construct these themselves; a call returns all other classes.
_MADE_BY_PROGRAMS: Final = {
    "shmnd.NdError",
    "shmnd.Provider",
    "shmnd.Sge",
    "shmnd.nd1.MwDescriptor",
    "shmnd.nd1.Provider",
    "shmnd.nd1.Result",
    "shmnd.nd1.Sge",
}

# Classes that annotations name by a protocol, or by the same class of version 2.
_SHOWN_AS: Final = {
    "MemoryWindow2": "MemoryWindow",
    "Overlapped2": "Overlapped",
    "QueuePairLike": "QueuePair",
    "RegionLike": "MemoryRegion",
    "RegisteredSge": "Sge",
    "WindowLike": "MemoryWindow",
}


def _contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Build the table of contents from the links of the index, under the same headings."""
    if docname != root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        pages = "\n".join(re.findall(r"\]\(([^):]+)\.md\)", section))
        if pages:
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def _commands(app: Sphinx, docname: str, source: list[str]) -> None:
    """Insert the help of each command as it is printed."""
    if docname != "docs/reference/commands":
        return
    os.environ["COLUMNS"] = "96"
    for parser in _leaves(whole_parser()):
        source[0] += f"\n## {parser.prog}\n\n```text\n{parser.format_help()}```\n"


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [action.choices for action in parser._actions if action.nargs == argparse.PARSER]
    if not below:
        yield parser
    for choices in below:
        assert isinstance(choices, dict)
        for child in choices.values():
            yield from _leaves(child)


_COMPILED: Final = {"cython_function_or_method", "method_descriptor", "classmethod_descriptor"}
"""The kinds of methods that have their types in a stub alone."""


def _from_stub(owner: type, method: str) -> tuple[str, str] | None:
    """Return the declaration of a method in the stub of its class, or of an inherited one."""
    for cls in owner.__mro__:
        stub = Path(shmnd.__path__[0], *cls.__module__.split(".")[1:]).with_suffix(".pyi")
        classes = ast.parse(stub.read_text()).body if stub.exists() else []
        for node in (node for node in classes if isinstance(node, ast.ClassDef)):
            for item in node.body if node.name == cls.__name__ else []:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    parameters = ast.unparse(item.args).removeprefix("self").removeprefix(", ")
                    return f"({parameters})", ast.unparse(item.returns or ast.Constant(None))
    return None


def _public(text: str, name: str) -> str:
    """Return the public names of classes; in version 1, its own names come first."""
    packages = [shmnd.nd1, shmnd] if name.startswith("shmnd.nd1.") else [shmnd]

    def shown(match: re.Match[str]) -> str:
        last = match[0].rpartition(".")[2]
        last = _SHOWN_AS.get(last, last)
        for package in packages:
            if last in package.__all__:
                return f"~{package.__name__}.{last}"
        return match[0]

    # Objects have attributes of this name, too.
    text = re.sub(r"\btype\[", "~builtins.type[", text)
    return re.sub(r"~?\b[A-Za-z_][\w.]*", shown, text)


def _signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, args: str, result: str
) -> tuple[str, str] | None:
    if isinstance(obj, type):
        if not args:
            return None
        if name not in _MADE_BY_PROGRAMS:
            return "", ""
        args = (_from_stub(obj, "__init__") or (args, ""))[0]
    elif type(obj).__name__ in _COMPILED:
        package, cls, method = name.rsplit(".", 2)
        owner = getattr(importlib.import_module(package), cls)
        args, result = _from_stub(owner, method) or (args, result)
    elif what not in ("function", "method"):
        return None
    return _public(args or "", name), _public(result or "", name)


def _require_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    if not "".join(lines).strip():
        _LOG.warning("%s %s has no docstring", what, name)


_PROVOKED: Final = re.compile(r"\| `(\w+)` (\*completes\* )?\| `(\w+)` \| (?!not provoked)")


def _read_statuses() -> dict[str, dict[str, list[str]]]:
    """Return the statuses of each method, and those of its requests, from the page of statuses."""
    page = Path(__file__).parent / "reference" / "statuses.md"
    found: dict[str, dict[str, list[str]]] = {}
    package = interface = ""
    for line in page.read_text().splitlines():
        if line.startswith("### "):
            version, _, words = line.removeprefix("### ").partition(": ")
            package = "shmnd" if version == "Version 2" else "shmnd.nd1"
            interface = words.title().replace(" ", "")
        elif row := _PROVOKED.match(line):
            kinds = found.setdefault(f"{package}.{interface}.{row[1]}", {})
            kinds.setdefault("Completes with" if row[2] else "Returns", []).append(row[3])
    return found


_STATUSES: Final = _read_statuses()


def _add_statuses(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    below = name.rpartition(".")[2]
    every = _STATUSES.get(name) or _STATUSES.get(f"shmnd.Overlapped.{below}") or {}
    for kind, statuses in every.items():
        lines += ["", f"*{kind}:* {', '.join(f'``{status}``' for status in statuses)}.", ""]


def setup(app: Sphinx) -> None:
    """Sphinx calls this first."""
    app.connect("source-read", _contents)
    app.connect("source-read", _commands)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _require_docstring)
    app.connect("autodoc-process-docstring", _add_statuses)
