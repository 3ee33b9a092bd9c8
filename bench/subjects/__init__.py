# SPDX-License-Identifier: Apache-2.0
"""The transports of shmnd that can be measured, and the rounds that measure them."""
