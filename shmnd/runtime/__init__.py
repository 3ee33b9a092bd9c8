# SPDX-License-Identifier: Apache-2.0
"""What a process waits on, what it makes progress on, and its peers and its broker."""
