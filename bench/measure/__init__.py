# SPDX-License-Identifier: Apache-2.0
"""A question to a transport, the reading that answers it, and the machine it was taken on."""
