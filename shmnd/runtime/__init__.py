# SPDX-License-Identifier: Apache-2.0
"""The progress engine of a process: its waits, its polls, its peers and its broker."""
