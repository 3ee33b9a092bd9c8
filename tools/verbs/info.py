# SPDX-License-Identifier: Apache-2.0
"""Print the limits of the adapter, the paths in use, and the environment variables."""

import argparse
import dataclasses
import os
import platform
from pathlib import Path
from typing import Final

import shmnd
from shmnd.broker.place import namespace_name, root_of, runtime_dir
from shmnd.ring.shared_memory.bounds import least_bound, own_limit

from ..output import add_format, add_namespace, show_facts

HELP = "show the limits of the adapter, and the paths in use"
EXAMPLE = "shmnd info --format json"
VARIABLES: Final = (
    "SHMND_NAMESPACE",
    "SHMND_GROUP",
    "SHMND_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
    "SHMND_MEMORY_LIMIT",
    "NO_COLOR",
    "COLUMNS",
)
"""The environment variables that adapters and commands read."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    host = parser.add_mutually_exclusive_group()
    host.add_argument("address", nargs="?", help="the same as --host")
    host.add_argument("--host", help="address of the adapter (default 127.0.0.1)")
    add_namespace(parser, "namespace of the adapter")
    parser.add_argument(
        "--config",
        action="store_true",
        help="print the environment variables and the values in effect instead",
    )
    add_format(parser)


def _config(args: argparse.Namespace) -> dict[str, object]:
    """Return each variable with its value, and the settings that result from them.

    It makes no directory: a user reads it also where none can be made, to learn why.
    """
    own = own_limit("shmnd info")
    given = {name: os.environ.get(name) for name in VARIABLES}
    namespace = namespace_name(args.namespace)
    directory = str(root_of() / namespace)
    if args.format == "json":
        return given | {
            "namespace": namespace,
            "runtime_directory": directory,
            "memory_limit": own,
        }
    return {
        **{name: "(not set)" if value is None else value for name, value in given.items()},
        "namespace": namespace,
        "runtime_directory": directory,
        "memory_limit": "none" if own is None else f"{own} bytes",
    }


def run(args: argparse.Namespace) -> int:
    """Print the paths and limits of this process, then every field of the adapter's report."""
    if args.config:
        show_facts(args, _config(args))
        return 0
    host = args.address or args.host or "127.0.0.1"
    bound = least_bound()
    facts = {
        "version": shmnd.__version__,
        "folder": str(Path(shmnd.__file__).parent),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "namespace": namespace_name(args.namespace),
        "runtime_directory": str(runtime_dir(args.namespace)),
        "memory_free_bytes": bound.free,
        "memory_bound": bound.name,
        "host": host,
    }
    with shmnd.open_adapter(host, namespace=args.namespace) as adapter:
        info = dataclasses.asdict(adapter.query())
    flags = info.pop("adapter_flags")
    abilities = {str(flag.name): flag in flags for flag in shmnd.AdapterFlag}
    more = {"adapter_flags": abilities} if args.format == "json" else abilities
    show_facts(args, {**facts, **info, **more})
    return 0
