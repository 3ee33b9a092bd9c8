# SPDX-License-Identifier: Apache-2.0
"""The measured loops: everything that runs once per message."""
