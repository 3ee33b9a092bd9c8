# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

from unit.broker.service.rendezvous_kit import world as world
