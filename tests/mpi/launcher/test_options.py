# SPDX-License-Identifier: Apache-2.0
"""Command lines that are wrong, and what the launcher says of them."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE, launch, python
from shmnd.mpi.launcher.options import parse


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-n x true", "'x' is not a number of ranks"),
        ("-n 0 true", "0 ranks; a job has 1 to"),
        ("-n 1 -x =5 true", "--env =5: a name is missing"),
        ("-n 1 true : -n 1 true", "a job has one program"),
        ("-n 1 true : -x A=1 -n 1 true", "a job has one program"),
        ("-n 1 true : --wdir / true", "a job has one program"),
        ("-n 1 true : true", "a job has one program"),
        ("--host a:99999999999 true", "more slots than the 1024 ranks that a job may have"),
        ("--host a:0 true", "--host a:0: names no host with a slot"),
        ("--host localhost:x true", "--host localhost:x: must be a host, or a host and its slots"),
        ("-n 2 --host b,a: true", "--host a:: must be a host, or a host and its slots"),
        ("-n 2 --host :2 true", "--host :2: must be a host, or a host and its slots"),
        ("-n 1 --timeout -1 true", "'-1' is not a number of seconds above 0"),
        ("-n 1 --timeout nan true", "'nan' is not a number of seconds above 0"),
        ("-n 1 --timeout soon true", "'soon' is not a number of seconds above 0"),
        ("-n 1 --map-by core true", "'--map-by' is not an option here; --help lists the options"),
        ("-n 1 --time 5 true", "'--time' is not an option here; --help lists the options"),
        ("-n 1 --hostf x true", "'--hostf' is not an option here; --help lists the options"),
        ("-n 1 --namespace a/b true", "argument --namespace: 'a/b': 1 to 64 letters, digits,"),
        ("-n 1 --group no-such true", "argument --group: 'no-such' does not exist on this host"),
        ("-n 1", "a program is missing"),
        ("--hostfile /no/such/file true", "--hostfile /no/such/file: No such file or directory"),
    ],
)
def test_a_wrong_option_is_named(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split(), "mpiexec")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("mpiexec: ")
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("-mtimeit -n 5 pass", "-m timeit -n 5 pass"),
        ("--wdir=. -mtimeit --help", "-m timeit --help"),
        ("--timeout 5 --oversubscribe -mtimeit --help", "-m timeit --help"),
        ("-cpass -x a", "-c pass -x a"),
        ("-m timeit -mtimeit", "-m timeit -mtimeit"),
    ],
)
def test_modules_and_code_may_be_attached_to_their_option(words: str, command: str) -> None:
    """As Python takes them; the words behind them are those of the program."""
    assert parse(["-n", "1", *words.split()], "mpiexec").command == [
        sys.executable,
        *command.split(),
    ]


@pytest.mark.parametrize("words", ["-- -cfoo -mbar", "- -cfoo", "prog -cfoo"])
def test_words_of_a_program_stay_as_they_are(words: str) -> None:
    command = words.removeprefix("-- ").split()
    assert parse(["-n", "1", *words.split()], "mpiexec").command == command


def test_a_variable_that_is_not_set_stays_so_in_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMND_TEST_UNSET", raising=False)
    monkeypatch.setenv("SHMND_TEST_SET", "1")
    words = ["-x", "SHMND_TEST_UNSET", "-x", "SHMND_TEST_SET"]
    options = parse(["-n", "1", *words, "true"], "mpiexec")
    assert options.environment == {"SHMND_TEST_SET": "1"}


def test_the_namespace_and_the_group_that_are_given_are_those_of_the_ranks() -> None:
    group = str(os.getgid())
    words = ["-x", "SHMND_NAMESPACE=other", "--namespace", "given", "--group", group]
    options = parse(["-n", "1", *words, "true", "--namespace", "of-the-program"], "mpiexec")
    assert options.environment == {"SHMND_NAMESPACE": "given", "SHMND_GROUP": group}
    assert options.command == ["true", "--namespace", "of-the-program"]


def test_a_file_of_hosts_with_invalid_slots_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=x\n")
    with pytest.raises(SystemExit) as ended:
        parse(["--hostfile", str(hosts), "true"], "mpiexec")
    assert ended.value.code == 2
    assert f"--hostfile {hosts}: slots=x is not a number" in capsys.readouterr().err


def test_one_host_with_several_slots_is_this_one(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.get_vendor()[0])"
    line = [sys.executable, "-m", "shmnd.mpi", "--oversubscribe"]
    for words in (["--hostfile", str(hosts)], ["--host", "localhost:2"]):
        ran = subprocess.run(
            [*line, *words, "-c", program],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert ran.stdout == "2 shmnd\n" * 2


@pytest.mark.slow
def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("print(1)")
    ran = launch(2, str(program), expect=126)
    assert f"shmnd mpiexec: {program}: the program cannot be executed; chmod +x" in ran.stderr


def test_a_program_without_an_interpreter_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("echo 1\n")
    program.chmod(0o755)
    ran = launch(2, str(program), expect=126)
    assert f"shmnd mpiexec: {program}: the program cannot be executed: it is none" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_folder_is_not_a_program(tmp_path: Path) -> None:
    ran = launch(2, str(tmp_path), expect=126)
    assert ran.stderr == f"shmnd mpiexec: {tmp_path}: a folder, not a program\n"


def test_more_ranks_than_files_may_be_open_are_refused_with_the_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "90", "--oversubscribe", "true"]
    limited = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (60, {hard}))
os.execv({sys.executable!r}, {line})
"""
    ran = python("-c", limited, expect=1)
    assert ran.stderr == (
        "shmnd mpiexec: 90 ranks could not be started: Too many open files; "
        "the limit of descriptors of this process is 60, which ulimit -n raises\n"
    )


def test_a_path_for_modules_that_is_given_holds_in_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of-the-launcher")
    ran = launch(1, "-x", "PYTHONPATH=/given", "-c", "import sys; print(*sys.path)")
    assert ran.stdout.split()[1] == "/given"  # behind the front package
    assert "/of-the-launcher" not in ran.stdout


@pytest.mark.parametrize(
    "shell", ["{} | head -1", "{} >&-", "{} >/dev/full", "{} <&-", "{} <&- >&- 2>&-"]
)
def test_the_module_takes_every_kind_of_stream(shell: str) -> None:
    job = f"{sys.executable} -m shmnd.mpi --prefix -n 1"
    line = shell.format(f"{job} -c 'print(\"x\\n\" * 99999)'")
    ran = subprocess.run(
        ["bash", "-c", f"{line}; exit $PIPESTATUS"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == int("head" in shell or "full" in shell)
    assert ran.stderr.count("\n") == int("head" in shell or "full" in shell)
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "program",
    [
        "no-such-program",
        "/no/such/program",
        "/dev/null/program",
        "no-such.py",
        "/dev/null/no.py",
        "",
    ],
)
def test_a_program_that_is_missing_is_named(program: str) -> None:
    ran = launch(2, program, expect=127)
    assert ran.stderr == f"shmnd mpiexec: {program or repr(program)}: no such program\n"


def test_a_python_file_is_missing_in_the_folder_of_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("print(1)")
    assert launch(2, "--wdir", str(tmp_path), "here.py").stdout == "1\n1\n"
    ran = launch(2, "--wdir", str(tmp_path), "there.py", expect=127)
    assert ran.stderr == f"shmnd mpiexec: {tmp_path / 'there.py'}: no such program\n"


def test_a_file_that_no_path_leads_to_is_named_with_its_folder(tmp_path: Path) -> None:
    script = tmp_path / "a-tool-of-ours"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = launch(1, "--wdir", str(tmp_path), "a-tool-of-ours", expect=127)
    assert ran.stderr == (
        "shmnd mpiexec: a-tool-of-ours: no such program in PATH; ./a-tool-of-ours is the file in "
        "the folder of the ranks\n"
    )
    ran = launch(1, str(script), expect=127)
    assert ran.stderr == (
        f"shmnd mpiexec: {script}: no such program as the interpreter that its first line names\n"
    )


def test_an_executor_of_a_communicator_uses_the_ranks_that_serve_already(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
from mpi4py.futures import MPICommExecutor

if __name__ == "__main__":
    with MPICommExecutor() as executor:
        print(sum(executor.map(abs, range(-9, 0))))
""")
    assert launch(3, "-m", "mpi4py.futures", str(program)).stdout == "45\n"


@pytest.mark.parametrize(("bind", "bound"), [("core", True), ("none", False)])
def test_the_warning_of_many_ranks_fits_their_binding(bind: str, bound: bool) -> None:
    options = ["-n", str(len(os.sched_getaffinity(0)) + 1), "--bind-to", bind]
    said = python("-m", "shmnd.mpi", *options, "true").stderr
    assert "take turns" in said
    assert ("nothing is bound" in said) is not bound


def test_a_rank_finds_its_place_where_the_launcher_of_mpich_puts_it() -> None:
    """Programs read there, before they import MPI, whether they are ranks at all."""
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    ran = launch(2, "-c", f"import os; print(*[os.environ[name] for name in {names}])")
    assert sorted(ran.stdout.splitlines()) == ["0 2 0 2", "1 2 1 2"]
