# SPDX-License-Identifier: Apache-2.0
"""A process whose address space ends: each call that finds no room names itself and the limit."""

import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = textwrap.dedent(
    """
    import contextlib, pathlib, resource, shmnd

    MIB = 1 << 20
    NONE = resource.RLIM_INFINITY

    def use(open_, adapter):
        queue = open_(adapter.create_completion_queue(4))
        pairs = [open_(adapter.create_queue_pair(queue, queue)) for _ in range(2)]
        active, passive = (open_(adapter.create_connector()) for _ in range(2))
        listener = open_(adapter.create_listener())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        request = listener.get_connection_request(passive)
        connecting = active.connect(pairs[0], listener.get_local_address())
        request.result(10)
        passive.accept(pairs[1])
        connecting.result(10)
        adapter.allocate(4096)

    def place(exc):
        trace = exc.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        return trace.tb_frame.f_code.co_filename

    shmnd.open_adapter().close()  # what the first one loads is not counted
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for room in range(8, 48):
        with contextlib.ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_AS, (NONE, NONE))
            resource.setrlimit(resource.RLIMIT_AS, (used + room * MIB, NONE))
            try:
                use(stack.enter_context, stack.enter_context(shmnd.open_adapter()))
            except shmnd.NdError as exc:
                print(exc.status.name, exc)
            except MemoryError as exc:  # of the interpreter
                print("bare", place(exc))
    """
)
CALLS = ("open_adapter", "Adapter.", "Connector.")


def test_each_call_without_address_space_names_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    refused = [text for status, text in lines if status == "INSUFFICIENT_RESOURCES"]
    assert len(refused) > 10
    assert [text for text in refused if not text.startswith(CALLS) or "ulimit -v" not in text] == []
    # The interpreter raises one in a function of Python, too, wherever that allocates.
    assert [place for status, place in lines if status == "bare" and place.endswith(".pyx")] == []
