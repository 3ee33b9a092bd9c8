# SPDX-License-Identifier: Apache-2.0
"""Floors under the figures: what the machine or the interpreter itself takes. One module each."""
