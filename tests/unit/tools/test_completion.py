# SPDX-License-Identifier: Apache-2.0
"""`shmnd completion`: the scripts, run by the shells that are here."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shmnd_tools.commands import whole_parser
from shmnd_tools.completions.scripts import SCRIPTS
from shmnd_tools.completions.tree import Command, Option, Takes, commands_of
from shmnd_tools.main import main

END = "--end--"
FILE = "notes.txt"
"""The files in the folder where the shells run."""

# Completion's own builtins work only while a key is pressed; what they would do is printed.
HARNESS = {
    "bash": """
compopt() { ls; }
SCRIPT
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shmnd; printf '%s\\n' "${COMPREPLY[@]}"; }
""",
    "zsh": """
compdef() { true; }
compset() { true; }
compadd() { shift; print -l -- "$@"; }
_files() { ls; }
_message() { true; }
_describe() { print -l -- ${(@)${(@P)@[-1]}%%:*}; }
SCRIPT
ask() { words=("$@"); CURRENT=$#; _shmnd; }
""",
    "fish": """
SCRIPT
function ask
    complete -C (string join ' ' -- $argv) | string replace -r '\\t.*' ''
end
""",
}
PLAIN = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}
"""The option by which a shell reads no user's settings."""


def offered(shell: str, lines: list[list[str]], folder: Path) -> list[set[str]]:
    """Return what a shell offers at the end of each line; the last word is the one begun."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    (folder / FILE).touch()
    script = SCRIPTS[shell]([*commands_of(whole_parser())])
    asked = [
        "\n".join([" ".join(["ask", *(f'"{word}"' for word in words)]), f"echo {END}"])
        for words in lines
    ]
    source = "\n".join([HARNESS[shell].replace("SCRIPT", script), *asked, ""])
    done = subprocess.run(
        [program, PLAIN[shell]],
        input=source,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.split(f"{END}\n")
    assert answers.pop() == ""
    assert len(answers) == len(lines)
    # fish completes the whole word, the others the text after the sign.
    begun = [words[-1] if shell == "fish" else words[-1].rpartition("=")[2] for words in lines]
    return [
        {word for word in answer.split() if word.startswith(start)}
        for answer, start in zip(answers, begun, strict=True)
    ]


def test_the_tree_is_read_off_the_parsers() -> None:
    commands = {each.line: each for each in commands_of(whole_parser())}
    assert "broker" in commands["shmnd"].below
    assert set(commands["shmnd broker"].below) == {"run", "status", "stop"}
    assert "connections" in commands["shmnd broker status"].operands
    options = {name: each for each in commands["shmnd bench core"].options for name in each.names}
    assert options["--format"].words == ("table", "json")
    assert options["--quick"].takes is Takes.NOTHING
    assert options["--json"].takes is Takes.FILE
    assert options["--rounds"].takes is Takes.VALUE
    assert options["-D"] is options["--seconds"]
    assert all(option.help for command in commands.values() for option in command.options)
    assert not any("%(" in option.help for each in commands.values() for option in each.options)


def test_a_command_without_options_that_take_something() -> None:
    parser = argparse.ArgumentParser(prog="shmnd", add_help=False)
    parser.add_argument("--tea", action="store_true", help="it's hot: 100 %% \\ more")
    (command,) = commands_of(parser)
    tea = Option(("--tea",), "it's hot: 100 % \\ more", Takes.NOTHING)
    assert command == Command("shmnd", (tea,))
    for shell in SCRIPTS:
        if program := shutil.which(shell):
            script = SCRIPTS[shell]([command])
            subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["in"], {"info"}),
        (["bro", ""], None),  # no command, so the word before it counts
        (["broker", "st"], {"status", "stop"}),
        (["broker", "status", "con"], {"connections"}),
        (["broker", "status", "--format", ""], {"table", "json"}),
        (["broker", "status", "--format", "json", "--name"], {"--namespace"}),
        (["clean", "--dry-run", "--form"], {"--format"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["bench", "compare", "rp"], {"rpingpong", "rping"}),
        (["bench", "pingpong", "--engine", "na"], {"native"}),
        (["bench", "pingpong", "--json", ""], {FILE}),
        (["bench", "pingpong", "--rounds", ""], set()),
        (["info", "--namespace", ""], set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_offered_words(
    shell: str, line: list[str], wanted: set[str] | None, tmp_path: Path
) -> None:
    (found,) = offered(shell, [["shmnd", *line]], tmp_path)
    if wanted is None:
        assert "info" in found
    elif line[-1]:
        assert found == wanted
    else:
        assert {word for word in found if not word.startswith("-")} == wanted


@pytest.mark.slow
def test_bash_cuts_at_the_equals_sign(tmp_path: Path) -> None:
    lines = [
        ["shmnd", "info", "--format", "="],
        ["shmnd", "info", "--format", "=", "ta"],
    ]
    assert offered("bash", lines, tmp_path)[1] == {"table"}


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_an_option_and_its_value_in_one_word(shell: str, tmp_path: Path) -> None:
    (found,) = offered(shell, [["shmnd", "info", "--format=ta"]], tmp_path)
    assert found == ({"--format=table"} if shell == "fish" else {"table"})


@pytest.mark.slow
def test_bash_offers_all_that_can_follow_each_command(tmp_path: Path) -> None:
    commands = [*commands_of(whole_parser())]
    found = offered("bash", [[*each.line.split(), ""] for each in commands], tmp_path)
    for command, words in zip(commands, found, strict=True):
        names = {name for option in command.options for name in option.names}
        assert words == {*command.below, *command.operands, *names}, command.line


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]([*commands_of(whole_parser())])
