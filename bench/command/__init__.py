# SPDX-License-Identifier: Apache-2.0
"""What the programs share: their options, a run from start to report, ends started apart."""
