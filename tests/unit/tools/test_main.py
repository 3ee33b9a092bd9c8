# SPDX-License-Identifier: Apache-2.0
"""The command line: which module a verb leads to, and what becomes of errors."""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shmnd import AdapterFlag, NdError, Provider, Status, __version__
from shmnd.info import LIMITS
from shmnd_tools import columns
from shmnd_tools.commands import in_order, parser_of, whole_parser
from shmnd_tools.main import main
from shmnd_tools.verbs import broker_stop


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--version"])
    assert exited.value.code == 0
    assert capsys.readouterr().out == f"shmnd {__version__}\n"


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser of each noun and verb, and that of the whole."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from commands(below)


COMMANDS = [*commands(whole_parser())]
RANK = ["-n", "1", "b"]
VERBS = [command for command in COMMANDS if command.get_default("run")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_every_command_has_help(
    command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main([*command.prog.split()[1:], "--help"])
    assert exited.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {command.prog}")


@pytest.mark.parametrize("command", VERBS, ids=lambda command: command.prog)
def test_every_verb_has_an_example_that_is_right(command: argparse.ArgumentParser) -> None:
    text = command.format_help()
    example = text.partition("\nexample:\n")[2].splitlines()[0].strip()
    assert example.startswith(f"{command.prog} ") or example == command.prog
    arguments = example.split()[1:]
    args = parser_of(arguments[0]).parse_args(arguments)
    assert args.run is command.get_default("run")
    assert re.search(r"^exit codes:\n  0 .*\n  1 .*\n  2 .*\n(  12[467] .*\n)*  130 ", text, re.M)
    assert ("\n  124 " in text) == ("--timeout SECONDS     end the job" in text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mpiexec", "--namespace", "a/b", *RANK], "'a/b': 1 to 64 letters, digits, dots"),
        (["mpiexec", "--group", "no-such-group", *RANK], "does not exist on this host"),
        (["top", "--interval", "0"], "'0' is not a number of seconds from 0.01 to 3,600"),
        (["top", "--interval", "soon"], "'soon' is not a number of seconds from 0.01 to 3,600"),
        (["top", "--count", "0"], "'0' is not a whole number from 1 on"),
        (["trace", "--for", "nan"], "'nan' is not a number of seconds from 0 to 1,000,000"),
        (["trace", "--pid", "-1"], "'-1' is not a process id from 1 on"),
        (["trace", "--address", "::1"], "'::1' is not an address as 127.0.0.1:50123"),
        (["trace", "--address", "here:1"], "'here:1' is not an address as 127.0.0.1:50123"),
        (["broker", "run", "--idle", "-1"], "'-1' is not a number of seconds from 0 to"),
        (["info", "::1", "--host", "::1"], "--host: not allowed with argument address"),
        (["ipc", "publish", "t", "1", "--type", "x9"], "'x9' is not a dtype of numbers and text"),
        (["ipc", "publish", "t", "1", "--type", "O"], "'O' is not a dtype of numbers and text"),
    ],
)
def test_an_option_names_its_values(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "read"), [("127.0.0.1:80", "127.0.0.1:80"), ("[0:0::1]:080", "[::1]:80")]
)
def test_an_address_is_read_as_the_tables_write_it(text: str, read: str) -> None:
    assert parser_of("trace").parse_args(["trace", "--address", text]).address == read


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "dance"],
        ["teapot"],
        ["info", "--tea"],
        ["--format", "tea", "info"],
    ],
)
def test_a_wrong_command_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["broker"], ["bench"]], ids=str)
def test_an_incomplete_command_prints_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 0
    assert capsys.readouterr().out.startswith(" ".join(["usage: shmnd", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["doktor"], "doctor"),
        (["broker", "stopp"], "stop"),
        (["bench", "pinpong"], "pingpong"),
        (["ps", "--namespaze", "x"], "--namespace"),
        (["broker", "run", "--repalce"], "--replace"),
        (["ps", "conections"], "connections"),
        (["broker", "status", "-f", "json"], "--format"),
    ],
    ids=str,
)
def test_a_misspelt_word_is_named_with_the_nearest(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    said = capsys.readouterr().err
    assert f"did you mean {near!r}?" in said
    assert repr(arguments[-1] if arguments[-1] not in ("x", "json") else arguments[-2]) in said


@pytest.mark.parametrize("command", VERBS, ids=lambda command: command.prog)
def test_every_verb_takes_a_namespace_and_a_group(command: argparse.ArgumentParser) -> None:
    assert {"--namespace", "--group"} <= set(command._option_string_actions)


@pytest.mark.parametrize("command", VERBS, ids=lambda command: command.prog)
@pytest.mark.parametrize(
    "wrong", ["--namespace=a/b", "--namespace=", "--group=no such", "--group="]
)
def test_a_namespace_or_a_group_that_cannot_be_is_a_wrong_option(
    wrong: str, command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.parse_known_args([wrong])
    option, _, value = wrong.partition("=")
    said = capsys.readouterr().err
    assert said.startswith(f"{command.prog}: argument {option}: {value!r}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("line", ["ps", "top --count 1", "bench core", "ipc list", "doctor"])
@pytest.mark.parametrize(
    ("variable", "words"),
    [("NAMESPACE", "namespace 'a/b': 1 to 64 letters"), ("GROUP", "group 'a/b' does not exist")],
)
def test_a_variable_that_is_not_allowed_is_one_line(
    line: str,
    variable: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"SHMND_{variable}", "a/b")
    assert main(line.split()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"shmnd: {words}")
    assert said.err.count("\n") == 1


def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"state": "down", "command": "x" * 200, "memory": 3 << 20}
    what = [columns.text("state"), columns.sizes("memory"), columns.text("command")]
    plain = columns.draw(what, [row])
    assert "3 MiB" in plain
    assert "x" * 200 in plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("os.get_terminal_size", lambda: os.terminal_size((60, 24)))
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = columns.draw(what, [row])
    assert "\x1b[31mdown" in coloured
    bare = re.sub("\x1b.*?m", "", coloured)
    assert max(map(len, bare.splitlines())) == 60
    monkeypatch.setenv("NO_COLOR", "1")
    assert columns.draw(what, [row]) == bare


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--format", "json", "address", "list"], ["address", "list", "--format", "json"]),
        (["--namespace=a", "--format=json", "ps"], ["ps", "--namespace=a", "--format=json"]),
        (["address", "--format", "json"], ["address", "list", "--format", "json"]),
        (["broker"], ["broker", "--help"]),
        (["bench"], ["bench", "--help"]),
        (["broker", "--idle", "1"], ["broker", "run", "--idle", "1"]),
        (["broker", "stop"], ["broker", "stop"]),
        (["broker", "--help"], ["broker", "--help"]),
        (["bench", "pingpong", "-n", "1"], ["bench", "pingpong", "-n", "1"]),
        (["--namespace", "a", "mpiexec", "-n", "1", "b"], ["mpiexec", "--namespace", "a", *RANK]),
        (["mpiexec", *RANK], ["mpiexec", *RANK]),
        (["--format"], ["--format"]),
        ([], ["--help"]),
    ],
)
def test_options_before_the_noun_and_an_omitted_verb(given: list[str], meant: list[str]) -> None:
    assert in_order(given) == meant


@pytest.mark.parametrize("given", [["mpiexec"], ["--namespace", "a", "mpiexec"]])
def test_the_launcher_lists_the_options_that_it_takes(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for words in ([*given, "--help"], [*given, "-n", "1", "--help"]):
        with pytest.raises(SystemExit) as exited:
            main(words)
        assert exited.value.code == 0
        said.append(set(re.findall(r"^  (-.+?)(?:  |$)", capsys.readouterr().out, re.M)))
    assert said[0] == said[1]
    assert "--namespace NAMESPACE" in said[0]


@pytest.mark.parametrize("words", [["info", "127.0.0.2"], ["info", "--host", "127.0.0.2"]])
def test_info_of_an_address(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--format", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["host"] == "127.0.0.2"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_everything_has_an_example(command: argparse.ArgumentParser) -> None:
    assert "\nexample:\n  shmnd" in command.format_help()


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (NdError(Status.NO_MEMORY, "no room"), 1, "shmnd: no room\n"),
        (OSError("broken"), 1, "shmnd: broken\n"),
        (IsADirectoryError(21, "Is a directory", "here"), 1, "shmnd: here: Is a directory\n"),
        (ImportError("not built"), 1, "shmnd: not built\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line(
    problem: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: object) -> int:
        raise problem

    monkeypatch.setattr(broker_stop, "run", fail)
    assert main(["broker", "stop"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_not_an_error() -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        "sys.exit(main(['broker', 'status', '--namespace', 'reader']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""


@pytest.mark.slow
def test_ctrl_c_while_the_command_loads_prints_no_traceback() -> None:
    program = f"""
import signal, sys
sys.path[:0] = {sys.path!r}
from shmnd_tools.entry import main

class Loading:
    def find_spec(self, name, path=None, target=None):
        if name == "shmnd":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Loading())
sys.exit(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, "ps"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "made_of_it", ["raise ImportError from None", "raise RuntimeError", "pass"]
)
def test_ctrl_c_that_a_module_takes_for_its_own_error_ends_the_command(made_of_it: str) -> None:
    program = f"""
import signal, sys
sys.path[:0] = {sys.path!r}
signal.signal(signal.SIGINT, signal.default_int_handler)
from shmnd_tools.main import main

class Loading:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                {made_of_it}

sys.meta_path.insert(0, Loading())
code = main()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
sys.exit(code)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, "ipc", "list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


_COMMAND = (
    f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main; sys.exit(main())"
).replace("'", '"')
SHELLS = {
    ">&-": "{0} >&-",
    "2>&-": "{0} 2>&-",
    "none": "{0} <&- >&- 2>&-",
    "|": "{0} | true",
    "2>&1 |": "{0} 2>&1 | true",
    "full": "{0} >/dev/full",
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
@pytest.mark.parametrize(
    ("verb", "code"), [("ipc list", 0), ("ps", 1), ("top --count 1", 1), ("none", 2), ("-h", 0)]
)
def test_a_stream_that_is_closed_causes_no_traceback(verb: str, code: int, shell: str) -> None:
    """One that is closed counts as written, one that breaks is an error."""
    line = shell.format(f"{sys.executable} -c '{_COMMAND}' {verb}")
    done = subprocess.run(["bash", "-c", f"{line}; exit $PIPESTATUS"], capture_output=True)
    assert done.stderr.count(b"\n") <= 3
    assert b"Traceback" not in done.stderr
    assert b"ignored" not in done.stderr
    breaks = "|" in shell or "full" in shell
    assert done.returncode in ((code, 1) if breaks else (code,))


def test_an_output_that_cannot_be_written_is_named() -> None:
    line = f"unset PYTHONUNBUFFERED; {sys.executable} -c '{_COMMAND}' --version >/dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "shmnd: standard output: No space left on device\n",
    )


def test_a_closed_descriptor_is_not_given_to_a_file() -> None:
    """The next one that is opened would have the number, and the output of children."""
    code = (
        "from shmnd_tools import main; import os; main.open_streams();"
        "assert os.open('/', os.O_RDONLY) > 2; os.execvp('true', ['true'])"
    )
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "{code}" <&- >&- 2>/dev/null'])
    assert done.returncode == 0


@pytest.mark.slow
def test_info_shows_every_field_and_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {field.name for field in dataclasses.fields(LIMITS)}
    assert main(["info", "--namespace", "info", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert fields <= told.keys()
    flags = {flag.name: flag in LIMITS.adapter_flags for flag in AdapterFlag}
    assert told["adapter_flags"] == flags
    assert set(flags.values()) == {True, False}

    assert main(["info", "--namespace", "info"]) == 0
    rows = dict(re.split("  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {name.replace("_", " ") for name in fields - {"adapter_flags"}} <= rows.keys()
    assert {name: rows[str(name)] == "yes" for name in flags} == flags
    assert rows["max transfer length"] == str(LIMITS.max_transfer_length)


@pytest.mark.slow
def test_the_addresses_come_from_the_provider(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [host for host, _ in Provider().query_address_list()]
    assert main(["address", "list", "--format", "json"]) == 0
    assert [row["address"] for row in json.loads(capsys.readouterr().out)] == hosts
    assert main(["address", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == hosts


def test_the_id_of_an_adapter_is_the_same_in_all_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["address", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert main(["info", rows[0]["address"], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["adapter_id"] == rows[0]["adapter_id"]
