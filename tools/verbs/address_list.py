# SPDX-License-Identifier: Apache-2.0
"""Which addresses can an adapter be opened with?"""

import argparse

import shmnd

from ..output import add_format, show_rows

HELP = "list the addresses that an adapter can be opened with"
EXAMPLE = "shmnd address list --format json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print one row for each address."""
    provider = shmnd.Provider()
    rows = [
        {"address": host, "adapter_id": provider.resolve_address(host)}
        for host, _ in provider.query_address_list()
    ]
    show_rows(args, rows, "address", "adapter_id")
    return 0
