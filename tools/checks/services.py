# SPDX-License-Identifier: Apache-2.0
"""Does a service manager take away what processes meet by?

Segments have no names, so nothing that deletes names reaches them. What can go is the runtime
directory with the broker's lock and socket, and what can differ is the view of it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from shmnd import NdError
from shmnd.broker.place import root_of

from .finding import Finding, Host, ok, warning
from .tmpfiles import rule_of

_LOGIND: Final = "systemd/logind.conf"
_FIRST_USER: Final = 1000
"""Users below are the system's own, which logind leaves alone."""
_ELSEWHERE: Final = (
    "SHMND_RUNTIME_DIR to a directory that stays, the same for all processes that are to meet"
    " (RuntimeDirectory=shmnd and Environment=SHMND_RUNTIME_DIR=/run/shmnd in a unit)"
)


def check(host: Host) -> Iterator[Finding]:
    """Check the effects of systemd on names, on the runtime directory, and on its visibility."""
    try:
        root = PurePosixPath(root_of())
    except NdError:
        return  # reported with the runtime directory itself
    yield _own_view(host, root)
    if not host.path("/run/systemd/system").is_dir():
        yield ok("service manager", "no systemd runs here")
        return
    yield _names(host)
    yield _logout(host, root)
    yield _age(host, root)


def _own_view(host: Host, root: PurePosixPath) -> Finding:
    check = "view of the runtime directory"
    over = [mount for mount in host.mounts() if root.is_relative_to(mount.at)]
    if over and any(part.startswith("systemd-private-") for part in over[-1].root.split("/")):
        return warning(
            check,
            f"{root} is in a {over[-1].at} that only this unit sees (PrivateTmp=)",
            "processes outside the unit have another directory under the same path, and do not"
            " find those inside",
            f"PrivateTmp=no, JoinsNamespaceOf= the other unit, or set {_ELSEWHERE}",
        )
    return ok(check, "shared with other processes")


def _names(host: Host) -> Finding:
    check = "names at logout"
    value = _setting(host, "RemoveIPC", "yes")
    if value in ("no", "false", "off", "0") or os.geteuid() < _FIRST_USER:
        return ok(check, f"nothing is removed (RemoveIPC={value}, uid {os.geteuid()})")
    return ok(check, f"RemoveIPC={value} removes names; segments have none and stay")


def _setting(host: Host, name: str, usual: str) -> str:
    """Return the last setting of logind; files of logind.conf.d follow logind.conf."""
    texts = [host.read(f"/etc/{_LOGIND}")]
    parts: dict[str, str] = {}
    for folder in ("/usr/lib", "/run", "/etc"):  # a later folder's file replaces its namesake
        for path in sorted(host.path(f"{folder}/{_LOGIND}.d").glob("*.conf")):
            parts[path.name] = path.read_text(errors="replace")
    texts += [parts[each] for each in sorted(parts)]
    value = usual
    for line in "\n".join(texts).splitlines():
        key, sign, text = line.partition("=")
        if sign and key.strip() == name:
            value = text.strip().lower() or usual
    return value


def _logout(host: Host, root: PurePosixPath) -> Finding:
    check = "runtime directory at logout"
    if not root.is_relative_to("/run/user"):
        return ok(check, f"{root} stays")
    name = _user()
    if host.path(f"/var/lib/systemd/linger/{name}").exists():
        return ok(check, f"{root} stays, since {name} lingers")
    return warning(
        check,
        f"{root} is removed when {name} has logged out everywhere",
        "programs that keep running (nohup, tmux, cron) keep their connections, but new programs"
        " cannot find them, nor can they find each other",
        f"loginctl enable-linger {name}, or set {_ELSEWHERE}",
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _age(host: Host, root: PurePosixPath) -> Finding:
    check = "age of the runtime directory"
    rule = rule_of(host, root / "default" / "lock")
    if rule is None:
        return ok(check, f"systemd-tmpfiles leaves {root} alone")
    return warning(
        check,
        f"systemd-tmpfiles removes files that stay in {rule.path} for {rule.age} ({rule.source})",
        "a broker that runs for longer can lose its lock file, and another one take its place",
        f"a line 'x {root}' in /etc/tmpfiles.d/shmnd.conf, or set {_ELSEWHERE}",
    )
