# SPDX-License-Identifier: Apache-2.0
"""Windows, and the calls that read and write memory of other ranks."""
