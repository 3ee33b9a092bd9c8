# SPDX-License-Identifier: Apache-2.0
"""Types: what a value of a channel is, and how it lies in memory."""
