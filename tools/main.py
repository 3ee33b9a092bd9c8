# SPDX-License-Identifier: Apache-2.0
"""Runs a command, and turns errors into one line."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from shmnd import NdError
from shmnd.common.streams import discard_output, open_streams

from .loading import ended_by_ctrl_c

_REPORTED: Final = (NdError, OSError, ImportError)
"""Errors that are one line, besides those of `shmnd.ipc`, which not every command loads."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    open_streams()
    line = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(line)
        finally:
            _flush(sys.stdout, "standard output")  # here, where an error of it can be reported
            _flush(sys.stderr, "standard error")
    except BrokenPipeError:
        discard_output()  # the reader has closed the pipe
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as exc:
        if not isinstance(exc, _REPORTED) and type(exc).__module__ != "shmnd.ipc.errors":
            raise
        # Without the name of the call: the user has typed a command.
        with contextlib.suppress(OSError):
            print(f"shmnd: {_text_of(exc)}", file=sys.stderr)
        discard_output()
        return 1


def _flush(stream: TextIO, name: str) -> None:
    """Write all that is left of an output; an error names it, as one of a file does."""
    try:
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, name) from exc


def _text_of(exc: Exception) -> str:
    """Return the text of an error: that of a file as its name and the reason."""
    if isinstance(exc, OSError) and exc.filename is not None and exc.strerror:
        return f"{os.fsdecode(exc.filename)}: {exc.strerror}"
    return str(exc).removeprefix("open_adapter: ")


def _run(line: list[str]) -> int:
    if _starts_ranks(line):
        return _mpiexec(line[1:])
    with ended_by_ctrl_c():
        from shmnd.broker.access import access_of  # the ranks of a job need none of this
        from shmnd.broker.place import namespace_name

        from .commands import in_order, parser_of

        given = in_order(line)
    if _starts_ranks(given):
        return _mpiexec(given[1:])
    with ended_by_ctrl_c():
        wanted = next((word for word in given if not word.startswith("-")), None)
        args = parser_of(wanted).parse_args(given)
    with _namespace_given(args):
        if hasattr(args, "namespace"):
            namespace_name(None)  # a variable that is wrong ends every command alike
            access_of()
        code: int = args.run(args)
    return code


def _starts_ranks(line: Sequence[str]) -> bool:
    """Return whether a line is one of the launcher; its help alone has the options' exit codes."""
    return [*line[:1]] == ["mpiexec"] and [*line[1:]] not in (["-h"], ["--help"])


def _mpiexec(arguments: Sequence[str]) -> int:
    """Run the launcher of ranks: its line ends with one of another program."""
    from .verbs.mpiexec import run_line

    return run_line(arguments)


@contextlib.contextmanager
def _namespace_given(args: argparse.Namespace) -> Iterator[None]:
    """Set the variables by which the verb, and its processes, use the namespace and group given."""
    given = {
        f"SHMND_{name.upper()}": value
        for name in ("namespace", "group")
        if (value := getattr(args, name, None)) is not None
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())
