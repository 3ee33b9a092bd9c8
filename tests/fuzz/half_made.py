# SPDX-License-Identifier: Apache-2.0
"""Call every method of objects of `shmnd.ipc` whose `__init__` never ran, or ran in part.

A program of its own, since what it looks for ends the process: `half_made.py SEED`. Each class has
a child process, in which each call is made in turn; what ends the child is printed.
"""

import faulthandler
import functools
import gc
import importlib
import inspect
import mmap
import os
import pkgutil
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from every_call import arguments, in_order, interrupt, step, within_reason

import shmnd.ipc

ROUNDS = 3


def classes() -> list[type]:
    """Every class that a module of the package defines, the compiled ones first."""
    found: set[type] = set()
    for each in pkgutil.walk_packages(shmnd.ipc.__path__, "shmnd.ipc."):
        module = importlib.import_module(each.name)
        found |= {
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and kind.__module__ == each.name
        }
    kinds = [kind for kind in found if not issubclass(kind, BaseException)]
    return sorted(kinds, key=lambda kind: (is_python(kind), kind.__module__, kind.__name__))


def is_python(kind: type) -> bool:
    return any(inspect.isfunction(each) for each in vars(kind).values())


def half_made(kind: type) -> list[Any]:
    """Objects without `__init__`, of the class and of a subclass of it, and ones that failed."""
    makers: list[Callable[[], Any]] = []
    for given in ((), (None,), (None, None), (b"x",)):
        makers.append(functools.partial(kind.__new__, kind, *given))
    try:
        child = type("Child", (kind,), {"__init__": lambda self, *_: None})
    except TypeError:  # it has no subclasses
        pass
    else:
        makers += [child, functools.partial(child.__new__, child)]
    found: list[Any] = []
    for make in makers:
        try:
            found.append(make())
        except Exception:
            continue
    return found


def call_all(objects: list[Any], chance: random.Random, note: Callable[[str], None]) -> None:
    """Call each attribute of each object, those that end something last; with any arguments."""
    every = in_order(objects, chance)
    for _ in range(ROUNDS):
        for number, name in every:
            thing = objects[number]
            given = () if chance.random() < 0.3 else arguments(chance, objects)
            note(f"{type(thing).__module__}.{type(thing).__qualname__}.{name} of {len(given)}")

            def call(thing: object = thing, name: str = name, given: Any = given) -> None:
                attribute = getattr(thing, name)
                if callable(attribute):
                    step(attribute(*given))

            within_reason(call)
        for thing in objects:
            for use in (memoryview, repr, len, iter, bytes, hash):
                note(f"{use.__name__} of a {type(thing).__qualname__}")
                within_reason(functools.partial(use, thing))
            within_reason(functools.partial(setattr, thing, "anything", 1))


def in_child(kind: type, seed: int, last: mmap.mmap) -> None:
    """Call everything of a class; `last` keeps the last call, also where it ends the process.

    Of some there is no object without its arguments: their `__cinit__` checks these.
    """
    faulthandler.enable()
    signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(f"{kind.__module__}.{kind.__name__} {seed}")

    def note(text: str) -> None:
        last[: len(last)] = text.encode().ljust(len(last))[: len(last)]

    objects = half_made(kind)
    call_all(objects, chance, note)
    note("the end of the objects")
    objects.clear()
    gc.collect()


def main(seed: int, names: list[str]) -> None:
    last = mmap.mmap(-1, 256)
    failed = False
    kinds = [kind for kind in classes() if not names or kind.__name__ in names]
    for kind in kinds:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            in_child(kind, seed, last)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            failed = True
            what = os.waitstatus_to_exitcode(status)
            text = last[:].decode().strip()
            print(f"{kind.__module__}.{kind.__name__}: {what} at {text}", file=sys.stderr)
    print(f"{len(kinds)} classes", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
