# SPDX-License-Identifier: Apache-2.0
"""Counters of other processes, read and put together for ps, top and trace."""
