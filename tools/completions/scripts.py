# SPDX-License-Identifier: Apache-2.0
"""The completion script of each shell.

All work the same way: go through the words before the cursor, which determine the command that is
reached; then offer what the option before the cursor takes, or what can follow the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from .tree import Command, Option, Takes


def bash(commands: Sequence[Command]) -> str:
    """Return the script for bash."""
    arms = [
        *(_arm(lines, f"words={shlex.quote(words)}") for words, lines in _after(commands).items()),
        _arm(_before(commands, Takes.FILE), "compopt -o default; return"),
        _arm(_before(commands, Takes.VALUE), "return"),
    ]
    follow = [_arm([each.line], f"words={shlex.quote(_following(each))}") for each in commands]
    return f"""\
# Completion of shmnd for bash. Load it with: source <(shmnd completion bash)
_shmnd() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local command=shmnd word words=
    COMPREPLY=()
    if [[ $current == '=' ]]; then # bash cuts --option=value in three
        current=
    elif [[ $previous == '=' ]]; then
        previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
        case "$command $word" in
{_arm(_lines_below(commands), 'command="$command $word"')}
        esac
    done
    case "$command $previous" in
{_joined(arms)}
        *)
            case $command in
{_joined(follow)}
            esac
            ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _shmnd shmnd
"""


def zsh(commands: Sequence[Command]) -> str:
    """Return the script for zsh."""
    arms = [
        *(_arm(lines, f"compadd -- {words}; return") for words, lines in _after(commands).items()),
        _arm(_before(commands, Takes.FILE), "_files; return"),
        _arm(_before(commands, Takes.VALUE), "_message value; return"),
    ]
    follow = [_arm([each.line], _zsh_follow(each)) for each in commands]
    return f"""\
#compdef shmnd
# Completion of shmnd for zsh. Load it with: source <(shmnd completion zsh)
_shmnd() {{
    local command=shmnd word previous=${{words[CURRENT - 1]}}
    local -a offered options
    if [[ ${{words[CURRENT]}} == --*=* ]]; then
        previous=${{words[CURRENT]%%=*}}
        compset -P '*='
    fi
    for word in "${{(@)words[2,CURRENT - 1]}}"; do
        case "$command $word" in
{_arm(_lines_below(commands), 'command="$command $word"')}
        esac
    done
    case "$command $previous" in
{_joined(arms)}
    esac
    case $command in
{_joined(follow)}
    esac
    (( $#offered )) && _describe -t commands command offered
    _describe -o option options
}}
if [[ ${{funcstack[1]}} == _shmnd ]]; then # found by its name in a folder of functions
    _shmnd "$@"
else
    compdef _shmnd shmnd
fi
"""


def _zsh_follow(command: Command) -> str:
    offered = [*command.below.items(), *((word, "") for word in command.operands)]
    options = [(name, each.help) for each in command.options for name in each.names]
    return f"offered=({_described(offered)}); options=({_described(options)})"


def _described(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(
        shlex.quote(f"{name}:{text}" if text else name).replace("\n", " ") for name, text in pairs
    )


def fish(commands: Sequence[Command]) -> str:
    """Return the script for fish."""
    lines = [line for command in commands for line in _fish_lines(command)]
    return f"""\
# Completion of shmnd for fish. Load it with: shmnd completion fish | source
function __shmnd_at
    set -l command shmnd
    for word in (commandline -opc)[2..]
        switch "$command $word"
            case {" ".join(_fish(line) for line in _lines_below(commands))}
                set command "$command $word"
        end
    end
    test "$command" = "$argv[1]"
end
complete -c shmnd -f
{_joined(lines)}
"""


def _fish_lines(command: Command) -> Iterable[str]:
    start = f"complete -c shmnd -n {_fish(f'__shmnd_at {_fish(command.line)}')}"
    for word, text in command.below.items():
        yield f"{start} -a {_fish(word)} -d {_fish(text)}"
    if command.operands:
        yield f"{start} -a {_fish(' '.join(command.operands))}"
    for option in command.options:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
        )
        yield f"{start} {names} {_fish_takes(option)}-d {_fish(option.help)}"


def _fish_takes(option: Option) -> str:
    match option.takes:
        case Takes.NOTHING:
            return ""
        case Takes.WORD:
            return f"-x -a {_fish(' '.join(option.words))} "
        case Takes.FILE:
            return "-r -F "
        case Takes.VALUE:
            return "-x "


def _fish(text: str) -> str:
    """Return a text quoted for fish, which has only two escapes between single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _lines_below(commands: Sequence[Command]) -> list[str]:
    """Return every command but the first, as `shmnd broker run`."""
    return [each.line for each in commands[1:]]


def _after(commands: Sequence[Command]) -> Mapping[str, list[str]]:
    """Return the words that options take, each set with the command lines before it."""
    found: dict[str, list[str]] = {}
    for command in commands:
        for option in command.options:
            if option.takes is Takes.WORD:
                lines = found.setdefault(" ".join(option.words), [])
                lines += [f"{command.line} {name}" for name in option.names]
    return found


def _before(commands: Sequence[Command], takes: Takes) -> list[str]:
    """Return the command lines before a file, or before a value of another kind."""
    return [
        f"{command.line} {name}"
        for command in commands
        for option in command.options
        for name in option.names
        if option.takes is takes
    ]


def _following(command: Command) -> str:
    names = [name for option in command.options for name in option.names]
    return " ".join([*command.below, *command.operands, *names])


def _arm(lines: Iterable[str], do: str) -> str:
    """Return an arm of a case statement; nothing if no line would match it."""
    patterns = " | ".join(shlex.quote(line) for line in lines)
    return f"            {patterns}) {do} ;;" if patterns else ""


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(filter(None, lines))


SCRIPTS: Final[Mapping[str, Callable[[Sequence[Command]], str]]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
"""Writers of the scripts, by shell."""
