# SPDX-License-Identifier: Apache-2.0
"""The checks of `shmnd doctor`: one module for each part of the machine."""
