# SPDX-License-Identifier: Apache-2.0
"""Memory as programs pass it to calls, and objects as messages."""
