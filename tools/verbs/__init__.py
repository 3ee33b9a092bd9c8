# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command: one module for each, with `configure` and `run`."""
