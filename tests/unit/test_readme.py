# SPDX-License-Identifier: Apache-2.0
"""What README.md shows must run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def programs() -> dict[str, str]:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", README.read_text(), re.S | re.M)
    return dict(blocks)


@pytest.mark.slow
def test_the_two_programs_talk_to_each_other(tmp_path: Path) -> None:
    for name, text in programs().items():
        (tmp_path / name).write_text(text)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "server.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "listening\n"
            client = subprocess.run(
                [sys.executable, "-W", "error", "client.py"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            assert (client.returncode, client.stdout, client.stderr) == (0, "", "")
            output, _ = server.communicate(timeout=20)
            assert output == "greeting hello from the other process\n"
            assert server.returncode == 0
        finally:
            server.kill()
