# SPDX-License-Identifier: Apache-2.0
"""Remove what a crash of everything left behind; what lives is never touched.

The exit code is 0 when nothing stale is left, 1 when something is (found by `--dry-run`, or not to
be removed).
"""

import argparse
import os
from pathlib import Path

from shmnd.broker.access import unusable
from shmnd.broker.leftovers import Leftover, find_leftovers, remove_leftovers
from shmnd.broker.place import place_of, root_of

from ..output import add_format, show_rows

HELP = "remove files that crashed processes and brokers left behind"
EXAMPLE = "shmnd clean --dry-run"
FAILURE = "stale files remain: found by --dry-run, or not removable; or the folder is not readable"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--dry-run", action="store_true", help="only list the files to remove (exit code 1 if any)"
    )
    parser.add_argument("--namespace", help="this namespace only (default: all of this user)")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Show each thing and what became of it."""
    _require_readable(root_of())
    found = find_leftovers()
    if args.namespace is not None:
        only = place_of(args.namespace, make=False).directory
        found = [each for each in found if only in (each.path, each.path.parent)]
    stayed = [each for each in found if each.stale]
    if not args.dry_run:
        stayed = remove_leftovers(found)
    rows = [
        {
            "path": str(each.path),
            "kind": each.kind,
            "bytes": each.nbytes,
            "state": _state(each, stays=each in stayed, dry=args.dry_run),
        }
        for each in found
    ]
    show_rows(args, rows, "path", "kind", "bytes", "state")
    return 1 if stayed else 0


def _require_readable(root: Path) -> None:
    """Raise NdError where leftovers cannot be found: a list of none would be wrong there."""
    try:
        os.scandir(root).close()
    except FileNotFoundError:
        return  # no process has used it
    except OSError as exc:
        raise unusable(root, f"cannot be read: {exc.strerror}", exc) from exc


def _state(each: Leftover, *, stays: bool, dry: bool) -> str:
    if not each.stale:
        return "in use"
    if dry:
        return "stale"
    return "could not be removed" if stays else "removed"
