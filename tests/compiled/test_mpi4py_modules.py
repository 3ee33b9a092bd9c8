# SPDX-License-Identifier: Apache-2.0
"""Compiled modules: those that use the C interface of mpi4py are refused, and others are not."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import launch

pytestmark = pytest.mark.timeout(400)  # for the compiler

PARTS = ("Status", "Datatype", "Request", "Prequest(Request)", "Grequest(Request)", "Op", "Comm")
"""Classes that mpi4py declares, in the order of its version 3; version 4 has Datatype first."""

HANDLES = {"mpich": "int", "openmpi": "void *"}
STATUSES = {"mpich": "int fields[5];", "openmpi": "int fields[4]; size_t count;"}

HEAD = '''
cdef extern from *:
    """
    typedef {handle} Handle;
    typedef struct {{ {status} }} Fields;
    """
    ctypedef {handle} Handle
    ctypedef struct Fields:
        pass
'''

DECLARED = """
ctypedef api class {parent} [type PyMPI{name}_Type, object PyMPI{name}Object]:
"""

READS = """
from mpi4py cimport MPI

def handle(MPI.Comm comm):
    return <long> comm.ob_mpi
"""

PLAIN = """
from mpi4py import MPI
from mpi4py.MPI import Comm, Datatype, Request

KINDS = {MPI.Datatype: "type", MPI.Request: "request", MPI.Comm: "communicator"}

def kind(handle):
    return KINDS[Datatype if isinstance(handle, Datatype) else type(handle)]
"""

SETUP = """
from setuptools import Extension, setup
from Cython.Build import cythonize

setup(ext_modules=cythonize([Extension("module", ["module.pyx"])], language_level=3))
"""


def declarations(family: str, parts: list[str]) -> str:
    """Return `mpi4py/MPI.pxd` as far as a module uses it that reads handles."""
    text = HEAD.format(handle=HANDLES[family], status=STATUSES[family])
    for part in parts:
        name = part.partition("(")[0]
        text += DECLARED.format(parent=part, name=name)
        if name == part:
            kind = "Fields" if name == "Status" else "Handle"
            text += f"    cdef {kind} ob_mpi\n    cdef unsigned flags\n"
            text += "    cdef object __weakref__\n"
            text += "    cdef object ob_buf\n" if name == "Request" else ""
        else:
            text += "    pass\n"
    return text


def build(source: str, folder: Path) -> None:
    """Compile a module of that source in the folder."""
    (folder / "module.pyx").write_text(source)
    (folder / "setup.py").write_text(SETUP)
    line = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("family", HANDLES)
@pytest.mark.parametrize("version", [3, 4])
def test_a_module_that_reads_handles_is_not_imported(
    family: str, version: int, tmp_path: Path
) -> None:
    """Its classes may be as long as those here, or longer: with other handles, it would crash.

    The interpreter compares their sizes first. A longer Request here would cost each message.
    """
    refusals = {
        "mpich": "ImportError: this extension module uses the C interface of mpi4py",
        "openmpi": "ValueError: mpi4py.MPI.Request size changed",
    }
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.pxd").touch()
    parts = sorted(PARTS, key=lambda part: version == 4 and part != "Datatype")
    (package / "MPI.pxd").write_text(declarations(family, parts))
    build(READS, tmp_path)
    for before in ("", "from mpi4py import MPI\n"):
        program = f"import sys\nsys.path.append({str(tmp_path)!r})\n{before}import module"
        said = launch(1, "-c", program, expect=1).stderr
        assert refusals[family] in said


def test_a_module_without_the_c_interface_is_imported(tmp_path: Path) -> None:
    """It has no frame of its own, so it asks for names as those do that use the interface."""
    build(PLAIN, tmp_path)
    launch(
        1,
        "-c",
        f"import sys\nsys.path.append({str(tmp_path)!r})\n"
        "from mpi4py import MPI\n"
        "import module\n"
        "assert module.kind(MPI.INT) == 'type'\n"
        "assert module.kind(MPI.Request()) == 'request'\n",
    )


def test_programs_find_all_classes_in_every_way() -> None:
    launch(
        1,
        "-c",
        "from mpi4py import MPI\n"
        "from mpi4py.MPI import *\n"
        "from mpi4py.MPI import Prequest as Named\n"
        "assert Prequest is Named is MPI.Prequest and 'Prequest' in dir(MPI)\n"
        "assert isinstance(MPI.COMM_SELF.Send_init(b'', 0), Prequest)\n"
        "assert Datatype is vars(MPI)['Datatype'] and Comm is MPI.Comm\n"
        "assert Prequest.__doc__ == 'Persistent request handler.'\n"
        "assert MPI.Datatype.Create_contiguous.__doc__.startswith('Create_contiguous(self')\n"
        "assert MPI.Prequest.Start.__doc__.startswith('Start(self')\n",
    )


ASKED = """
import _thread, importlib.metadata, sys, time
from mpi4py import MPI

for name in ("Datatype", "Prequest"):
    point = importlib.metadata.EntryPoint("x", "mpi4py.MPI:" + name, "g")
    assert point.load() is getattr(MPI, name)
failures = []
sys.unraisablehook = failures.append
before = _thread._count()
_thread.start_new_thread(getattr, (MPI, "Prequest"))
while _thread._count() > before:
    time.sleep(0.01)
assert not failures, failures
"""


def test_a_class_is_found_where_no_module_asks_for_it() -> None:
    """As by an entry point of a package, and by a thread that begins with `getattr`."""
    launch(1, "-c", ASKED)
