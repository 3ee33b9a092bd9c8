# SPDX-License-Identifier: Apache-2.0
"""What every room of the package uses: close, number checks, descriptors, step names."""
