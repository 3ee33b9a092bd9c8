# SPDX-License-Identifier: Apache-2.0
"""Memory that processes find by a name."""
