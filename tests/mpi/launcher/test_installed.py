# SPDX-License-Identifier: Apache-2.0
"""Programs that put the folder of an installed mpi4py first on their path are ranks all the same.

Such are a module that is run as a file of that folder, and the tests of an installed package that
pytest collects there.
"""

import sys
from pathlib import Path
from typing import Final

import pytest

from mpi.launcher.jobs import launch

INSTALLED: Final = """
raise SystemExit("this is the installed mpi4py")
"""
ROUND: Final = """
def test_all_ranks_are_there():
    from mpi4py import MPI
    assert MPI.get_vendor()[0] == "shmnd"
    assert MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank) == 1


if __name__ == "__main__":
    test_all_ranks_are_there()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with an mpi4py as it is installed, and a package with tests of its own."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(INSTALLED)
    (tmp_path / "mpi4py" / "MPI.openmpi.so").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "test_round.py").write_text(ROUND)
    (tmp_path / "program.py").write_text(ROUND)
    return tmp_path


def test_a_program_in_the_folder_of_the_installed_one(site: Path) -> None:
    launch(2, sys.executable, str(site / "program.py"))


def test_a_module_of_the_current_folder(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site)
    launch(2, sys.executable, "-m", "program")


def test_the_tests_of_an_installed_package(site: Path) -> None:
    quiet = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(site))
    launch(2, sys.executable, "-m", "pytest", *quiet, str(site / "package"))


def test_a_double_of_a_program_that_is_not_compiled_stays(site: Path) -> None:
    (site / "mpi4py" / "MPI.openmpi.so").unlink()
    (site / "mpi4py" / "__init__.py").write_text("DOUBLE = True\n")
    (site / "program.py").write_text("import mpi4py\nassert mpi4py.DOUBLE\n")
    launch(2, sys.executable, str(site / "program.py"))


def test_a_program_that_takes_the_front_off_its_path_gets_the_other_one(site: Path) -> None:
    (site / "mpi4py" / "__init__.py").write_text("OTHER = True\n")
    (site / "program.py").write_text(
        "import sys\n"
        "sys.path[:] = [each for each in sys.path if not each.endswith('front')]\n"
        "import mpi4py\n"
        "assert mpi4py.OTHER\n"
    )
    launch(2, sys.executable, str(site / "program.py"))


def test_a_sitecustomize_of_the_program_runs_as_before(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "sitecustomize.py").write_text("import sys\nsys.customized = __file__\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    program = (
        "import sys, sitecustomize; from mpi4py import MPI\n"
        f"assert sys.customized == sitecustomize.__file__ == {str(site / 'sitecustomize.py')!r}\n"
        "assert MPI.COMM_WORLD.size == 2"
    )
    launch(2, sys.executable, "-c", program)


def test_an_error_of_such_a_module_is_shown_as_before(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "sitecustomize.py").write_text("raise ValueError('of the program')\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    program = "from mpi4py import MPI; assert MPI.COMM_WORLD.size == 1"
    said = launch(1, sys.executable, "-c", program).stderr
    assert "ValueError: of the program" in said
