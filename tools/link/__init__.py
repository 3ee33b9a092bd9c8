# SPDX-License-Identifier: Apache-2.0
"""Topics and services of one host on others, over zenoh: what `shmnd ipc link` runs.

A link is a process like any other. For a publisher of its namespace that a far link wants, it
subscribes, and sends on what it receives; for a far publisher it opens a publisher of the same name
and type here. It never sends on what another link has published, so no sample comes back or is
carried further.
"""
