# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

from processes.messages.kit import pair as pair
from processes.messages.kit import peer_of as peer_of
