# SPDX-License-Identifier: Apache-2.0
"""The transports and floors that shmnd is held against. One module each."""
