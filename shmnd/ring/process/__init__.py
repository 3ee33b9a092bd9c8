# SPDX-License-Identifier: Apache-2.0
"""The compiled part that concerns processes: peers, sleeping, fork, counters."""
