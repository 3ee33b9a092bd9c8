# SPDX-License-Identifier: Apache-2.0
"""The compiled part of queue pairs, completion queues and shared receive queues."""
