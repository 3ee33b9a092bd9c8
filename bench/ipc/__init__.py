# SPDX-License-Identifier: Apache-2.0
"""Topics and queues of `shmnd.ipc`, next to the libraries that such programs use today."""
