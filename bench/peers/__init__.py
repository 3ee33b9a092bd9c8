# SPDX-License-Identifier: Apache-2.0
"""The transports that shmnd is held against. One module each."""
