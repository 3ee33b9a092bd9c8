# SPDX-License-Identifier: Apache-2.0
"""Starts the command. Ctrl-C ends it without a traceback also while its modules are loaded."""


def main() -> int:
    """Run the command; return its exit code."""
    try:
        from .loading import ended_by_ctrl_c

        with ended_by_ctrl_c():
            from .main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
