# SPDX-License-Identifier: Apache-2.0
"""Compile the loop of the soak, which is not a part of the product, and load it."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
_NAME: Final = "streams"


def build(folder: Path) -> Path:
    """Make the module in a folder; give its file."""
    source, made = folder / f"{_NAME}.c", folder / f"{_NAME}.so"
    _run(
        [
            *(sys.executable, "-m", "cython", "-3", "-I", str(ROOT)),
            *(str(HERE / f"{_NAME}.pyx"), "-o", str(source)),
        ]
    )
    include = sysconfig.get_path("include")
    _run(
        [
            *("gcc", "-shared", "-fPIC", "-std=gnu11", "-O3", "-fno-strict-aliasing"),
            *(f"-I{include}", f"-I{HERE}", f"-I{ROOT / 'shmnd' / 'ring'}"),
            *(str(source), "-o", str(made)),
        ]
    )
    return made


def load(made: Path) -> ModuleType:
    """Import the module from its file."""
    spec = importlib.util.spec_from_file_location(_NAME, made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
