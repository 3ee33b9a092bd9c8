# SPDX-License-Identifier: Apache-2.0
"""The command line of shmnd: `shmnd <noun> <verb>`, one module for each verb."""
