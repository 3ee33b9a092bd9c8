# SPDX-License-Identifier: Apache-2.0
"""The programs behind `shmnd bench`: one module for each verb."""
