# SPDX-License-Identifier: Apache-2.0
"""Events: numbers that are signalled."""
