# SPDX-License-Identifier: Apache-2.0
"""Checks of the kernel and the interpreter: each required ability is tried."""

from __future__ import annotations

import os
import platform
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import Final

from shmnd.ring.process.peer import private_memory_is_reachable

from .finding import Finding, Host, ok, problem, warning

_SO_PEERGROUPS: Final = 59  # Python has no name for it


def check(host: Host) -> Iterator[Finding]:
    """Try what connections need, then what only some programs need."""
    yield _opened(
        "deaths of peers",
        "pidfd_open",
        lambda: os.pidfd_open(os.getpid()),
        "without it the death of a peer cannot be detected, so no adapter can be opened",
        "Linux 5.3 or newer; a seccomp filter must allow pidfd_open",
    )
    yield _opened(
        "waking threads",
        "eventfd",
        lambda: os.eventfd(0, os.EFD_CLOEXEC),
        "the threads of a process wake each other by one, so no adapter can be opened",
        "free descriptors (see RLIMIT_NOFILE); a seccomp filter must allow eventfd2",
    )
    yield _groups()
    yield _private_memory(host)
    yield _gil()


def _opened(check: str, name: str, call: Callable[[], int], meaning: str, remedy: str) -> Finding:
    """Return the finding of a call that returns a descriptor."""
    try:
        os.close(call())
    except OSError as exc:
        found = f"{name}: {exc.strerror} (Linux {platform.release()})"
        return problem(check, found, meaning, remedy)
    return ok(check, f"{name} works")


def _groups() -> Finding:
    check = "groups of callers"
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        try:
            near.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
        except OSError as exc:
            return warning(
                check,
                f"SO_PEERGROUPS: {exc.strerror} (Linux {platform.release()})",
                "with open_adapter(group=...) only the main group of a process counts",
                "Linux 4.13 or newer; at most 256 groups; or make the group the main one (newgrp)",
            )
    return ok(check, "SO_PEERGROUPS works")


def _private_memory(host: Host) -> Finding:
    check = "private memory of peers"
    if private_memory_is_reachable():
        return ok(check, "another process of this user reads it (tried)")
    scope = host.read("/proc/sys/kernel/yama/ptrace_scope")
    return warning(
        check,
        "another process of this user must not read it (tried)"
        + (f"; kernel.yama.ptrace_scope is {scope}" if scope else ""),
        "messages between ordinary arrays go through the ring in pieces, which is slower, and such"
        " memory cannot be registered for Read and Write; memory of allocate() is not concerned",
        "take buffers from Adapter.allocate(); or allow process_vm_readv: ptrace_scope 0 or 1"
        " (sysctl), a seccomp filter that lets it through (docker --cap-add=SYS_PTRACE), a process"
        " that is dumpable",
    )


def _gil() -> Finding:
    check = "interpreter"
    found = f"CPython {platform.python_version()}"
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return ok(check, found)
    return warning(
        check,
        f"{found}, built to run without the GIL",
        "shmnd relies on the GIL: the interpreter switches it on when shmnd is loaded, and warns",
        f"expect threads to take turns, or use an ordinary build of CPython {sys.version_info[0]}."
        f"{sys.version_info[1]}",
    )
