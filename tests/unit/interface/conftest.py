# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

from unit.interface.overlapped_kit import adapter as adapter
from unit.interface.overlapped_kit import file as file
