# SPDX-License-Identifier: Apache-2.0
"""What those who work on shmnd run; it is not installed."""
