# SPDX-License-Identifier: Apache-2.0
"""Messages of any length over one queue pair, and the objects that such a connection uses."""
