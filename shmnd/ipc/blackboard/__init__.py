# SPDX-License-Identifier: Apache-2.0
"""Blackboards: the newest value of each key."""
