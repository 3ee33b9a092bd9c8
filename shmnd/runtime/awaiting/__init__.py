# SPDX-License-Identifier: Apache-2.0
"""Tasks of asyncio that wait: the operation or waiter, the future, and the polls of their loops."""
