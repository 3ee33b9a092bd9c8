# SPDX-License-Identifier: Apache-2.0
"""Datatypes: where the bytes of an item lie, and how types are made."""
