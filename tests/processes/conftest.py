# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

from processes.messages_kit import pair as pair
from processes.messages_kit import peer_of as peer_of
