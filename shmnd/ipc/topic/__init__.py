# SPDX-License-Identifier: Apache-2.0
"""Topics: publishers, subscribers and their samples."""
