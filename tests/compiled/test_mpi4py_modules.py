# SPDX-License-Identifier: Apache-2.0
"""Compiled modules: those that use the C interface of mpi4py are refused, and others are not."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import launch

pytestmark = pytest.mark.timeout(400)  # for the compiler

PARTS = (
    *("Status", "Datatype", "Request", "Prequest(Request)", "Grequest(Request)", "Message", "Op"),
    *("Group", "Info", "Errhandler", "Comm", "Intracomm(Comm)", "Topocomm(Intracomm)"),
    *("Cartcomm(Topocomm)", "Graphcomm(Topocomm)", "Distgraphcomm(Topocomm)", "Intercomm(Comm)"),
    *("Win", "File"),
)
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

FUNCTIONS = '''
cdef extern from *:
    """
    const char *taken[] = {"mpi4py.MPI", %s};
    """

from mpi4py import MPI

MPI.__pyx_capi__["PyMPIComm_New"]
'''

PLAIN = """
from mpi4py import MPI
from mpi4py.MPI import *
from mpi4py.MPI import Prequest

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
            kind = {"Status": "Fields", "File": "void *"}.get(name, "Handle")
            text += f"    cdef {kind} ob_mpi\n    cdef unsigned flags\n"
            text += "    cdef object __weakref__\n"
            text += "    cdef object ob_buf\n" if name in ("Request", "Message", "Win") else ""
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


REFUSED = """
import sys, traceback
sys.path.append({folder!r})
{before}
try:
    import module
except ImportError as error:
    assert "module uses the C interface of mpi4py, which shmnd" in str(error), error
    assert error.name == "module" and error.path.startswith({folder!r}), error.path
    assert "module" not in sys.modules
    traceback.print_exc()
else:
    raise AssertionError
"""


def refusal(folder: Path, before: str) -> str:
    """Return what a program says that imports the module of the folder after another line."""
    return launch(1, "-c", REFUSED.format(folder=str(folder), before=before)).stderr


@pytest.mark.parametrize("family", HANDLES)
@pytest.mark.parametrize("version", [3, 4])
def test_a_module_that_reads_handles_is_not_imported(
    family: str, version: int, tmp_path: Path
) -> None:
    """With other handles than those it was compiled for, it would crash."""
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.pxd").touch()
    parts = sorted(PARTS, key=lambda part: version == 4 and part != "Datatype")
    (package / "MPI.pxd").write_text(declarations(family, parts))
    build(READS, tmp_path)
    assert "mpi4py.MPI." in refusal(tmp_path, "from mpi4py import MPI")
    refusal(tmp_path, "")


def test_a_module_that_takes_functions_of_the_c_interface_is_not_imported(tmp_path: Path) -> None:
    names = [part.partition("(")[0] for part in PARTS]
    build(FUNCTIONS % str(names)[1:-1].replace("'", '"'), tmp_path)
    assert "has no attribute '__pyx_capi__'" in refusal(tmp_path, "from mpi4py import MPI")
    refusal(tmp_path, "")


FAULTS = """
import json

def fail(name):
    raise ValueError(name)

json.fault_of_module()
"""


def test_other_faults_of_modules_are_as_they_were(tmp_path: Path) -> None:
    build(FAULTS, tmp_path)
    launch(
        1,
        "-c",
        f"import importlib, pickle, sys\nsys.path.append({str(tmp_path)!r})\n"
        "from mpi4py import MPI\n"
        "import json\n"
        "try:\n"
        "    import module\n"
        "except AttributeError as error:\n"
        "    assert 'fault_of_module' in str(error) and error.__cause__ is None\n"
        "json.fault_of_module = int\n"
        "import module\n"
        "assert type(module.__loader__) is importlib.machinery.ExtensionFileLoader\n"
        "assert pickle.loads(pickle.dumps(module.__spec__)).loader == module.__loader__\n"
        "assert importlib.reload(module) is module\n",
    )


def test_a_file_that_is_missing_is_an_import_error(tmp_path: Path) -> None:
    """Programs that have a module of Python in the place of a compiled one catch it."""
    launch(
        1,
        "-c",
        "from mpi4py import MPI\n"
        "from importlib import machinery, util\n"
        f"loader = machinery.ExtensionFileLoader('module', {str(tmp_path / 'module.so')!r})\n"
        "try:\n"
        "    util.module_from_spec(util.spec_from_loader('module', loader))\n"
        "except ImportError as error:\n"
        "    assert 'cannot open shared object file' in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n",
    )


def test_a_module_without_the_c_interface_is_imported(tmp_path: Path) -> None:
    """Also where it takes all classes by their names, as those do that use the interface."""
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
