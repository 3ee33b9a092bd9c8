# SPDX-License-Identifier: Apache-2.0
"""Collective calls, and the reductions that some of them carry out."""
