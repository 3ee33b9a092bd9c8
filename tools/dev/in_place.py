# SPDX-License-Identifier: Apache-2.0
"""Let an interpreter with an installation in place start as fast as one with a wheel.

The packages lie in folders of other names, so setuptools installs a module that finds them, which
each start of the interpreter imports. That module imports pathlib, re and urllib, which takes as
long as the rest of the start, and the tests start thousands of interpreters. This writes one in
its place that imports nothing which the interpreter does not have.
"""

import runpy
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["find_by"]

FINDER: Final = """\
# Written by tools/dev/in_place.py
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

MAPPING = {mapping!r}


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = MAPPING.get(name)
        if folder is None:
            return None
        file = folder + "/__init__.py"
        spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=True)
        spec.submodule_search_locations.append(folder)
        spec.has_location = True
        return spec


def install():
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
"""


def find_by(mapping: Mapping[str, str]) -> str:
    """Return a module that finds each package in its folder."""
    return FINDER.format(mapping=dict(mapping))


def main() -> None:
    """Rewrite the finder of shmnd in this environment; pip removes it as it would the other."""
    found = [*Path(sysconfig.get_path("purelib")).glob("__editable___shmnd_*_finder.py")]
    for module in found:
        module.write_text(find_by(runpy.run_path(str(module))["MAPPING"]))
    if not found:
        print("in_place: setuptools has another way to find packages in place", file=sys.stderr)


if __name__ == "__main__":
    main()
