# SPDX-License-Identifier: Apache-2.0
"""Answers as tables, plots, comparisons and verdicts."""
