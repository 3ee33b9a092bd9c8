# SPDX-License-Identifier: Apache-2.0
"""The samples of topics, printed as they come."""

import argparse
import base64
import contextlib
import datetime
import json
import math
import sys
from typing import Any, Final

import numpy as np

from shmnd import ipc

from ..output import add_format, printable
from ..values import how_many, seconds
from .names import topic
from .retyped import next_sample
from .waiting import wait_for_sample

HELP = "print the samples of topics as they come"
EXAMPLE = "shmnd ipc echo camera --count 1"
_MOST_SHOWN: Final = 1000
"""Characters of an object."""
FAILURE = "no sample came within --timeout"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("topic", type=topic, nargs="+", help="name of a topic")
    parser.add_argument("--count", type=how_many, metavar="N", help="end after N samples")
    parser.add_argument(
        "--timeout",
        type=seconds(0, 1e6),
        metavar="SECONDS",
        help="end when no sample comes for so long (default: wait until Ctrl-C)",
    )
    parser.add_argument("--full", action="store_true", help="print all values of large arrays")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print samples; those that come too fast to be printed are counted as lost."""
    shown = 0
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(ipc.WaitSet())
        subs = [
            stack.enter_context(ipc.Subscriber(name, buffer=256))
            for name in dict.fromkeys(args.topic)
        ]
        lost = dict.fromkeys(subs, 0)
        for sub in subs:
            ready.add(sub)
        found = wait_for_sample(ready, subs, args.timeout)
        while True:
            if not found:
                print(f"shmnd: no sample within {args.timeout:g} s", file=sys.stderr)
                return 1
            for sub in found:
                sample = next_sample(sub)
                if sample is None:
                    continue
                if sub.lost > lost[sub]:
                    print(
                        f"shmnd: {sub.lost - lost[sub]} lost of {printable(sub.name)}",
                        file=sys.stderr,
                    )
                    lost[sub] = sub.lost
                with sample:
                    print(line_of(sub.name, sample, args), flush=True)
                shown += 1
                if shown == args.count:
                    return 0
            found = ready.wait(args.timeout)


def line_of(name: str, sample: Any, args: argparse.Namespace) -> str:
    """Return a sample as text; one that cannot be shown says why."""
    unreadable = ""
    text = None
    try:
        value = sample.value
        json_ = args.format == "json"
        text = json.dumps(plain(value)) if json_ else shown(value, full=args.full)
    except Exception as exc:  # of the classes of its objects: this process may have none of them
        unreadable = f"{type(exc).__name__}: {exc}"
    if args.format == "json":
        whole = {
            "topic": name,
            "sequence": sample.sequence,
            "publisher": sample.publisher.pid,
            "timestamp_ns": sample.timestamp_ns,
            "header": None if sample.header is None else base64.b64encode(sample.header).decode(),
        }
        if unreadable:
            return json.dumps(whole | {"value": None, "unreadable": unreadable})
        return f'{json.dumps(whole)[:-1]}, "value": {text}}}'
    head = f"{printable(name)} {sample.sequence}"
    if sample.header:
        head += f" header {sample.header[:32]!r}"
    return f"{head}  {text}" if not unreadable else f"{head}  unreadable: {printable(unreadable)}"


def shown(value: Any, *, full: bool = False) -> str:
    """Return a value as people read it: what it is, and its numbers."""
    if hasattr(value, "keys") and hasattr(value, "array"):
        inner = "  ".join(f"{printable(name)}={shown(value[name], full=full)}" for name in value)
        return f"({inner})"
    if isinstance(value, np.ndarray):
        threshold = sys.maxsize if full else 12
        text = np.array2string(value, threshold=threshold, edgeitems=3, precision=6)
        what = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        gap = "\n" if "\n" in text else " "
        return f"{what}{gap}{text}" if value.ndim else text
    if isinstance(value, np.generic):
        return printable(str(value))
    if isinstance(value, bytes):
        return repr(value) if full or len(value) <= 64 else f"{len(value)} bytes {value[:48]!r}..."
    text = "\n".join(map(printable, repr(value).split("\n")))
    if full or len(text) <= _MOST_SHOWN:
        return text
    return f"{text[:_MOST_SHOWN]}... ({len(text):,} characters; --full shows all)"


def plain(value: Any) -> Any:
    """Return a value as JSON has it.

    Arrays are lists, bytes are base64, dates are text, durations are numbers of their units, NaN,
    NaT and infinities are null, other objects are text.
    """
    if hasattr(value, "keys") and hasattr(value, "array"):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, np.generic):
        if value.dtype.kind in "mM" or value.dtype.names is not None:
            return _listed(np.asarray(value))
        number = value.item()  # Python has no number for a long double
        return _of_long_double(value) if isinstance(number, np.generic) else plain(number)
    if isinstance(value, np.ndarray):
        return _listed(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN and no infinity
    if isinstance(value, datetime.date):
        return value.isoformat()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def _listed(array: Any) -> Any:
    """Return an array as lists; those of plain numbers are not converted one by one."""
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype.kind in "mM":
        return _times(array)
    if array.dtype.names is not None:
        return _rows(array)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        return plain(array.tolist())
    finite = np.isfinite(array)
    if finite.all():
        return array.tolist()
    boxed = array.astype(object)
    boxed[~finite] = None
    return boxed.tolist()


def _times(array: Any) -> Any:
    """Return dates as text and durations as numbers, whatever their unit and year.

    numpy has no Python object for nanoseconds, nor for years that `datetime` cannot hold.
    """
    dates = array.dtype.kind == "M"
    array = array.astype(array.dtype.newbyteorder("="))  # numpy writes no other order as text
    boxed = np.array(np.datetime_as_string(array) if dates else array.astype("i8"), object)
    boxed[np.isnat(array)] = None
    return boxed.tolist()


def _rows(array: Any) -> Any:
    """Return an array of records as lists of their fields, in the order of the type."""
    if array.ndim:
        return [_rows(each) for each in np.asarray(array)]
    return [plain(array[name]) for name in array.dtype.names]


def _of_long_double(value: Any) -> str | None:
    return str(value) if np.isfinite(value) else None
