# SPDX-License-Identifier: Apache-2.0
"""How a connection is made and ended: the state machine of a connector, and what it uses."""
