# SPDX-License-Identifier: Apache-2.0
"""Links as processes of their own, between namespaces of this host."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from shmnd_tools.link.carrier import Carrier

PATIENCE: Final = 30.0
_COMMAND: Final = "import sys; from shmnd_tools.main import main; sys.exit(main(sys.argv[1:]))"


def free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{probe.getsockname()[1]}"


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:12]}"


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def half(session: object, namespace: str, say: Callable[[str], None] | None = None) -> Carrier:
    """What the two halves of a link are made of; the number of the link is `here`."""
    made = Carrier(cast("Any", session), namespace, False, say or (lambda _: None))
    vars(made)["origin"] = "here"
    return made


class LinkProcess:
    """`shmnd ipc link` with some options."""

    def __init__(self, namespace: str, *options: str) -> None:
        words = ["ipc", "link", "--namespace", namespace, "--format", "json", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def stop(self) -> list[dict[str, Any]]:
        """End it in order; return what it carried."""
        self.process.terminate()
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err
        assert "Traceback" not in err
        rows: list[dict[str, Any]] = json.loads(out)
        return rows


class Links:
    """Starts links, and ends all that are left."""

    def __init__(self) -> None:
        self._all: list[LinkProcess] = []

    def start(self, namespace: str, *options: str) -> LinkProcess:
        self._all.append(link := LinkProcess(namespace, *options))
        return link

    def pair(self, first: str, second: str, *options: str) -> tuple[LinkProcess, LinkProcess]:
        where = free_endpoint()
        return (
            self.start(first, "--listen", where, *options),
            self.start(second, "--connect", where, *options),
        )

    def close(self) -> None:
        for link in self._all:
            if link.process.poll() is None:
                link.kill()
            for pipe in (link.process.stdout, link.process.stderr):
                assert pipe is not None
                pipe.close()


@contextlib.contextmanager
def links() -> Iterator[Links]:
    found = Links()
    try:
        yield found
    finally:
        found.close()
