# SPDX-License-Identifier: Apache-2.0
"""`mpi4py.rc` and the variables MPI4PY_RC_<NAME>."""

from pathlib import Path

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi import run
from shmnd.mpi.rc import Rc
from shmnd.mpi.rc_settings import settings_of


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("initialize", "No", False),
        ("finalize", "0", False),
        ("threads", "off", False),
        ("thread_level", "Single", "single"),
        ("irecv_bufsz", "0", 0),
        ("errors", "FATAL", "fatal"),
    ],
)
def test_the_environment_takes_precedence(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"MPI4PY_RC_{name.upper()}", text)
    rc = Rc()
    assert getattr(settings_of(rc), name) == getattr(rc, name) == value


@pytest.mark.parametrize("name", ["initialize", "finalize", "thread_level", "irecv_bufsz"])
def test_a_value_that_means_nothing_is_a_warning(name: str) -> None:
    rc = Rc()
    setattr(rc, name, -1)
    with pytest.warns(RuntimeWarning, match=rf"mpi4py\.rc\.{name}: unexpected value -1"):
        assert getattr(settings_of(rc), name) == getattr(Rc, name)


@pytest.mark.slow
def test_settings_hold_when_mpi_is_imported() -> None:
    program = """
import os
from mpi4py import rc
assert rc.initialize is True
os.environ.update(MPI4PY_RC_INITIALIZE="no", MPI4PY_PICKLE_PROTOCOL="3")
rc.errors = "unknown"
import warnings
with warnings.catch_warnings(record=True) as caught:
    from mpi4py import MPI
assert [str(each.message) for each in caught] == ["mpi4py.rc.errors: unexpected value 'unknown'"]
assert rc.initialize is False and not MPI.Is_initialized() and MPI.pickle.PROTOCOL == 3
print("well")
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


SETTINGS = "threads=False,irecv_bufsz=5,errors=abort"


@pytest.mark.parametrize(
    "option",
    [["-rc", SETTINGS], [f"--rc={SETTINGS}"], ["-rc", SETTINGS.replace("abort", "'abort'")]],
)
def test_the_command_line_sets_them(monkeypatch: pytest.MonkeyPatch, option: list[str]) -> None:
    found = Rc()
    monkeypatch.setattr("shmnd.mpi.rc.rc", found)
    rest = run._options([*option, "program.py", "-rc"])
    assert rest == ["program.py", "-rc"]
    assert (found.threads, found.irecv_bufsz, found.errors) == (False, 5, "abort")


@pytest.mark.parametrize("settings", ["", "thread=0"])
def test_an_unknown_setting_of_the_command_line_is_named(settings: str) -> None:
    name = settings.partition("=")[0]
    with pytest.raises(SystemExit, match=f"mpi4py.run: --rc: .* no setting '{name}'; known are"):
        run._options([f"--rc={settings}"])


def test_an_option_without_its_settings_names_its_argument() -> None:
    with pytest.raises(SystemExit, match=r"mpi4py\.run: -rc needs an argument, as in: -rc \w+=\w+"):
        run._options(["-rc"])


@pytest.mark.parametrize(
    ("option", "beginning"),
    [
        ("--version", "mpi4py 4."),
        ("--mpi-lib-version", "shmnd "),
        ("--mpi-std-version", "MPI 4."),
        ("--mpi-library", str(Path(run.__file__).parent)),
    ],
)
def test_an_option_of_mpi4py_prints_a_line(
    capsys: pytest.CaptureFixture[str], option: str, beginning: str
) -> None:
    with pytest.raises(SystemExit) as leaving:
        run._options([option])
    line = capsys.readouterr().out
    assert (leaving.value.code, line.startswith(beginning)) == (0, True), line
    assert option in run._USAGE
