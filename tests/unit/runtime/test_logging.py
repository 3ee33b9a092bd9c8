# SPDX-License-Identifier: Apache-2.0
"""What shmnd logs, and that nothing is shown by default."""

import logging
import subprocess
import sys

import pytest

import shmnd

PROGRAM = """
import shmnd
with shmnd.open_adapter() as adapter:
    cq = adapter.create_completion_queue(4)
    qp = adapter.create_queue_pair(cq, cq)
    try:
        adapter.create_connector().connect(qp, ("127.0.0.1", 1)).result(10)
    except ConnectionRefusedError:
        pass
"""


def test_a_refused_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shmnd"), shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(4)
        qp = adapter.create_queue_pair(cq, cq)
        with pytest.raises(ConnectionRefusedError):
            adapter.create_connector().connect(qp, ("127.0.0.1", 1)).result(10)
    assert any(
        record.name == "shmnd.connections" and "CONNECTION_REFUSED" in record.getMessage()
        for record in caplog.records
    )


def test_nothing_is_shown_by_default() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
