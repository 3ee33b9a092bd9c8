# SPDX-License-Identifier: Apache-2.0
"""What developers of shmnd run; it is not installed."""
