# SPDX-License-Identifier: Apache-2.0
"""Modules that were compiled against mpi4py: their import says that there is no C interface."""

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

SETUP = """
from setuptools import Extension, setup
from Cython.Build import cythonize

setup(ext_modules=cythonize([Extension("reads", ["reads.pyx"])], language_level=3))
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


@pytest.mark.parametrize("family", HANDLES)
@pytest.mark.parametrize("version", [3, 4])
def test_a_module_that_reads_handles_gets_an_import_error(
    family: str, version: int, tmp_path: Path
) -> None:
    """Its classes may be as long as those here, or longer: with other handles, it would crash."""
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.pxd").touch()
    parts = sorted(PARTS, key=lambda part: version == 4 and part != "Datatype")
    (package / "MPI.pxd").write_text(declarations(family, parts))
    (tmp_path / "reads.pyx").write_text(READS)
    (tmp_path / "setup.py").write_text(SETUP)
    line = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    ran = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for before in ("", "from mpi4py import MPI\n"):
        program = f"import sys\nsys.path.append({str(tmp_path)!r})\n{before}import reads"
        said = launch(1, "-c", program, expect=1).stderr
        assert "ImportError: this extension module uses the C interface of mpi4py" in said


def test_programs_find_all_classes_in_every_way() -> None:
    launch(
        1,
        "-c",
        "from mpi4py import MPI\n"
        "from mpi4py.MPI import *\n"
        "from mpi4py.MPI import Datatype as Named\n"
        "assert Datatype is Named is MPI.Datatype and 'Datatype' in dir(MPI)\n"
        "assert isinstance(MPI.INT, Datatype) and Datatype.__doc__ and Comm is MPI.Comm\n"
        "assert MPI.Datatype.Create_contiguous.__doc__.startswith('Create_contiguous(self')\n"
        "assert not [name for name in globals() if name == '_embed']\n",
    )
