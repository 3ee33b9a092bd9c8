# SPDX-License-Identifier: Apache-2.0
"""The broker as a process sees it: the state it declares there, and the events it receives."""
