# SPDX-License-Identifier: Apache-2.0
"""How the compiled modules are built: what all of them need, in one place.

pyproject.toml names the modules and this command. Every header and .pxd counts for every module:
the headers include each other, and a module built with an old one would disagree with the rest
about the layout of shared memory. Those of shmnd/mpi and shmnd/ipc count for the modules there
alone. An sdist also contains the files named as `depends`.

A wheel is built without symbols, in place for work on shmnd with the names of its functions. For
lines too, in a debugger, set SHMND_CFLAGS=-g.

With SHMND_LINETRACE set the modules report to a tracer which line they run, for `./run coverage`.
SHMND_CFLAGS, if set, adds flags for the compiler, as a build with a sanitizer needs them.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import numpy
from setuptools.command.build_ext import build_ext

ROOT: Final = Path(__file__).parents[2]
RING: Final = "shmnd/ring"
MPI: Final = "shmnd/mpi"
IPC: Final = "shmnd/ipc"
PUBLIC: Final = "shmnd/include"
# Modules with the loops over bytes and elements, and the path of a message. In the others -O3
# makes the code larger and the build longer, and nothing faster.
LOOPS: Final = (
    "shmnd.ipc.queue.",
    "shmnd.ipc.topic.",
    "shmnd.messaging.",
    "shmnd.nd1.",
    "shmnd.ring.",
)
LOOP_MODULES: Final = frozenset({"engine", "op", "packing"})
FLAGS: Final = (
    "-std=gnu11",
    "-g0",  # setuptools passes the -g that the interpreter was built with: a third of the time
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
)
# gcc clears an object of more than 80 bytes by `rep stos` on x86-64, which takes as long to begin
# as all else that makes a small object.
CLEARING: Final = "-mmemset-strategy=vector_loop:1024:noalign,libcall:-1:noalign"


def depends(module: str) -> list[str]:
    """Return the files whose change calls for a new build of a module: headers, .pxd, this one."""
    declarations = [path for kind in ("*.h", "*.pxd") for path in (ROOT / "shmnd").rglob(kind)]
    for room, folder in (("shmnd.mpi.", MPI), ("shmnd.ipc.", IPC)):
        if not module.startswith(room):
            declarations = [path for path in declarations if not path.is_relative_to(ROOT / folder)]
    return sorted(str(path.relative_to(ROOT)) for path in [*declarations, Path(__file__)])


def forget_translations(sources: list[str], declarations: list[str]) -> None:
    """Delete translations that are older than a declaration, or made for another numpy.

    Cython finds itself that a module is to be translated anew, but overlooks a declaration that is
    taken by `from package cimport module` with other lines of that kind behind it. Nor does
    it compare the numpy of another interpreter or environment, for which the tree was built before:
    a translation for a later numpy does not compile.
    """
    newest = max(Path(each).stat().st_mtime for each in declarations)
    for source in sources:
        translated = Path(source).with_suffix(".c")
        if translated.exists() and (
            translated.stat().st_mtime < newest or _is_for_another_numpy(translated)
        ):
            translated.unlink()


def _is_for_another_numpy(translated: Path) -> bool:
    """Return whether the metadata at the beginning of a translation names another numpy."""
    with translated.open() as file:
        metadata = file.read(4096)
    return "/numpy/_core/include/" in metadata and numpy.get_include() not in metadata


def optimisation(module: str) -> str:
    """Return the compiler's option for a module."""
    looping = module.startswith(LOOPS) or module.rpartition(".")[2] in LOOP_MODULES
    return "-O3" if looping else "-O2"


class BuildExtensions(build_ext):
    """`build_ext`, with what every compiled module of shmnd has in common."""

    def build_extensions(self) -> None:
        """Build the modules, with an option that not every compiler has."""
        if self._accepts(CLEARING):
            for extension in self.extensions:
                extension.extra_compile_args.append(CLEARING)
        super().build_extensions()

    def _accepts(self, option: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "empty.c")
            source.write_text("int empty;\n")
            command = [*self.compiler.compiler, option, "-c", str(source), "-o", f"{source}.o"]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def finalize_options(self) -> None:
        """Complete the modules that pyproject.toml names."""
        super().finalize_options()
        flags = os.environ.get("SHMND_CFLAGS", "").split()
        trace = bool(os.environ.get("SHMND_LINETRACE"))
        self.parallel = self.parallel or os.cpu_count()
        # Queue pairs and queues rely on the GIL: an interpreter without it switches it on.
        # No object here is a value that another process could use: a pickle of one is an error.
        self.cython_directives = {
            "freethreading_compatible": False,
            "linetrace": trace,
            "auto_pickle": False,
            # Methods of C, which the interpreter calls directly; those of Cython take its general
            # way. `inspect` takes a signature from their text, which classes of Python would show
            # as it is (`embedsignature=False`). The texts of MPI begin with the call instead, as
            # mpi4py's do and its tests require; its methods whose defaults are objects, such as
            # an operation, stay Cython's (`binding=True`).
            "binding": False,
            "embedsignature": True,
            "embedsignature.format": "clinic",
        }
        bare = not (self.inplace or self.editable_mode or trace or flags)
        for extension in self.extensions:
            extension.define_macros = [("CYTHON_TRACE", "1")] if trace else []
            extension.include_dirs = [PUBLIC, RING, MPI, IPC, numpy.get_include()]
            extension.extra_compile_args = [*FLAGS, optimisation(extension.name), *flags]
            extension.extra_link_args = ["-s"] if bare else []
            extension.depends = depends(extension.name)
            declarations = [name for name in extension.depends if name.endswith(".pxd")]
            forget_translations([*extension.sources], declarations)
