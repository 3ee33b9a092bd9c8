# SPDX-License-Identifier: Apache-2.0
"""What README.md shows must run as it stands there."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def programs() -> dict[str, str]:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", README.read_text(), re.S | re.M)
    return dict(blocks)


def run_client(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it until the other one listens."""
    deadline = time.monotonic() + 20
    while True:
        client = subprocess.run(
            [sys.executable, "-W", "error", "hello.py", "client"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if "CONNECTION_REFUSED" not in client.stderr or time.monotonic() > deadline:
            return client
        time.sleep(0.05)


@pytest.mark.slow
def test_the_program_talks_to_itself(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(programs()["hello.py"])
    with subprocess.Popen(
        [sys.executable, "-W", "error", "hello.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            client = run_client(tmp_path)
            sent = (client.returncode, client.stdout, client.stderr)
            assert sent == (0, "greeting sent SUCCESS b'hello'\n", "")
            output, _ = server.communicate(timeout=20)
            assert output == "greeting received SUCCESS b'hello'\n"
            assert server.returncode == 0
        finally:
            server.kill()
