# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, and the requests that stand for them."""
