# SPDX-License-Identifier: Apache-2.0
"""The scripts by which shmnd is built and checked; they are not installed."""
