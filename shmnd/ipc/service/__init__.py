# SPDX-License-Identifier: Apache-2.0
"""Services: requests and answers."""
