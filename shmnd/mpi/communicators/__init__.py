# SPDX-License-Identifier: Apache-2.0
"""Communicators, groups, topologies and sessions, and what remains after a death."""
