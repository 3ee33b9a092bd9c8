# SPDX-License-Identifier: Apache-2.0
"""What a shell completes, and the scripts that it loads."""
