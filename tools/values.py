# SPDX-License-Identifier: Apache-2.0
"""The values of options, and the errors of invalid ones."""

import argparse
import ipaddress
import math
from collections.abc import Callable

from shmnd.broker.protocol import written

__all__ = [
    "address",
    "at_most",
    "how_many",
    "number",
    "process_id",
    "seconds",
]


def how_many(text: str) -> int:
    """Return a number of things to show, checked."""
    return _whole(text, "whole number")


def at_most(most: int) -> Callable[[str], int]:
    """Return a reader of numbers from 1 to a bound."""

    def read(text: str) -> int:
        found = _whole(text, "whole number")
        if found > most:
            raise argparse.ArgumentTypeError(f"{text!r} is more than {most:,}")
        return found

    return read


def process_id(text: str) -> int:
    """Return the id of a process, checked."""
    return _whole(text, "process id")


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of seconds within these bounds."""
    return number("number of seconds", least, most)


def number(what: str, least: float, most: float) -> Callable[[str], float]:
    """Return a reader of numbers within these bounds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a {what} from {_format_number(least)} to {_format_number(most)}"
            )
        return value

    return read


def address(text: str) -> str:
    """Return an address in the spelling of the tables."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        bare = ipaddress.ip_address(host[1:-1] if bracketed else host)
        good = port.isascii() and port.isdigit() and int(port) <= 0xFFFF
        good = good and bracketed == (bare.version == 6)
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address as 127.0.0.1:50123")
    return written((str(bare), int(port)))


def _format_number(number: float) -> str:
    return f"{number:,.10g}"


def _whole(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from 1 on")
    return int(text)
