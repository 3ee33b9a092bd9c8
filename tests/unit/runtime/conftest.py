# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

from unit.runtime.progress_kit import client as client
from unit.runtime.progress_kit import namespace as namespace
from unit.runtime.progress_kit import server as server
