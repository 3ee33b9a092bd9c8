# SPDX-License-Identifier: Apache-2.0
"""The programs that measure one kind of traffic, with the options of perftest."""
