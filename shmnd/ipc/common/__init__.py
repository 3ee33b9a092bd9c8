# SPDX-License-Identifier: Apache-2.0
"""What several kinds of channels of `shmnd.ipc` share."""
