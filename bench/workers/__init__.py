# SPDX-License-Identifier: Apache-2.0
"""The processes that are measured: how they start, how they are controlled, how they end."""
