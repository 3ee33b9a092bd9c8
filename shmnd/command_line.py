# SPDX-License-Identifier: Apache-2.0
"""Options of command lines whose values the provider checks.

`argparse` prints the name of the option before the error, so the noun of the provider's own text
is left out. A check is imported when its option is there: most commands name none, and would wait
for the import.
"""

import argparse
from collections.abc import Callable

__all__ = ["group", "namespace"]


def namespace(text: str) -> str:
    """Return the name of a namespace, checked."""
    from shmnd.broker.place import namespace_name

    return _checked(text, namespace_name, "namespace ")


def group(text: str) -> str:
    """Return the name or the number of a group, after a check that this process is in it."""
    from shmnd.broker.access import access_of

    return _checked(text, access_of, "group ")


def _checked(text: str, check: Callable[[str], object], noun: str) -> str:
    from shmnd.status import NdError, detail_of

    try:
        check(text)
    except NdError as exc:
        raise argparse.ArgumentTypeError(detail_of(exc).removeprefix(noun)) from exc
    return text
